//! Problems of the scheduler's scripts, reported on stderr and to syslog.

use polymeter_service::log::{Severity, syslog};

use crate::output::terminal;

/// Reports on stderr and to syslog, where administrators look for it.
pub(super) fn report(severity: Severity, message: &str) {
    terminal::print_error(&format!("polymeter: {message}\n"));
    syslog::send("polymeter", severity, message);
}
