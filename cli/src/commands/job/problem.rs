//! Problems of the scheduler's scripts, reported on stderr and to syslog.

use polymeter_agent::log::{Priority, syslog};

use crate::output::terminal;

/// Reports a problem on stderr and to syslog, where administrators look for it.
pub(super) fn report(priority: Priority, message: &str) {
    terminal::print_error(&format!("polymeter: {message}\n"));
    syslog("polymeter", priority, message);
}
