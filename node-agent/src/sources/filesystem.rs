//! Space of mounted file systems, by statvfs(3), which blocks while a network file system does not answer.
//! Each is a source of its own.

use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::{InvalidIdentifier, Labels};
use rustix::fs::StatVfs;

use super::custom_source::CustomSource;
use super::kernel_text::{self, FileError};
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::mount_table::{Mount, MountTable, parse, visible};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;

const KIND: &str = "filesystem";

/// Bound of the file systems: each takes a thread.
const FILE_SYSTEMS_MAX: usize = 32;

/// Types without space of their own, or that an access would mount.
const WITHOUT_SPACE: [&str; 24] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "fuse.portal",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

type Compute = fn(&StatVfs) -> Option<u64>;

const FIELDS: [(&str, Compute); 5] = [
    ("size", |fs| fs.f_blocks.checked_mul(fs.f_frsize)),
    ("free", |fs| fs.f_bfree.checked_mul(fs.f_frsize)),
    ("available", |fs| fs.f_bavail.checked_mul(fs.f_frsize)),
    // A file system that creates inodes on demand has no count of them.
    ("files", |fs| Some(fs.f_files).filter(|files| *files > 0)),
    ("files_free", |fs| Some(fs.f_ffree).filter(|_| fs.f_files > 0)),
];

pub(super) struct FilesystemKind;

impl SourceKind for FilesystemKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|(field, _)| *field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let mounts = request.host.mounts;
        let table = mounts.proc.join("self/mountinfo");
        let text = match kernel_text::text(&table) {
            Ok(text) => text,
            Err(error) => {
                return opening.unavailable_all(&request.wanted, &format!("{}: {error}", table.display()));
            }
        };
        let mut found = with_space(parse(&text));
        opening.limit(&mut found, FILE_SYSTEMS_MAX, "file systems", &request.wanted);
        for mount in found {
            let path = mounts.root.join(mount.point.trim_start_matches('/'));
            let name = format!("{KIND}{}", mount.point);
            match FileSystemSource::new(&table, path, &mount, &request.wanted) {
                Ok(source) => opening.push_custom(name, Box::new(source)),
                Err(reason) => {
                    opening.unavailable_all(&request.wanted, &format!("{}: {reason}", mount.point))
                }
            }
        }
    }
}

fn with_space(mounts: Vec<Mount>) -> Vec<Mount> {
    visible(mounts).into_iter().filter(has_space).collect()
}

pub(super) fn has_space(mount: &Mount) -> bool {
    !WITHOUT_SPACE.contains(&mount.fs_type.as_str())
}

#[derive(Debug)]
struct FileSystemSource {
    path: PathBuf,
    mount: Mount,
    slots: Vec<Slot>,
    compute: Vec<Compute>,
    table: MountTable,
}

#[derive(Debug, thiserror::Error)]
enum FileSystemError {
    #[error("its path is not a valid label: {0}")]
    Label(#[from] InvalidIdentifier),
    #[error(transparent)]
    Table(#[from] FileError),
}

impl FileSystemSource {
    fn new(
        table: &Path,
        path: PathBuf,
        mount: &Mount,
        wanted: &[Definition],
    ) -> Result<Self, FileSystemError> {
        let labels = Labels::escaped(vec![("mount".to_owned(), mount.point.clone())])?;
        let of_slots = wanted.iter().filter_map(|definition| {
            let name = definition.metric.field_of(KIND)?;
            let (_, compute) = FIELDS.iter().find(|(known, _)| *known == name)?;
            Some((Slot { definition: definition.clone(), labels: labels.clone() }, *compute))
        });
        let (slots, compute) = of_slots.unzip();
        Ok(Self { path, mount: mount.clone(), slots, compute, table: MountTable::open(table)? })
    }
}

impl CustomSource for FileSystemSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let is_changed = self.table.has_changed();
        // After an unmount, `statvfs` of the directory would describe another file system.
        if is_changed && !self.table.has(&self.mount) {
            return Outcome::Gone;
        }
        match rustix::fs::statvfs(&self.path) {
            Ok(answer) => {
                for (slot, compute) in (0..).zip(&self.compute) {
                    if let Some(value) = compute(&answer) {
                        reading.set(slot, value);
                    }
                }
                if is_changed { Outcome::Changed } else { Outcome::Read }
            }
            // It is still mounted: the server of a network file system may recover.
            Err(errno) => Outcome::Retry(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue;

    use super::*;

    const MOUNTS: &str = "\
22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw
28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
40 28 0:36 / /dev/shm rw shared:3 - tmpfs tmpfs rw
41 28 0:50 / /mnt/a\\040b rw - nfs4 server:/export/a rw,vers=4.2
42 28 8:2 /home /home rw shared:1 - ext4 /dev/sda2 rw
43 28 0:51 / /auto rw - autofs systemd-1 rw
44 41 0:52 / /mnt/a\\040b rw - tmpfs hidden rw
malformed
";

    #[test]
    fn finds_file_systems_with_space() {
        let found = with_space(parse(MOUNTS));
        let points: Vec<&str> = found.iter().map(|mount| mount.point.as_str()).collect();
        assert_eq!(points, ["/", "/dev/shm", "/mnt/a b"]);
        assert_eq!(found[2].fs_type, "tmpfs", "the last mount on a directory is visible");
        assert!(parse("").is_empty());
    }

    #[test]
    fn reads_the_root_file_system() {
        let wanted: Vec<Definition> =
            ["node.filesystem.size", "node.filesystem.free", "node.filesystem.available"]
                .map(|name| catalogue::find(name).unwrap())
                .into();
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = with_space(parse(&text)).into_iter().find(|mount| mount.point == "/").unwrap();
        let table = Path::new("/proc/self/mountinfo");
        let mut source = FileSystemSource::new(table, PathBuf::from("/"), &root, &wanted).unwrap();
        let mut reading = Reading::absent(3);
        assert!(source.read(&mut reading).has_values());
        let [size, free, available] = [0, 1, 2].map(|slot| reading.get(slot).unwrap());
        assert!(size > 0 && size >= free && free >= available, "{size} {free} {available}");
    }
}
