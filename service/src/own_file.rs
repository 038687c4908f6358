//! Files that a command writes at a path in a directory where other users may put anything.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Truncates or creates the file at `path`. Fails if another user made it, or a link in its place.
pub fn create(path: &Path) -> io::Result<File> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let found = fs::symlink_metadata(path)?;
    check_owner(&found)?;
    let flags = if found.is_symlink() { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        check_owner(&metadata)?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// Refuses a file or link at `path` that belongs to another user than this one and root. It need not exist.
pub fn check(path: &Path) -> io::Result<()> {
    for metadata in [fs::symlink_metadata(path), fs::metadata(path)].into_iter().flatten() {
        check_owner(&metadata)?;
    }
    Ok(())
}

fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let owner = metadata.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    let what = if metadata.is_symlink() { "link" } else { "file" };
    let message =
        format!("there is a {what} of uid {owner}, who may see or change what is written; name another file");
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    const OTHER: Option<u32> = Some(64_001);

    #[test]
    fn own_files_and_links_are_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        create(&path).unwrap().write_all(b"a long text").unwrap();
        create(&path).unwrap().write_all(b"short").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
        symlink("made", &link).unwrap();
        create(&link).unwrap().write_all(b"through an own link").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("made")).unwrap(), "through an own link");
        assert!(create(Path::new("/dev/null")).is_ok());
        assert!(check(&path).is_ok() && check(&directory.path().join("absent")).is_ok());
    }

    #[test]
    fn files_and_links_of_others_are_refused_and_left_alone() {
        if !geteuid().is_root() {
            // Only root can make files of others. Files of root itself are trusted.
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "theirs").unwrap();
        chown(at("file"), OTHER, OTHER).unwrap();
        fs::write(at("own"), "precious").unwrap();
        symlink(at("own"), at("link")).unwrap();
        symlink(at("absent"), at("dangling")).unwrap();
        lchown(at("link"), OTHER, OTHER).unwrap();
        lchown(at("dangling"), OTHER, OTHER).unwrap();
        symlink(at("file"), at("own link")).unwrap();
        for name in ["file", "link", "dangling", "own link"] {
            let error = create(&at(name)).unwrap_err().to_string();
            assert!(error.contains("of uid 64001") && error.contains("name another file"), "{error}");
            assert_eq!(check(&at(name)).unwrap_err().to_string(), error);
        }
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(at("own")).unwrap(), "precious");
        assert!(!at("absent").exists());
    }
}
