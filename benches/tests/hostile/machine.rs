//! A laid-out node of which every file is known: with processes, cgroups and devices of its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use polymeter_benches::laid_out::{Hardware, LaidOut};
use rustix::fs::statvfs;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node-agent/tests/fixtures");

const CLIENT: &str = include_str!("../../../node-agent/tests/drm/amdgpu-6.13");

const CGROUPS: &str = "\
31 1 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 1 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 1 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
34 1 0:34 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
35 1 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
36 1 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
9001 1 0:9001 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw
9002 1 0:9002 / /home rw - nfs4 10.1.0.2:/export/home rw,vers=4.2
9003 1 0:9003 / /gpfs rw - gpfs /dev/scratch rw
9005 1 0:9005 / /beegfs rw - beegfs beegfs_nodev rw
9004 1 0:9004 / /sys/fs/resctrl rw - resctrl resctrl rw
";

const CONTROLLERS: [&str; 5] = ["memory", "cpu", "cpuacct", "blkio", "pids"];

/// Directory of the job below the roots of the hierarchies.
pub(crate) const JOB: &str = "job_1";

/// Processes of the job: the first has started the other.
pub(crate) const PROCESSES: [u32; 2] = [4242, 4243];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Node,
    V1,
    V2,
    Processes,
}

#[derive(Debug)]
pub(crate) struct Machine {
    node: LaidOut,
    /// All files, relative to the root.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let node = LaidOut::new_in(&directory(), Hardware { cpus: 2, gpus: 0, adapters: 2 }).unwrap();
        node.add_monitoring_group(JOB).unwrap();
        let root = node.root();
        // What belongs to this machine.
        for entry in fs::read_dir(root.join("proc")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                fs::remove_file(path).unwrap();
            }
        }
        for link in ["sys/fs/cgroup", "sys/kernel/tracing"] {
            fs::remove_file(root.join(link)).unwrap();
        }
        copy(&Path::new(FIXTURES).join("v1-6.18/proc"), &root.join("proc"));
        copy(&Path::new(FIXTURES).join("sysfs/proc"), &root.join("proc"));
        write(root, "proc/self/mountinfo", CGROUPS);
        write(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n");
        write(root, "proc/sys/kernel/task_delayacct", "1\n");
        lay_out_cgroups(root);
        PROCESSES.iter().for_each(|pid| lay_out_process(root, *pid));
        let mut files = BTreeMap::new();
        gather(root, Path::new(""), &mut files);
        Self { node, files }
    }

    pub(crate) fn root(&self) -> &Path {
        self.node.root()
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.keys().cloned().collect()
    }

    /// One directory of each kind of devices, relative to the root.
    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        let parents = [
            "sys/class/net",
            "sys/class/hwmon",
            "sys/class/thermal",
            "sys/class/infiniband",
            "sys/class/cxi",
            "sys/class/drm",
            "sys/class/powercap",
            "sys/class/kfd/kfd/topology/nodes",
            "sys/class/kfd/kfd/proc",
            "sys/devices/system/cpu",
            "sys/devices/system/edac/mc",
            "sys/devices/system/node",
            "sys/kernel/debug/lustre/llite",
            "sys/kernel/debug/lustre/obdfilter",
            "sys/fs/resctrl/mon_data",
            "proc",
        ];
        parents
            .into_iter()
            .filter_map(|parent| {
                let parent = Path::new(parent);
                self.files.keys().find_map(|file| {
                    let rest = file.strip_prefix(parent).ok()?;
                    (rest.components().count() > 1).then(|| parent.join(rest.components().next().unwrap()))
                })
            })
            .collect()
    }

    /// Copies a directory, with paths relative to the root.
    pub(crate) fn copy(&self, from: &Path, to: &Path) {
        for (file, text) in &self.files {
            if let Ok(rest) = file.strip_prefix(from) {
                let path = self.root().join(to).join(rest);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
    }

    /// Releases the threads that wait for a FIFO in the place of a file.
    pub(crate) fn release(&self) {
        for path in self.files.keys() {
            // A FIFO that is open for both reading and writing waits for nothing, and those that wait for a
            // writer find one.
            drop(fs::File::options().read(true).write(true).open(self.root().join(path)));
        }
    }

    /// Writes all files anew, whatever has taken their places.
    pub(crate) fn restore(&self) {
        for (path, text) in &self.files {
            let path = self.root().join(path);
            let metadata = fs::symlink_metadata(&path);
            match metadata {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path).unwrap(),
                Ok(_) => fs::remove_file(&path).unwrap(),
                Err(_) => {}
            }
            let is_program = path.ends_with("mmpmon") || path.ends_with("beegfs-ctl");
            fs::write(&path, text).unwrap();
            if is_program {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
}

/// Directory of machines: in memory if there is room, since a file system on a disk takes ten times as long
/// for files that replace those which were just removed.
fn directory() -> PathBuf {
    const ROOM_BYTES: u64 = 8 << 30;
    let memory = PathBuf::from("/dev/shm");
    let has_room = statvfs(&memory).is_ok_and(|free| free.f_bavail * free.f_frsize >= ROOM_BYTES);
    if has_room { memory } else { std::env::temp_dir() }
}

fn lay_out_cgroups(root: &Path) {
    let cgroups = root.join("sys/fs/cgroup");
    copy(&Path::new(FIXTURES).join("v2-6.12/v2"), &cgroups.join("unified").join(JOB));
    for controller in CONTROLLERS {
        let directory = cgroups.join(controller).join(JOB);
        copy(&Path::new(FIXTURES).join("v1-6.18/v1").join(controller), &directory);
    }
    let pids: String = PROCESSES.iter().map(|pid| format!("{pid}\n")).collect();
    for hierarchy in CONTROLLERS.iter().chain(&["unified"]) {
        write(&cgroups.join(hierarchy).join(JOB), "cgroup.procs", &pids);
    }
    write(&cgroups.join("unified").join(JOB), "cpuset.cpus.effective", "0-1\n");
    // A GPU that renders.
    fs::create_dir_all(root.join("sys/class/drm/renderD128/device")).unwrap();
}

/// A process with two seconds of CPU time, as Linux 6.18 shows it.
fn lay_out_process(root: &Path, pid: u32) {
    let directory = root.join(format!("proc/{pid}"));
    let parent = if pid == PROCESSES[0] { 1 } else { PROCESSES[0] };
    let stat = format!(
        "{pid} (a) b (c) S {parent} {pid} {pid} 0 -1 4194560 100 20 3 4 150 50 6 7 20 0 1 0 77 16515072 1899 \
         18446744073709551615 1 1 0 0 0 0 671173123 4096 1260 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    let children = if parent == 1 { format!("{} ", PROCESSES[1]) } else { String::new() };
    for (name, text) in [
        ("stat", stat.as_str()),
        (
            "io",
            "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n",
        ),
        ("status", "Name:\ta\nCpus_allowed_list:\t0-1\n"),
        ("cgroup", "0::/job_1\n"),
        ("environ", "PATH=/bin\0CUDA_VISIBLE_DEVICES=0\0"),
        (&format!("task/{pid}/stat"), stat.as_str()),
        (&format!("task/{pid}/status"), "Name:\ta\nCpus_allowed_list:\t0-1\n"),
        (&format!("task/{pid}/children"), children.as_str()),
        ("fdinfo/3", &CLIENT.replace("460", &pid.to_string())),
    ] {
        write(&directory, name, text);
    }
    fs::create_dir_all(directory.join("fd")).unwrap();
    symlink("/dev/dri/renderD128", directory.join("fd/3")).unwrap();
    let computations = root.join(format!("sys/class/kfd/kfd/proc/{pid}"));
    for (name, text) in [
        ("vram_51140", "2013265920\n"),
        ("sdma_51140", "1500\n"),
        ("stats_51140/evicted_ms", "12\n"),
        ("stats_51140/cu_occupancy", "228\n"),
    ] {
        write(&computations, name, text);
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Gathers the files below a directory, without links.
fn gather(root: &Path, relative: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(relative)).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (relative.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            gather(root, &path, files);
        } else if kind.is_file() {
            files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}
