//! `--check`: tests whether this user could run the agent with its configuration.

use std::path::Path;

use polymeter_service::check::directory_fault;
use polymeter_service::log::chain;

use crate::config::AgentConfig;
use crate::keys::AgentKeyFiles;

/// Returns the faults that would keep this user from running the agent: unusable keys and directories. Directories that
/// do not exist are not checked: systemd creates a service's directories when it starts.
pub fn faults(config: &AgentConfig) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(Err(error)) = config.keys.as_ref().map(AgentKeyFiles::read) {
        faults.push(format!("cannot use the keys: {}", chain(&error)));
    }
    let directories = [
        ("spool", config.spool.as_deref()),
        ("control_socket", config.control_socket.as_deref().and_then(Path::parent)),
    ];
    faults.extend(directories.into_iter().filter_map(|(key, directory)| directory_fault(key, directory?)));
    faults
}
