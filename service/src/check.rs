//! `--check --user NAME`: checks a configuration with the rights of the user who will run the program.

use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use rustix::fs::{Access, access};

/// Why a program cannot check as another user.
#[derive(Debug, thiserror::Error)]
pub enum BecomeUserError {
    /// The name service failed.
    #[error("cannot look up the user `{name}`: {errno}")]
    Lookup { name: String, errno: Errno },
    #[error("cannot check as user `{0}`: this system has no such user")]
    Unknown(String),
    /// The process has no permission to become the user.
    #[error("cannot check as user `{name}`: {errno}; run the check as root")]
    Denied { name: String, errno: Errno },
}

/// Becomes the user `name`, with its groups, for the rest of the process's life.
pub fn become_user(name: &str) -> Result<(), BecomeUserError> {
    let user =
        User::from_name(name).map_err(|errno| BecomeUserError::Lookup { name: name.to_owned(), errno })?;
    let user = user.ok_or_else(|| BecomeUserError::Unknown(name.to_owned()))?;
    if user.uid == geteuid() && !geteuid().is_root() {
        return Ok(());
    }
    switch_to(&user, name).map_err(|errno| BecomeUserError::Denied { name: name.to_owned(), errno })
}

fn switch_to(user: &User, name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_nul| Errno::EINVAL)?;
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)
}

/// Returns a fault unless this user can create files in `directory`. A missing directory is no fault: systemd
/// creates a service's directories when it starts.
pub fn directory_fault(key: &str, directory: &Path) -> Option<String> {
    fault(key, directory, Access::WRITE_OK | Access::EXEC_OK)
}

/// Reports the same faults as [`directory_fault`], and a directory that this user cannot list.
pub fn listed_directory_fault(key: &str, directory: &Path) -> Option<String> {
    fault(key, directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
}

fn fault(key: &str, directory: &Path, rights: Access) -> Option<String> {
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    if !directory.exists() {
        return None;
    }
    let error = access(directory, rights).err()?;
    let verb = if rights.contains(Access::READ_OK) { "read and write" } else { "write into" };
    let (directory, uid) = (directory.display(), geteuid());
    Some(format!("cannot {verb} {directory}, for `{key}`: {error}; type: chown {uid} {directory}"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn refuses_unknown_users() {
        let error = become_user("no.such user").unwrap_err().to_string();
        assert_eq!(error, "cannot check as user `no.such user`: this system has no such user");
    }

    /// Runs `check` as a user that owns no files.
    fn as_nobody<T: Send>(check: impl FnOnce() -> T + Send) -> T {
        let nobody = rustix::process::Uid::from_raw(65_534);
        std::thread::scope(|scope| {
            let checked = scope.spawn(|| {
                // Changes this thread only. Without the right to do so, the process does not run as root.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok();
                check()
            });
            checked.join()
        })
        .unwrap()
    }

    #[test]
    fn checks_the_rights_of_directories_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let check = |mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            as_nobody(|| (directory_fault("socket", path), listed_directory_fault("spool", path)))
        };
        assert_eq!(check(0o777), (None, None));
        let (create, list) = check(0o333);
        assert!(create.is_none() && list.is_some_and(|fault| fault.contains("cannot read and write")));
        let (create, list) = check(0o555);
        assert!(create.is_some_and(|fault| fault.contains("for `socket`")) && list.is_some());
        assert_eq!(directory_fault("spool", &path.join("absent")), None);
    }
}
