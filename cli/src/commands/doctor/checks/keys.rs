//! The key files: the daemons' users can read them, and other users can neither read the secret ones nor
//! change any.

use std::fs;
use std::path::{Path, PathBuf};

use polymeter_agent::keys::{AgentKeyFiles, CollectorKey};
use polymeter_collector::keys::CollectorKeyFiles;
use polymeter_proto::endpoint;
use polymeter_proto::key::KeyFileError;
use polymeter_service::key_files::{check_directory, read_key_pair, read_public_key};
use polymeter_service::log::chain;
use polymeter_service::users;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{Machine, Unexamined, user_name};
use crate::commands::doctor::role::Role;

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyFile {
    /// Only the daemon's user may read it.
    Secret(PathBuf),
    /// Others may read it, but not change it.
    Public(PathBuf),
    Directory(PathBuf),
}

impl KeyFile {
    fn path(&self) -> &Path {
        match self {
            Self::Secret(path) | Self::Public(path) | Self::Directory(path) => path,
        }
    }

    /// Uses the rights of the calling thread.
    fn read(&self) -> Result<(), KeyFileError> {
        match self {
            Self::Secret(path) => read_key_pair(path).map(drop),
            Self::Public(path) => read_public_key(path).map(drop),
            Self::Directory(path) => {
                check_directory(path)?;
                fs::read_dir(path).map(drop).map_err(|error| KeyFileError::Read(path.clone(), error))
            }
        }
    }

    fn correct(&self, user: &str) -> String {
        let path = self.path().display();
        match self {
            Self::Secret(_) => format!("chown {user}: {path} && chmod 600 {path}"),
            Self::Public(_) => format!("chown root: {path} && chmod 644 {path}"),
            Self::Directory(_) => format!("chown root: {path} && chmod 755 {path}"),
        }
    }
}

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    let (uid, files) = if role == Role::Collector {
        let Some(config) = machine.collector.valid() else { return };
        (machine.collector_uid(), config.keys.as_ref().map(of_collector))
    } else {
        let Some(config) = machine.agent.valid() else { return };
        let is_local = config.collectors.iter().all(|collector| endpoint::is_local(collector));
        if config.keys.is_none() && !is_local {
            findings.warning(
                "the connection to the collector has no keys: it is not encrypted, and the agent is not authenticated",
                "polymeter setup node --keys",
            );
            return;
        }
        (machine.agent_uid(), config.keys.as_ref().map(of_agent))
    };
    let Some(files) = files else {
        findings.ok("none are configured: only this machine can connect without");
        return;
    };
    match uid {
        Ok(uid) => examine(uid, &files, findings),
        Err(error) => findings.problem(format!("cannot examine the keys: {error}"), "systemd-sysusers"),
    }
}

fn of_agent(keys: &AgentKeyFiles) -> Vec<KeyFile> {
    let public = keys.collectors.iter().filter_map(|key| match key {
        CollectorKey::File(path) => Some(KeyFile::Public(path.clone())),
        CollectorKey::Key(_) => None,
    });
    std::iter::once(KeyFile::Secret(keys.key.clone())).chain(public).collect()
}

fn of_collector(keys: &CollectorKeyFiles) -> Vec<KeyFile> {
    let directory = &keys.authorised_agents;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut agents: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "pub")).collect();
    agents.sort();
    let own = [KeyFile::Secret(keys.key.clone()), KeyFile::Directory(directory.clone())];
    own.into_iter().chain(agents.into_iter().map(KeyFile::Public)).collect()
}

/// Uses the rights of a daemon's user.
fn examine(uid: u32, files: &[KeyFile], findings: &mut Findings) {
    let user = user_name(uid);
    let Ok(results) = users::act_as(uid, || files.iter().map(KeyFile::read).collect::<Vec<_>>()) else {
        let reason = Unexamined::NeedsRoot { action: "read the key files", uid };
        findings.not_checked(format!("{reason}; run this as root"));
        return;
    };
    for (file, result) in files.iter().zip(results) {
        if let Err(error) = result {
            let (text, remedy) = explained(file, &error, &user);
            findings.problem(text, remedy);
        }
    }
    if !findings.has_any() {
        findings.ok(format!(
            "the user {user} can use all {} key files, and other users cannot read the secret ones",
            files.len()
        ));
    }
}

fn explained(file: &KeyFile, error: &KeyFileError, user: &str) -> (String, String) {
    let path = file.path().display();
    match error {
        KeyFileError::Read(_, error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = match file {
                KeyFile::Secret(_) => {
                    "polymeter setup node --keys, or polymeter setup collector --keys".to_owned()
                }
                KeyFile::Public(_) => format!("copy it from the collector's machine to {path}"),
                KeyFile::Directory(_) => format!("install -d -m 755 {path}"),
            };
            (format!("{path} does not exist"), remedy)
        }
        KeyFileError::Read(_, error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            (format!("the user {user} cannot read {path}"), file.correct(user))
        }
        KeyFileError::Exposed(_, exposed) => {
            let text = exposed.to_string();
            let cause = text.split_once("; type: ").map_or(text.as_str(), |(cause, _)| cause);
            (format!("{path}: {cause}"), file.correct(user))
        }
        KeyFileError::Read(..) | KeyFileError::Content(..) => {
            (chain(error), format!("replace {path} by the file that polymeter keygen made"))
        }
    }
}
