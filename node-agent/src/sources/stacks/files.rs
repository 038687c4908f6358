//! Opening the files that a process has mapped, and its perf map: by the process's own view of the file
//! system, never a file that the process could not name, and never anything but a regular file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use polymeter_service::clock;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use super::elf::ReadAt;
use crate::sources::kernel_text;

const PERF_MAP_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileId {
    fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// True if it is the file of a mapping: the same inode of the same device.
    fn is_of(self, (major, minor, inode): (u32, u32, u64)) -> bool {
        let device = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        device == (major, minor) && self.inode == inode
    }
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, offset.saturating_add(read as u64)) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        read
    }
}

/// Whose files are read: the user who started a process. The effective user of a setuid program may read
/// more, and so may the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reader {
    uid: u32,
    groups: Vec<u32>,
}

impl Reader {
    /// Parses proc_pid_status(5).
    fn parse(status: &str) -> Option<Self> {
        let numbers = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok())
        };
        let uid = numbers("Uid:").next()?;
        Some(Self { uid, groups: numbers("Gid:").take(1).chain(numbers("Groups:")).collect() })
    }

    pub(super) fn of(proc: &Path, pid: u32) -> Option<Self> {
        Self::parse(&kernel_text::text(&proc.join(format!("{pid}/status"))).ok()?)
    }
}

/// Tells whether a user may read a file, by the bits of its mode; an unknown user is any.
fn may_read(reader: Option<&Reader>, (uid, gid, mode): (u32, u32, u32)) -> bool {
    let is_of_group = |reader: &Reader| mode & 0o040 != 0 && reader.groups.contains(&gid);
    mode & 0o004 != 0
        || reader.is_some_and(|reader| reader.uid == 0 || reader.uid == uid || is_of_group(reader))
}

/// A mapping of a process that may still run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped<'a> {
    pub(super) pid: u32,
    pub(super) range: (u64, u64),
    pub(super) file: (u32, u32, u64),
    pub(super) path: &'a [u8],
}

/// Opens the file of a mapping, and only that one: a file that was put in its place has other symbols. A file
/// that `reader` may execute and not read is not opened.
pub(super) fn open_mapped(
    proc: &Path,
    mapped: Mapped<'_>,
    reader: Option<&Reader>,
) -> Option<(File, FileId)> {
    let process = proc.join(mapped.pid.to_string());
    let (start, end) = mapped.range;
    // The link leads to the mapped file, also if it was deleted, and needs a privilege.
    let link = process.join(format!("map_files/{start:x}-{end:x}"));
    let by_link = rustix::fs::open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    by_link
        .and_then(|located| mapped_file(&located, mapped, reader))
        .or_else(|| mapped_file(&open_below(&process.join("root"), mapped.path)?, mapped, reader))
        // A process that has ended: with the same root as the agent, its file is found.
        .or_else(|| mapped_file(&open_below(Path::new("/"), mapped.path)?, mapped, reader))
}

fn mapped_file(located: &OwnedFd, mapped: Mapped<'_>, reader: Option<&Reader>) -> Option<(File, FileId)> {
    let state = rustix::fs::fstat(located).ok()?;
    // Without privileges the agent opens what its own user may read.
    let is_readable = !rustix::process::geteuid().is_root()
        || may_read(reader, (state.st_uid, state.st_gid, state.st_mode));
    regular(located).filter(|(_, id)| is_readable && id.is_of(mapped.file))
}

/// Locates a path below a root, which no link leads out of.
fn open_below(root: &Path, path: &[u8]) -> Option<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, root, directory, Mode::empty()).ok()?;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within).ok()
}

/// Opens what was located, if it is a regular file: the mere opening of a device may have an effect.
fn regular(located: &OwnedFd) -> Option<(File, FileId)> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(located).ok()?.st_mode);
    if kind != FileType::RegularFile {
        return None;
    }
    // Without waiting for a user who holds a lease of it: fcntl(2), F_SETLEASE.
    let file = kernel_text::open(Path::new(&format!("/proc/self/fd/{}", located.as_raw_fd()))).ok()?;
    let id = FileId::of(&file)?;
    Some((file, id))
}

#[derive(Debug)]
pub(super) struct PerfMap {
    file: File,
    pub(super) id: FileId,
}

impl PerfMap {
    /// Opens `/tmp/perf-PID.map` in the process's root, if it belongs to the user who started the process: the
    /// directory in `/proc` of a process that denies its memory to others is root's.
    pub(super) fn open(proc: &Path, pid: u32) -> Option<Self> {
        let process = proc.join(pid.to_string());
        let status = kernel_text::text(&process.join("status")).ok()?;
        // The number by which the process knows itself is that of the innermost namespace.
        let own_pid = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last());
        let owner = Reader::parse(&status)?.uid;
        let own_pid: u32 = own_pid.and_then(|own_pid| own_pid.parse().ok()).unwrap_or(pid);
        let path = format!("/tmp/perf-{own_pid}.map");
        let (file, id) = regular(&open_below(&process.join("root"), path.as_bytes())?)?;
        (file.metadata().ok()?.uid() == owner).then_some(Self { file, id })
    }

    /// Its text, up to the bound.
    pub(super) fn into_text(self) -> impl BufRead {
        BufReader::new(self.file.take(PERF_MAP_BYTES))
    }
}

/// CPU time of this thread after which no further table is searched during one read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    until_ns: u64,
}

impl Budget {
    pub(super) fn of(ns: u64) -> Self {
        Self { until_ns: clock::thread_cpu_ns().saturating_add(ns) }
    }

    pub(super) fn is_spent(self) -> bool {
        clock::thread_cpu_ns() >= self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_that_the_user_of_the_process_may_read() {
        let status = "Name:\ta\nUid:\t1000\t0\t0\t0\nGid:\t100\t0\t0\t0\nNSpid:\t7\t1\nGroups:\t27 44 \n";
        let reader = Reader::parse(status).unwrap();
        assert_eq!(
            reader,
            Reader { uid: 1000, groups: vec![100, 27, 44] },
            "the real user, not the effective one"
        );
        let may = |uid, gid, mode| may_read(Some(&reader), (uid, gid, mode));
        assert!(may(0, 0, 0o104_755) && may(1000, 0, 0o100_100) && may(0, 44, 0o100_750));
        assert!(!may(0, 0, 0o104_711) && !may(0, 44, 0o100_711) && !may(0, 45, 0o100_750));
        let root = Reader::parse("Uid:\t0\t0\t0\t0\nGid:\t0\n").unwrap();
        assert!(may_read(Some(&root), (1, 1, 0o100_000)));
        assert!(may_read(None, (0, 0, 0o100_755)) && !may_read(None, (0, 0, 0o100_750)));
        assert_eq!(Reader::parse("Name:\tUid\n"), None);
    }
}
