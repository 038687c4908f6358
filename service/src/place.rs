//! Files in the directories of a service: made with the owner of the directory that they are made in. An
//! agent that root starts for a job so leaves spools and locks that the service, which has a user of its own,
//! can use.
//!
//! That user may put anything in the place of a file, so no link of another user is followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Samples reveal the activities of users.
const FILE_MODE: u32 = 0o600;

/// Opens no link, and does not wait for a FIFO's reader.
pub(crate) const FLAGS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Makes a directory, with those above it that are missing.
pub fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut existing = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    while !existing.is_dir() {
        let (Some(name), Some(parent)) = (existing.file_name(), existing.parent()) else { break };
        missing.push(name);
        existing = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    }
    let mut place = File::open(existing)?;
    while let Some(name) = missing.pop() {
        let made = mkdirat(&place, name, Mode::from_raw_mode(mode));
        if let Err(errno) = made
            && errno != Errno::EXIST
        {
            return Err(errno.into());
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(openat(&place, name, flags, Mode::empty())?);
        if made.is_ok() {
            give_to_owner_of(&place, &directory)?;
        }
        place = directory;
    }
    Ok(())
}

/// Opens a private file to write, or creates it. Refuses a link.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).custom_flags(FLAGS).open(path)
        }
        created => created,
    }
}

/// Replaces a file that may exist by an empty private one. Follows a link that this user or root has made.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_symlink() && (found.uid() == 0 || found.uid() == geteuid().as_raw()))
    {
        return OpenOptions::new().create(true).truncate(true).write(true).mode(FILE_MODE).open(path);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => create(path),
    }
}

fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    give_to_owner_of(&File::open(directory.unwrap_or(Path::new(".")))?, &file)?;
    Ok(file)
}

/// Gives what root has made to the owner of the directory that contains it.
fn give_to_owner_of(directory: &File, made: &File) -> io::Result<()> {
    let owner = directory.metadata()?;
    if geteuid().is_root() && owner.uid() != 0 {
        fchown(made, Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid())))?;
    }
    Ok(())
}
