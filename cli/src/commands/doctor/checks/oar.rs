//! OAR calls Polymeter's scripts.

use std::fs;
use std::path::{Path, PathBuf};

use super::script::Script;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

const CONF: &str = "/etc/oar/oar.conf";

const PACKAGED: &str = "/usr/libexec/polymeter/oar";

const PROLOGUE: &str = "PROLOGUE_EXEC_FILE";

/// Setting, packaged file, and true if it belongs to nodes.
const HOOKS: [(&str, &str, bool); 4] = [
    (PROLOGUE, "prologue", true),
    ("EPILOGUE_EXEC_FILE", "epilogue", true),
    ("SERVER_PROLOGUE_EXEC_FILE", "server_prologue", false),
    ("SERVER_EPILOGUE_EXEC_FILE", "server_epilogue", false),
];

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    let path = Path::new(CONF);
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(_) if !path.exists() => {
            if role == Role::Node {
                findings.not_checked(format!("there is no {CONF}"));
            }
            return;
        }
        Err(error) => return findings.not_checked(format!("{CONF}: {error}")),
    };
    for (setting, packaged, is_of_node) in HOOKS {
        let is_examined = if is_of_node { role == Role::Node } else { machine.roles.first() == Some(&role) };
        if is_examined {
            called(&text, setting, packaged, is_of_node, findings);
        }
    }
    if !findings.has_any() && role == Role::Node {
        findings.ok(format!("{CONF} calls the scripts"));
    }
}

pub(super) fn starts_agent() -> bool {
    let script = fs::read_to_string(CONF).ok().and_then(|text| value(&text, PROLOGUE));
    script.is_some_and(|path| Script::read(&path) == Script::Calls { starts_agent: true })
}

fn called(text: &str, setting: &str, packaged: &str, is_of_node: bool, findings: &mut Findings) {
    let remedy = format!("set {setting}=\"{PACKAGED}/{packaged}\" in {CONF}");
    let Some(path) = value(text, setting) else {
        // The server's settings are in the same file of another machine.
        if is_of_node {
            findings.warning(format!("{CONF} has no {setting}: jobs are found, but not announced"), remedy);
        }
        return;
    };
    let shown = path.display();
    match Script::read(&path) {
        Script::Calls { .. } => {}
        Script::NotExecutable => {
            findings.problem(
                format!("OAR cannot run {shown}: it is not executable"),
                format!("chmod 755 {shown}"),
            );
        }
        Script::Unreadable(reason) => findings.problem(format!("{setting}: {reason}"), remedy),
        Script::Other if is_of_node => {
            findings.warning(
                format!("{shown} does not call polymeter: jobs are found, but not announced"),
                remedy,
            );
        }
        Script::Other => {}
    }
}

/// Reads `SETTING="PATH"`; the last one counts.
fn value(text: &str, setting: &str) -> Option<PathBuf> {
    let mut settings = text.lines().rev().filter_map(|line| line.trim().split_once('='));
    let (_, value) = settings.find(|(key, _)| key.trim() == setting)?;
    let value = value.trim().trim_matches('"');
    (!value.is_empty()).then(|| PathBuf::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shell_assignments() {
        let text = "# PROLOGUE_EXEC_FILE=\"/a\"\nPROLOGUE_EXEC_FILE=\"/etc/oar/polymeter/prologue\"\nEPILOGUE_EXEC_FILE=\"\"\n";
        assert_eq!(value(text, PROLOGUE), Some("/etc/oar/polymeter/prologue".into()));
        assert_eq!(value(text, "EPILOGUE_EXEC_FILE"), None);
    }
}
