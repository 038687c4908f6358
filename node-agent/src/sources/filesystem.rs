//! The kind of mounted file systems: their space, by statvfs(3), which blocks while a network file system does not
//! answer. Each is a source of its own.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::StatVfs;

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;

/// The kind's name in the catalogue.
const KIND: &str = "filesystem";

/// The most file systems that are read: each takes a thread.
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

/// The function of each field that computes it from the answer of `statvfs`.
type Compute = fn(&StatVfs) -> Option<u64>;

const FIELDS: [(&str, Compute); 5] = [
    ("size", |fs| fs.f_blocks.checked_mul(fs.f_frsize)),
    ("free", |fs| fs.f_bfree.checked_mul(fs.f_frsize)),
    ("available", |fs| fs.f_bavail.checked_mul(fs.f_frsize)),
    // A file system that creates inodes on demand has no count of them.
    ("files", |fs| Some(fs.f_files).filter(|files| *files > 0)),
    ("files_free", |fs| Some(fs.f_ffree).filter(|_| fs.f_files > 0)),
];

/// Mounted file systems.
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
        let text = match fs::read_to_string(&table) {
            Ok(text) => text,
            Err(error) => {
                return opening.unavailable_all(&request.wanted, &format!("{}: {error}", table.display()));
            }
        };
        let found = with_space(parse(&text));
        let passed_over = found.len().saturating_sub(FILE_SYSTEMS_MAX);
        if passed_over > 0 {
            let reason = format!(
                "{passed_over} of {} file systems are not sampled: the limit is {FILE_SYSTEMS_MAX}",
                found.len()
            );
            opening.unavailable_all(&request.wanted, &reason);
        }
        for mount in found.into_iter().take(FILE_SYSTEMS_MAX) {
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

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The numbers of the device: `8:1`.
    device: String,
    /// The directory on which it is mounted.
    point: String,
    fs_type: String,
}

/// Parses `/proc/self/mountinfo`, proc_pid_mountinfo(5): `36 35 98:0 /root /point options optional... - type source options`.
fn parse(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ');
        let (device, point) = (words.nth(2)?, words.nth(1)?);
        let fs_type = after.split(' ').next()?;
        Some(Mount { device: device.to_owned(), point: unescape(point), fs_type: fs_type.to_owned() })
    };
    text.lines().filter_map(line).collect()
}

/// Replaces the octal escapes of the kernel, such as `\040` for a space.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| behind.get(..3)).flatten();
        let byte = octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the mounts that have space of their own. The last mount on a directory hides earlier ones; of several mounts
/// of one device the first counts, since the others are bind mounts.
fn with_space(mounts: Vec<Mount>) -> Vec<Mount> {
    let mut visible: Vec<Mount> = Vec::new();
    for mount in mounts {
        visible.retain(|hidden| hidden.point != mount.point);
        visible.push(mount);
    }
    let mut kept: Vec<Mount> = Vec::new();
    for mount in visible {
        let is_known = kept.iter().any(|known| known.device == mount.device);
        if !is_known && !WITHOUT_SPACE.contains(&mount.fs_type.as_str()) {
            kept.push(mount);
        }
    }
    kept
}

/// One mounted file system.
#[derive(Debug)]
struct FileSystemSource {
    path: PathBuf,
    mount: Mount,
    slots: Vec<Slot>,
    /// The function that computes the value of each slot.
    compute: Vec<Compute>,
    table: MountTable,
}

impl FileSystemSource {
    fn new(table: &Path, path: PathBuf, mount: &Mount, wanted: &[Definition]) -> Result<Self, String> {
        let labels = Labels::new(vec![("mount".to_owned(), mount.point.clone())]);
        let labels = labels.map_err(|invalid| format!("its path is not a valid label: {invalid}"))?;
        let field = |definition: &Definition| {
            let name = definition.metric.origins.iter().find_map(|origin| origin.field_of(KIND))?;
            let (_, compute) = FIELDS.iter().find(|(field, _)| *field == name)?;
            Some((Slot { definition: definition.clone(), labels: labels.clone() }, *compute))
        };
        let (slots, compute) = wanted.iter().filter_map(field).unzip();
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

/// The kernel's table of mounts, which signals changes.
#[derive(Debug)]
struct MountTable {
    path: PathBuf,
    file: fs::File,
}

impl MountTable {
    fn open(path: &Path) -> Result<Self, String> {
        let mut table = fs::File::open(path)
            .map(|file| Self { path: path.to_owned(), file })
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // The first call reports the changes since the file was opened.
        table.has_changed();
        Ok(table)
    }

    /// Returns true if a file system was mounted or unmounted since the last call: the kernel signals that as an error.
    fn has_changed(&mut self) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = poll(&mut descriptors, Some(&at_once));
        let [descriptor] = &descriptors;
        polled.is_ok() && descriptor.revents().intersects(PollFlags::ERR | PollFlags::PRI)
    }

    /// Returns true if a file system is still mounted at the same point.
    fn has(&self, mount: &Mount) -> bool {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        // The last mount on a directory hides earlier ones.
        parse(&text).iter().rfind(|found| found.point == mount.point).is_some_and(|found| found == mount)
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
        assert_eq!([unescape("\\134x"), unescape("\\9"), unescape("a\\")], ["\\x", "\\9", "a\\"]);
    }

    #[test]
    fn reads_the_root_file_system() {
        let wanted: Vec<Definition> =
            ["node.filesystem.size", "node.filesystem.free", "node.filesystem.available"]
                .map(|name| catalogue::find(name).unwrap())
                .into();
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = with_space(parse(&text)).into_iter().find(|mount| mount.point == "/").unwrap();
        let table = Path::new("/proc/self/mountinfo");
        let mut source = FileSystemSource::new(table, PathBuf::from("/"), &root, &wanted).unwrap();
        let mut reading = Reading::absent(3);
        assert!(source.read(&mut reading).has_values());
        let [size, free, available] = [0, 1, 2].map(|slot| reading.get(slot).unwrap());
        assert!(size > 0 && size >= free && free >= available, "{size} {free} {available}");
    }

    #[test]
    fn a_file_system_that_is_hidden_by_another_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mountinfo");
        fs::write(&path, MOUNTS).unwrap();
        let table = MountTable::open(&path).unwrap();
        let mounts = parse(MOUNTS);
        let on = |fs_type: &str| mounts.iter().find(|mount| mount.fs_type == fs_type).unwrap();
        assert!(table.has(on("ext4")));
        assert!(!table.has(on("nfs4")));
    }
}
