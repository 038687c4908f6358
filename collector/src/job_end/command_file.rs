//! Checks the command's file: who can change it can run commands as the collector.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

const ROOT: u32 = 0;

/// Group and all users.
const WRITABLE: u32 = 0o022;

/// Users can only remove their own files in such a directory.
const STICKY: u32 = 0o1000;

/// Why `program` must not or cannot run. Only root and the user `service_uid` may be able to change it;
/// without a user, the owners are not checked.
pub fn fault(program: &Path, service_uid: Option<u32>) -> Option<String> {
    let shown = program.display();
    let canonical = match fs::canonicalize(program) {
        Ok(canonical) => canonical,
        Err(error) => return Some(format!("cannot run {shown}: {error}")),
    };
    if !canonical.is_file() {
        return Some(format!("cannot run {shown}: it is no file"));
    }
    // A link may lie in a directory that others can write.
    let of_path = |path: &Path| path.ancestors().map(Path::to_owned).collect::<Vec<PathBuf>>();
    let all = [of_path(program), of_path(&canonical)].concat();
    if let Some(fault) = all.iter().find_map(|path| writable(path, service_uid)) {
        return Some(format!("cannot run {shown}: {fault}"));
    }
    let error = access(&canonical, Access::EXEC_OK).err()?;
    Some(format!("cannot run {shown}: {error}; type: chmod a+rx {shown}"))
}

fn writable(path: &Path, service_uid: Option<u32>) -> Option<String> {
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return Some(format!("cannot examine {shown}: {error}")),
    };
    let (uid, mode) = (found.uid(), found.mode());
    if service_uid.is_some_and(|service_uid| uid != ROOT && uid != service_uid) {
        return Some(format!("user {uid} owns {shown}; type: chown root {shown}"));
    }
    let is_protected = found.is_dir() && mode & STICKY != 0;
    (mode & WRITABLE != 0 && !is_protected)
        .then(|| format!("other users can write to {shown}; type: chmod go-w {shown}"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn refuses_a_file_that_others_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let uid = fs::metadata(directory.path()).unwrap().uid();
        let inner = directory.path().join("inner");
        let program = inner.join("command");
        fs::create_dir(&inner).unwrap();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let check = |part: &str| {
            let fault = fault(&program, Some(uid));
            let is_found =
                fault.as_deref().map_or(part.is_empty(), |fault| !part.is_empty() && fault.contains(part));
            assert!(is_found, "{part}: {fault:?}");
        };
        mode(&inner, 0o755);
        mode(&program, 0o755);
        check("");
        for writable in [0o775, 0o757, 0o777] {
            mode(&program, writable);
            check("command; type: chmod go-w ");
        }
        mode(&program, 0o755);
        mode(&inner, 0o777);
        check("inner; type: chmod go-w ");
        mode(&inner, 0o1777);
        check("");
        mode(&program, 0o644);
        check("chmod a+rx");
        mode(&program, 0o755);
        // A link in a safe directory to a file that others can write.
        let link = directory.path().join("link");
        symlink(&program, &link).unwrap();
        assert_eq!(fault(&link, Some(uid)), None);
        mode(&inner, 0o757);
        assert!(fault(&link, Some(uid)).unwrap().contains("inner; type: chmod go-w "));
    }

    #[test]
    fn refuses_a_file_of_another_user() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("command");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        if chown(&program, Some(64_007), None).is_err() {
            return;
        }
        assert!(fault(&program, Some(0)).unwrap().contains("user 64007 owns"));
        assert_eq!(fault(&program, Some(64_007)), None);
        assert_eq!(fault(&program, None), None);
    }

    #[test]
    fn refuses_what_is_no_program() {
        for (path, part) in [("/no/such/command", "No such file"), ("/etc", "it is no file")] {
            assert!(fault(Path::new(path), Some(0)).unwrap().contains(part), "{path}");
        }
    }
}
