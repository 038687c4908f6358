//! `--check`: whether this user could run the collector with its configuration.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use rustix::fs::{Access, access};

use crate::config::Config;
use crate::keys::KeyFiles;
use crate::log;
use polymeter_store::reader::Reader;
use polymeter_store::{FileProblem, StoreError, StoreUrl};

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

/// What would be wrong if this process were the collector: of keys and authorised agents, and, where it is to be found out
/// for a user, of directories and the store.
pub fn faults(config: &Config, as_user: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(keys) = &config.keys {
        faults.extend(keys.read().err().map(|error| format!("cannot use the keys: {error}")));
        faults.extend(unreadable(keys));
    }
    if as_user {
        let control = &config.control;
        let parents =
            [("control_socket", &control.socket), ("pending_requests_file", &control.pending_requests_file)];
        for (key, path) in parents {
            faults.extend(path.as_deref().and_then(|path| not_writable(key, path.parent()?)));
        }
        faults.extend(unusable(&config.store));
    }
    faults
}

/// What of the authorised agents' keys this user cannot read.
fn unreadable(keys: &KeyFiles) -> Option<String> {
    let directory = &keys.authorised_agents;
    let cannot_read = |path: &Path, error: &dyn std::fmt::Display, mode: &str| {
        format!("cannot read {}: {error}; type: chmod {mode} {}", path.display(), path.display())
    };
    let files = match fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) => return Some(cannot_read(directory, &error, "go+rx")),
    };
    let paths = files.flatten().map(|file| file.path());
    let is_key = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pub");
    paths
        .filter(is_key)
        .find_map(|path| access(&path, Access::READ_OK).err().map(|error| cannot_read(&path, &error, "go+r")))
}

/// A directory that is not there is not looked at: systemd makes a service's when it starts.
fn not_writable(key: &str, directory: &Path) -> Option<String> {
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    if !directory.exists() {
        return None;
    }
    let error = access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let (directory, uid) = (directory.display(), geteuid());
    Some(format!("cannot write into {directory}, for `{key}`: {error}; type: chown {uid} {directory}"))
}

/// What keeps this user from writing to the store.
fn unusable(store: &StoreUrl) -> Option<String> {
    match store.file() {
        Some(path) => {
            let fault = path.parent().and_then(|directory| not_writable("store", directory));
            if fault.is_some() || !path.exists() {
                return fault;
            }
            if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK) {
                let path = path.display();
                return Some(format!(
                    "cannot write to the store {path}: {error}; type: chown {} {path}*",
                    geteuid()
                ));
            }
            match Reader::open(store) {
                // The collector brings an old one up to date, and makes one of an empty file.
                Ok(_)
                | Err(
                    StoreError::OlderSchema { .. } | StoreError::File { problem: FileProblem::Empty, .. },
                ) => None,
                Err(error) => Some(log::chain(&error).to_string()),
            }
        }
        None => {
            let error = store.probe().err()?;
            Some(format!("cannot use the store {store}: {}", log::chain(&error)))
        }
    }
}
