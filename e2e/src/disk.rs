//! A disk of its own, and a small one, for one program.

use std::path::Path;
use std::process::Command;

/// What runs `command` where `directory`, which must be there, is a disk of `size` that nobody else sees. It becomes that
/// program, with its pid; the disk goes with it.
pub fn with_own(directory: &Path, size: &str, command: &Command) -> Command {
    let script = "mount -t tmpfs -o \"size=$1\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
    let mut within = Command::new("unshare");
    within.args(["--mount", "sh", "-c", script, "sh", size]).arg(directory);
    crate::basics::wrap(within, command)
}

/// Why no program can have a disk of its own.
pub fn cannot_have() -> Option<String> {
    match Command::new("unshare").args(["--mount", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
