//! `--check`: whether this user could run the agent with its configuration.

use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use rustix::fs::{Access, access};

use crate::config::Config;
use crate::keys::KeyFiles;

/// Becomes the user `name`, with the groups that it has, for good.
///
/// # Errors
/// When there is no such user, or this process may not become it.
pub fn become_user(name: &str) -> Result<(), String> {
    let user = User::from_name(name).map_err(|error| format!("cannot look up the user `{name}`: {error}"))?;
    let user = user.ok_or_else(|| format!("cannot check as `{name}`: this system has no such user"))?;
    if user.uid == geteuid() && !geteuid().is_root() {
        return Ok(());
    }
    let become_it = || {
        let c_name = CString::new(name).map_err(|_nul| Errno::EINVAL)?;
        initgroups(&c_name, user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    become_it().map_err(|error| format!("cannot check as `{name}`: {error}; try it as root"))
}

/// What would be wrong if this process were the agent: of keys and directories. Those that are not there are not looked at:
/// systemd makes a service's when it starts.
pub fn faults(config: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(Err(error)) = config.keys.as_ref().map(KeyFiles::read) {
        faults.push(format!("cannot use the keys: {error}"));
    }
    let directories = [
        ("spool", config.spool.as_deref(), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK),
        ("socket", config.socket.as_deref().and_then(Path::parent), Access::WRITE_OK | Access::EXEC_OK),
    ];
    for (key, directory, rights) in directories {
        let Some(directory) = directory.filter(|directory| directory.exists()) else { continue };
        if let Err(error) = access(directory, rights) {
            let (directory, uid) = (directory.display(), geteuid());
            faults.push(format!(
                "cannot write into {directory}, for `{key}`: {error}; type: chown {uid} {directory}"
            ));
        }
    }
    faults
}
