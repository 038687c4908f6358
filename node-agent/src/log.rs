//! One line per event on stderr, with the priorities that systemd understands when it reads them.

use std::io::Write;

/// Something that an administrator should know, and that does no harm.
pub fn info(message: &str) {
    print("info", 6, message);
}

/// Something that is not as it should be; the agent goes on.
pub fn warning(message: &str) {
    print("warning", 4, message);
}

/// Something that keeps the agent from doing what it is for.
pub fn error(message: &str) {
    print("error", 3, message);
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

fn print(level: &str, priority: u8, message: &str) {
    let mut stderr = std::io::stderr().lock();
    let line = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => format!("<{priority}>{message}\n"),
        None => format!("polymeter-agent: {level}: {message}\n"),
    };
    // Where stderr is closed there is nobody to tell.
    stderr.write_all(line.as_bytes()).ok();
}
