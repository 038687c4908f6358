//! Syslog, for programs with a closed stderr.

use std::os::unix::net::UnixDatagram;

use tracing::Level;

const SOCKET: &str = "/dev/log";

/// Facility of daemons in a message's priority, RFC 3164.
const FACILITY_DAEMON: u8 = 3 << 3;

/// RFC 5424.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Ends the program or a part of it.
    Error = 3,
    /// The program continues.
    Warning = 4,
    Info = 6,
    Debug = 7,
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Info,
            Level::DEBUG | Level::TRACE => Self::Debug,
        }
    }
}

/// Sends one entry per line. Without a syslog daemon, or while it is busy, the message is lost: the program
/// does not wait.
pub fn send(program: &str, severity: Severity, message: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    let header = format!("<{}>{program}[{}]: ", FACILITY_DAEMON | severity as u8, std::process::id());
    for line in message.lines() {
        // The address is resolved for each message, since the daemon may have been restarted.
        socket.send_to(format!("{header}{line}").as_bytes(), SOCKET).ok();
    }
}
