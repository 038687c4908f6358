//! A laid-out node: a directory that an agent takes for the root of its machine. It has devices and file
//! systems that this machine lacks, with the texts of the agent's tests, and this machine's own processes and
//! cgroups.

mod clients;
mod gpus;
mod texts;

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use gpus::Gpus;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node-agent/tests/fixtures");

/// Entries of `/proc` that are laid out; the others are those of this machine.
const OWN_OF_PROC: [&str; 4] = ["stat", "self", "thread-self", "fs"];

/// Directory of resctrl, as in the table of mounts.
const RESCTRL: &str = "sys/fs/resctrl";

/// Jobs that clients of Lustre name to a laid-out server.
const SERVED_JOBS: usize = 100;

const L3_DOMAINS: [&str; 2] = ["mon_L3_00", "mon_L3_01"];

#[derive(Debug, Clone, Copy)]
pub struct Hardware {
    /// CPUs, in two packages.
    pub cpus: usize,
    pub gpus: usize,
    /// InfiniBand adapters with one port each.
    pub adapters: usize,
}

impl Hardware {
    pub const LARGE: Self = Self { cpus: 64, gpus: 8, adapters: 4 };
}

/// Dropping it removes the directory.
#[derive(Debug)]
pub struct LaidOut {
    root: tempfile::TempDir,
    gpus: Gpus,
}

impl LaidOut {
    /// Lays out a node. Processes that exist now are in it. Fails if the C compiler cannot build the stand-in
    /// library of the GPUs.
    pub fn new(hardware: Hardware) -> Result<Self, Box<dyn Error>> {
        Self::new_in(&std::env::temp_dir(), hardware)
    }

    /// Lays out a node in a new directory below `parent`, like [`LaidOut::new`].
    pub fn new_in(parent: &Path, hardware: Hardware) -> Result<Self, Box<dyn Error>> {
        let root = tempfile::tempdir_in(parent)?;
        let path = root.path();
        copy(&Path::new(FIXTURES).join("sysfs/sys"), &path.join("sys"))?;
        lay_out_proc(path, hardware)?;
        lay_out_sys(path, hardware)?;
        lay_out_file_systems(path)?;
        lay_out_resctrl(path)?;
        let gpus = Gpus::install(path, hardware.gpus)?;
        Ok(Self { root, gpus })
    }

    /// Directory for the key `root` of an agent's configuration.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Creates the monitoring group of a job as the kernel's resctrl shows it, for agents to find.
    pub fn add_monitoring_group(&self, job: &str) -> io::Result<()> {
        lay_out_group(&self.root().join(RESCTRL).join("mon_groups").join(format!("polymeter-{job}")))
    }

    /// Lets a process of this machine use an AMD GPU, which the node then has. Fails if the process did not
    /// exist when the node was laid out.
    pub fn add_gpu_client(&self, pid: u32) -> io::Result<()> {
        clients::add(self.root(), pid)
    }

    /// Lets the calls for the power of the first GPU hang, or answer again.
    pub fn set_hanging(&self, hangs: bool) -> io::Result<()> {
        self.gpus.answer(hangs)
    }

    pub fn has_hung(&self) -> bool {
        self.gpus.has_hung()
    }
}

/// Configuration with the lines of its baseline that are off and about devices and file systems of the node,
/// or GPUs.
pub fn with_devices(config: &str) -> String {
    let mut text = String::new();
    for line in config.lines() {
        let of_device = line
            .strip_prefix("# ")
            .filter(|setting| setting.starts_with("\"node.") || setting.starts_with("\"gpu."));
        text.push_str(of_device.unwrap_or(line));
        text.push('\n');
    }
    text
}

/// Links this machine's processes and files of the kernel, and lays out those that depend on the hardware.
fn lay_out_proc(root: &Path, hardware: Hardware) -> io::Result<()> {
    let proc = root.join("proc");
    fs::create_dir_all(proc.join("self"))?;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if !OWN_OF_PROC.iter().any(|own| name == *own) {
            symlink(Path::new("/proc").join(&name), proc.join(&name))?;
        }
    }
    fs::write(proc.join("stat"), texts::stat(&fs::read_to_string("/proc/stat")?, hardware.cpus))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")? + texts::MOUNTINFO;
    fs::write(proc.join("self/mountinfo"), mounts)?;
    fs::write(proc.join("self/mountstats"), texts::MOUNTSTATS)
}

