//! One line per event on stderr, with the priorities that systemd understands when it reads them; or, where nobody reads
//! stderr, to the system's log.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Where syslog listens, whichever program that is.
const SYSLOG: &str = "/dev/log";

/// The facility of daemons, as it stands in a message to syslog: 3 << 3, RFC 3164.
const DAEMON: u8 = 3 << 3;

/// Whether messages go to syslog, because stderr leads nowhere.
static TO_SYSLOG: AtomicBool = AtomicBool::new(false);

/// How grave a message is, as syslog counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// It keeps the program from doing what it is for.
    Error = 3,
    /// It is not as it should be; the program goes on.
    Warning = 4,
    /// An administrator should know it, and it does no harm.
    Info = 6,
}

/// Something that an administrator should know, and that does no harm.
pub fn info(message: &str) {
    print("info", Priority::Info, message);
}

/// Something that is not as it should be; the agent goes on.
pub fn warning(message: &str) {
    print("warning", Priority::Warning, message);
}

/// Something that keeps the agent from doing what it is for.
pub fn error(message: &str) {
    print("error", Priority::Error, message);
}

/// An error with everything that caused it, outermost first.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// From now on messages go to syslog and not to stderr.
pub fn use_syslog() {
    TO_SYSLOG.store(true, Relaxed);
}

/// Puts a message into the system's log. Where there is none, or it takes nothing now, the message is lost: nobody waits
/// for a log.
pub fn syslog(program: &str, priority: Priority, message: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    let header = format!("<{}>{program}[{}]: ", DAEMON | priority as u8, std::process::id());
    for line in message.lines() {
        // A socket for each message: the log may have been started anew since the last.
        socket.send_to(format!("{header}{line}").as_bytes(), SYSLOG).ok();
    }
}

fn print(level: &str, priority: Priority, message: &str) {
    if TO_SYSLOG.load(Relaxed) {
        return syslog("polymeter-agent", priority, message);
    }
    let mut stderr = std::io::stderr().lock();
    let line = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => format!("<{}>{message}\n", priority as u8),
        None => format!("polymeter-agent: {level}: {message}\n"),
    };
    // Where stderr is closed there is nobody to tell.
    stderr.write_all(line.as_bytes()).ok();
}
