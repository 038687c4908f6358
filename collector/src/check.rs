//! `--check`: tests if this user could run the collector with its configuration.

use std::fs;
use std::path::Path;

use nix::unistd::geteuid;
use polymeter_analysis::advice::Advice;
use polymeter_service::bearer_token::BearerToken;
use polymeter_service::check::directory_fault;
use polymeter_service::log::chain;
use polymeter_store::reader::Reader;
use polymeter_store::{FileProblem, StoreError, StoreUrl};
use rustix::fs::{Access, access};

use crate::config::CollectorConfig;
use crate::job_end::command_fault;
use crate::keys::CollectorKeyFiles;
use crate::notices;
use crate::roles::file_faults;

/// Messages about everything that prevents this user from running the collector: unusable keys; if `as_user`,
/// directories and a store that cannot be written; if `connects`, a store that cannot be used.
pub fn faults(config: &CollectorConfig, as_user: bool, connects: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(keys) = &config.keys {
        faults.extend(keys.read().err().map(|error| format!("cannot use the keys: {}", chain(&error))));
        faults.extend(unreadable_key(keys));
    }
    if let Some(job_end) = &config.job_end {
        // Without --user root checks for another user, who may own the command.
        let service_uid = (as_user || !geteuid().is_root()).then(|| geteuid().as_raw());
        faults.extend(
            command_fault(&job_end.program, service_uid).map(|fault| format!("[job_end] `command`: {fault}")),
        );
        let (_, of_rules) = Advice::load(&job_end.advice);
        faults.extend(of_rules.0.iter().map(|fault| format!("[job_end] `advice`: {fault}")));
    }
    let token_file = config.federation.as_ref().and_then(|page| page.token_file.as_deref());
    let token = token_file.map(BearerToken::read).and_then(Result::err);
    faults.extend(token.map(|error| format!("cannot use `token_file` in [federation]: {}", chain(&error))));
    faults.extend(config.roles.managers_file.iter().flat_map(|path| file_faults(path)));
    if let Some(config) = &config.notices {
        let service_uid = (as_user || !geteuid().is_root()).then(|| geteuid().as_raw());
        let programs = config.programs();
        faults.extend(
            programs
                .iter()
                .filter_map(|program| command_fault(program, service_uid))
                .map(|fault| format!("[notices]: {fault}")),
        );
        faults.extend(notices::faults(config).iter().map(|fault| format!("[notices]: {fault}")));
    }
    if as_user {
        let directory = config.control.socket.as_deref().and_then(Path::parent);
        faults.extend(directory.and_then(|directory| directory_fault("control_socket", directory)));
    }
    if as_user || connects {
        faults.extend(store_fault(&config.store, connects));
    }
    faults
}

fn cannot_read(path: &Path, error: &dyn std::fmt::Display, mode: &str) -> String {
    format!("cannot read {}: {error}; type: chmod {mode} {}", path.display(), path.display())
}

/// First authorised key that this user cannot read, as a message.
fn unreadable_key(keys: &CollectorKeyFiles) -> Option<String> {
    let directory = &keys.authorised_agents;
    let files = match fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) => return Some(cannot_read(directory, &error, "go+rx")),
    };
    let paths = files.flatten().map(|file| file.path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "pub"))
        .find_map(|path| access(&path, Access::READ_OK).err().map(|error| cannot_read(&path, &error, "go+r")))
}

/// Message if this user cannot write to the store. Unless `connects`, its directory may be missing: a service
/// manager may create it later.
fn store_fault(store: &StoreUrl, connects: bool) -> Option<String> {
    let Some(path) = store.file() else {
        let error = store.probe().err().or_else(|| schema_fault(store))?;
        return Some(format!("cannot use the store {store}: {}", chain(&error)));
    };
    let directory = path.parent().filter(|directory| *directory != Path::new(""));
    if let Some(directory) = directory.filter(|directory| connects && !directory.is_dir()) {
        return Some(format!(
            "cannot create the store {}: {} is no directory; type: mkdir -p {1}",
            path.display(),
            directory.display()
        ));
    }
    let fault = path.parent().and_then(|directory| directory_fault("store", directory));
    if fault.is_some() || !path.exists() {
        return fault;
    }
    if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK) {
        let (path, uid) = (path.display(), geteuid());
        return Some(format!("cannot write to the store {path}: {error}; type: chown {uid} {path}*"));
    }
    schema_fault(store).map(|error| chain(&error))
}

fn schema_fault(store: &StoreUrl) -> Option<StoreError> {
    match Reader::open(store) {
        // The collector migrates an older store, and initializes an empty one.
        Ok(_)
        | Err(
            StoreError::OlderSchema { .. }
            | StoreError::WithoutTables
            | StoreError::File { problem: FileProblem::Empty, .. },
        ) => None,
        Err(error) => Some(error),
    }
}