/// Links the cgroups and the tracepoints of this machine, and multiplies devices.
fn lay_out_sys(root: &Path, hardware: Hardware) -> io::Result<()> {
    let sys = root.join("sys");
    fs::create_dir_all(sys.join("fs"))?;
    symlink("/sys/fs/cgroup", sys.join("fs/cgroup"))?;
    symlink("/sys/kernel/tracing", sys.join("kernel/tracing"))?;
    let cpus = sys.join("devices/system/cpu");
    fs::write(cpus.join("online"), format!("0-{}\n", hardware.cpus.saturating_sub(1)))?;
    for cpu in 1..hardware.cpus {
        copy(&cpus.join("cpu0"), &cpus.join(format!("cpu{cpu}")))?;
    }
    let adapters = sys.join("class/infiniband");
    for adapter in 1..hardware.adapters {
        let copied = adapters.join(format!("mlx5_{adapter}"));
        remove(&copied)?;
        copy(&adapters.join("mlx5_0"), &copied)?;
    }
    for other in ["hfi1_0", "rdmap0s31"] {
        remove(&adapters.join(other))?;
    }
    fs::write(sys.join("class/drm/card0/device/gpu_metrics"), texts::GPU_METRICS)?;
    let node = sys.join("class/kfd/kfd/topology/nodes/1");
    fs::create_dir_all(&node)?;
    fs::write(node.join("gpu_id"), format!("{}\n", clients::GPU_ID))?;
    fs::write(node.join("properties"), "simd_count 304\ndrm_render_minor 128\n")?;
    for (zone, name) in texts::ZONES {
        let zone = sys.join("class/powercap").join(zone);
        fs::create_dir_all(&zone)?;
        fs::write(zone.join("name"), format!("{name}\n"))?;
        fs::write(zone.join("energy_uj"), "1000\n")?;
        fs::write(zone.join("max_energy_range_uj"), "262143328850\n")?;
    }
    Ok(())
}

/// Lays out the statistics of Lustre, and programs in place of those of GPFS and BeeGFS.
fn lay_out_file_systems(root: &Path) -> io::Result<()> {
    let client = root.join("sys/kernel/debug/lustre/llite/scratch-ffff8f0e2d4f1800");
    fs::create_dir_all(&client)?;
    fs::write(client.join("stats"), texts::LUSTRE)?;
    let target = root.join("sys/kernel/debug/lustre/obdfilter/scratch-OST0000");
    fs::create_dir_all(&target)?;
    fs::write(target.join("job_stats"), texts::job_stats(SERVED_JOBS))?;
    let programs = root.join("usr/lpp/mmfs/bin");
    fs::create_dir_all(&programs)?;
    fs::write(programs.join("answer"), texts::MMPMON)?;
    let program = programs.join("mmpmon");
    fs::write(&program, texts::MMPMON_PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let client = root.join("proc/fs/beegfs/4F34-5DE9100E-node7");
    fs::create_dir_all(&client)?;
    fs::write(client.join("client_info"), texts::BEEGFS_CLIENT)?;
    let program = root.join("usr/bin/beegfs-ctl");
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::write(&program, texts::BEEGFS_PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    // The points of the mounts.
    ["scratch", "home", "gpfs", "beegfs"].iter().try_for_each(|point| fs::create_dir_all(root.join(point)))
}

/// Lays out resctrl with a processor that counts everything.
fn lay_out_resctrl(root: &Path) -> io::Result<()> {
    let resctrl = root.join(RESCTRL);
    let info = resctrl.join("info/L3_MON");
    fs::create_dir_all(&info)?;
    fs::write(info.join("num_rmids"), "256\n")?;
    fs::write(info.join("mon_features"), texts::MON_FEATURES)?;
    lay_out_group(&resctrl)
}

fn lay_out_group(group: &Path) -> io::Result<()> {
    for domain in L3_DOMAINS {
        let domain = group.join("mon_data").join(domain);
        fs::create_dir_all(&domain)?;
        texts::MON_FEATURES.lines().try_for_each(|event| fs::write(domain.join(event), "1048576\n"))?;
    }
    fs::write(group.join("tasks"), "")
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, to): (PathBuf, PathBuf) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use polymeter_agent::cgroups::Mounts;
    use polymeter_agent::sources::{SourceFactory, Target, online_cpus};
    use polymeter_proto::catalogue;

    use super::*;

    #[test]
    fn a_node_has_the_stated_devices() {
        let node = LaidOut::new(Hardware { cpus: 5, gpus: 2, adapters: 3 }).unwrap();
        assert_eq!(online_cpus(node.root()).unwrap(), [0, 1, 2, 3, 4]);
        let mounts = Mounts::read(node.root()).unwrap();
        let names = |selector: &str| {
            let definitions = catalogue::select(&selector.parse().unwrap());
            let (opened, _) =
                SourceFactory::of(&mounts).open(&Target::Node(Default::default()), &definitions);
            opened.into_iter().map(|opened| opened.name).collect::<Vec<_>>()
        };
        let adapters = names("node.infiniband.receive.bytes");
        assert_eq!(adapters.iter().filter(|name| name.contains("mlx5_")).count(), 3, "{adapters:?}");
        for (selector, name) in [
            ("node.lustre.*", "lustre"),
            ("node.nfs.*", "nfs"),
            ("node.gpfs.*", "gpfs"),
            ("node.beegfs.read.bytes", "beegfs/storage/beegfs"),
            ("node.energy.package", "rapl/package"),
            ("node.load1", "proc/loadavg"),
        ] {
            assert!(names(selector).iter().any(|found| found == name), "{selector}: {:?}", names(selector));
        }
    }

    #[test]
    fn lines_about_devices_are_switched_on() {
        let text =
            "# \"busiest.*\" = \"10s\"\n# \"gpu.power\" = \"10s\"\n\"node.load1\" = \"5s\"\n# node = \"n\"\n";
        let expected =
            "# \"busiest.*\" = \"10s\"\n\"gpu.power\" = \"10s\"\n\"node.load1\" = \"5s\"\n# node = \"n\"\n";
        assert_eq!(with_devices(text), expected);
    }
}
