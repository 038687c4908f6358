//! MUNGE credentials, which authenticate the user to a collector on another machine.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Gets a credential that signs `payload`, as one line.
pub fn credential(socket: Option<&Path>, payload: &str) -> io::Result<Vec<u8>> {
    let mut command = Command::new("munge");
    if let Some(socket) = socket {
        command.arg("--socket").arg(socket);
    }
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // Not of the kind of its cause: a missing program is no missing collector.
    let mut child = child.map_err(|error| {
        io::Error::other(format!("cannot run `munge`, which authenticates you: {error}; install munge"))
    })?;
    if let Some(mut input) = child.stdin.take() {
        // If munge has already ended with an error, its status tells.
        input.write_all(payload.as_bytes()).ok();
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "cannot get a munge credential: {}; check that munged runs",
        message.trim()
    )))
}
