//! `--check`: tests whether this user could run the agent with its configuration.

use std::path::Path;

use polymeter_service::check::{directory_fault, listed_directory_fault};
use polymeter_service::log::chain;

use crate::config::AgentConfig;
use crate::keys::AgentKeyFiles;
use crate::openmetrics::read_secrets;

/// Faults that would keep this user from running the agent: unusable keys and directories. Directories that
/// do not exist are not checked: systemd creates a service's directories when it starts.
pub fn faults(config: &AgentConfig) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(Err(error)) = config.keys.as_ref().map(AgentKeyFiles::read) {
        faults.push(format!("cannot use the keys: {}", chain(&error)));
    }
    if config.openmetrics.listen.is_some()
        && let Err(error) = read_secrets(&config.openmetrics)
    {
        faults.push(format!("cannot serve the page of metrics, set in [openmetrics]: {}", chain(&error)));
    }
    faults.extend(config.spool.as_deref().and_then(|spool| listed_directory_fault("spool", spool)));
    let socket_directory = config.control_socket.as_deref().and_then(Path::parent);
    faults.extend(socket_directory.and_then(|directory| directory_fault("control_socket", directory)));
    faults
}
