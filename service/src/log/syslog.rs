//! The system's log, for programs whose stderr is closed.

use std::os::unix::net::UnixDatagram;

use super::Severity;

/// The socket of the syslog daemon.
const SOCKET: &str = "/dev/log";

/// The facility of daemons in a message's priority, RFC 3164.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Sends `message` to the system's log, one entry per line. Without a syslog daemon, or while it is busy, the message is
/// lost: a program does not wait for its log.
pub fn send(program: &str, severity: Severity, message: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    let header = format!("<{}>{program}[{}]: ", FACILITY_DAEMON | severity as u8, std::process::id());
    for line in message.lines() {
        // Addressed each time: the daemon may have been restarted since the last message.
        socket.send_to(format!("{header}{line}").as_bytes(), SOCKET).ok();
    }
}
