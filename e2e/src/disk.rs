//! A private, small file system for one program.

use std::path::Path;
use std::process::Command;

/// Wraps `command` so that it sees a tmpfs of `size` mounted at `directory`, which must exist. The wrapper becomes the
/// program and keeps its pid. The file system is visible to this program only, and is removed when it ends.
pub fn with_tmpfs(directory: &Path, size: &str, command: &Command) -> Command {
    let script = "mount -t tmpfs -o \"size=$1\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
    let mut within = Command::new("unshare");
    within.args(["--mount", "sh", "-c", script, "sh", size]).arg(directory);
    crate::basics::wrap(within, command)
}

/// Returns the reason why this machine cannot mount a private file system, or `None` if it can.
pub fn missing() -> Option<String> {
    match Command::new("unshare").args(["--mount", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
