//! Kernel's table of mounts. Source: proc_pid_mountinfo(5).

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::custom_source::CustomSource;
use super::kernel_text::{self, FileError};
use super::outcome::Outcome;
use super::reading::Reading;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Major and minor number: `8:1`.
    pub(super) device: String,
    pub(super) point: String,
    pub(super) fs_type: String,
    /// What is mounted: `/dev/sda1`, `server:/export`.
    pub(super) source: String,
}

/// Parses `/proc/self/mountinfo`: `36 35 98:0 /root /point options optional... - type source options`.
pub(super) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut words = before.split(' ');
    let (device, point) = (words.nth(2)?, words.nth(1)?);
    let mut words = after.split(' ');
    let (fs_type, source) = (words.next()?, words.next().unwrap_or_default());
    Some(Mount {
        device: device.to_owned(),
        point: unescape(point),
        fs_type: fs_type.to_owned(),
        source: unescape(source),
    })
}

/// Visible mounts: the last one on a directory hides earlier ones. Only the first mount of a device is kept,
/// since the others are bind mounts.
pub(super) fn visible(mounts: Vec<Mount>) -> Vec<Mount> {
    let mut visible: Vec<Mount> = Vec::new();
    for mount in mounts {
        visible.retain(|hidden| hidden.point != mount.point);
        visible.push(mount);
    }
    let mut kept: Vec<Mount> = Vec::new();
    for mount in visible {
        if !kept.iter().any(|known| known.device == mount.device) {
            kept.push(mount);
        }
    }
    kept
}

/// Replaces the kernel's octal escapes, such as `\040` for a space.
pub(super) fn unescape(text: &str) -> String {
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

/// Open `/proc/self/mountinfo`, which signals changes.
#[derive(Debug)]
pub(super) struct MountTable {
    path: PathBuf,
    file: fs::File,
}

impl MountTable {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let file = kernel_text::open(path).map_err(FileError::of(path))?;
        let mut table = Self { path: path.to_owned(), file };
        // The first call reports the changes since the file was opened.
        table.has_changed();
        Ok(table)
    }

    /// True if a file system was mounted or unmounted since the last call, which the kernel signals as an
    /// error.
    pub(super) fn has_changed(&mut self) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = poll(&mut descriptors, Some(&at_once));
        let [descriptor] = &descriptors;
        polled.is_ok() && descriptor.revents().intersects(PollFlags::ERR | PollFlags::PRI)
    }

    pub(super) fn mounts(&self) -> Vec<Mount> {
        parse(&kernel_text::text(&self.path).unwrap_or_default())
    }

    pub(super) fn has(&self, mount: &Mount) -> bool {
        // The last mount on a directory hides earlier ones.
        self.mounts().iter().rfind(|found| found.point == mount.point).is_some_and(|found| found == mount)
    }
}

/// Reports changes of the mounts of one type: a source without slots.
#[derive(Debug)]
pub(super) struct MountWatch {
    table: MountTable,
    select: fn(Vec<Mount>) -> Vec<Mount>,
    mounts: Vec<Mount>,
}

impl MountWatch {
    pub(super) fn new(table: MountTable, select: fn(Vec<Mount>) -> Vec<Mount>) -> Self {
        let mounts = select(table.mounts());
        Self { table, select, mounts }
    }
}

impl CustomSource for MountWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        if !self.table.has_changed() {
            return Outcome::Read;
        }
        let mounts = (self.select)(self.table.mounts());
        if mounts == self.mounts {
            return Outcome::Read;
        }
        self.mounts = mounts;
        Outcome::Changed
    }
}

pub(super) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mounts = parse(&text);
    assert!(mounts.len() <= text.lines().count());
    let visible = visible(mounts);
    let count = |part: fn(&Mount) -> &String| {
        visible.iter().map(part).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((count(|mount| &mount.point), count(|mount| &mount.device)), (visible.len(), visible.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
41 28 0:50 / /mnt/a\\040b rw - nfs4 server:/export/a\\040b rw,vers=4.2
42 28 8:2 /home /home rw shared:1 - ext4 /dev/sda2 rw
44 41 0:52 / /mnt/a\\040b rw - tmpfs hidden rw
malformed
";

    #[test]
    fn hidden_and_repeated_mounts_are_left_out() {
        let mounts = parse(MOUNTS);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].source, "server:/export/a b");
        let points: Vec<String> = visible(mounts).into_iter().map(|mount| mount.point).collect();
        assert_eq!(points, ["/", "/mnt/a b"]);
        assert_eq!([unescape("\\134x"), unescape("\\9"), unescape("a\\")], ["\\x", "\\9", "a\\"]);
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
