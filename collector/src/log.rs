//! One line per event on standard error, in a form that systemd's journal sorts by priority.

use std::fmt;
use std::sync::LazyLock;

/// Data are lost or cannot be kept.
pub fn error(message: impl fmt::Display) {
    line("<3>", "error: ", &message);
}

/// Something that somebody should look after.
pub fn warning(message: impl fmt::Display) {
    line("<4>", "warning: ", &message);
}

/// Something that somebody may want to know.
pub fn info(message: impl fmt::Display) {
    line("<6>", "", &message);
}

/// An error with all its causes, on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> impl fmt::Display {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Text that came from elsewhere, fit for one line of a log.
pub fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[expect(clippy::print_stderr, reason = "this is the one place that writes the log")]
fn line(journal: &str, plain: &str, message: &dyn fmt::Display) {
    // systemd sets it where standard error goes to the journal, which reads the priority from the line's beginning.
    static JOURNAL: LazyLock<bool> = LazyLock::new(|| std::env::var_os("JOURNAL_STREAM").is_some());
    let prefix = if *JOURNAL { journal } else { plain };
    eprintln!("{prefix}{}", message.to_string().replace('\n', " "));
}
