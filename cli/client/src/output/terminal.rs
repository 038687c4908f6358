//! Standard output and standard error.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use super::locale::replaced;
use super::printable::{printable_json, printable_lines};
use crate::failure::{ErrorFormat, Failure};

/// Width assumed for a terminal that does not know its own, and for charts in a file.
pub const COLUMNS: usize = 100;

/// Output is not fitted to less.
const COLUMNS_MIN: usize = 20;

/// Terminals that do not know their width report 0.
fn reported_width(columns: u16) -> Option<usize> {
    (columns > 0).then(|| usize::from(columns).max(COLUMNS_MIN))
}

/// Width of a terminal; none for a file or a pipe.
pub fn width_limit(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    stream
        .is_terminal()
        .then(|| tcgetwinsize(stream).ok().and_then(|size| reported_width(size.ws_col)).unwrap_or(COLUMNS))
}

/// True for a terminal that understands colours if NO_COLOR is not set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !is_off && !is_dumb
}

/// A closed pipe, as after `head`, is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(drop)
}

/// Returns whether a reader was still there.
pub fn print_to_reader(text: &str) -> Result<bool, Failure> {
    let shown = replaced(text, io::stdout().is_terminal());
    has_reader(write_all(printable_lines(&shown).as_bytes()))
}

pub fn print_json_to_reader(json: &str) -> Result<bool, Failure> {
    has_reader(write_all(printable_json(json).as_bytes()))
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::because("cannot write the answer as JSON", &error))?;
    print_json_to_reader(&(text + "\n")).map(drop)
}

/// Prints text with colours, whose parts were made printable one by one.
pub fn print_styled(text: &str) -> Result<(), Failure> {
    print_raw(replaced(text, io::stdout().is_terminal()).as_bytes())
}

/// Prints bytes that this program made itself, such as a shell script.
pub fn print_raw(bytes: &[u8]) -> Result<(), Failure> {
    has_reader(write_all(bytes)).map(drop)
}

/// Flushes the standard library's buffer.
fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

fn has_reader(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::because("cannot write to the standard output", &error)),
    }
}

/// An error is ignored: there is no other place to report it.
pub fn print_error(text: &str) {
    let shown = replaced(text, io::stderr().is_terminal());
    io::stderr().lock().write_all(printable_lines(&shown).as_bytes()).ok();
}

pub fn print_error_json(json: &str) {
    io::stderr().lock().write_all(printable_json(json).as_bytes()).ok();
}

/// Prints a failure as the state UNKNOWN of a plugin for Nagios. A bar would begin performance data.
pub fn print_unknown(failure: &Failure) {
    let message = failure.to_string().replace('|', "/");
    let message: Vec<&str> = message.split_whitespace().collect();
    // Nobody is left to read it.
    print(&format!("POLYMETER UNKNOWN - {}\n", message.join(" "))).ok();
}

pub fn print_failure(failure: &Failure, format: ErrorFormat) {
    let json = failure.json().filter(|_| format != ErrorFormat::Text);
    match (format, &json) {
        (ErrorFormat::JsonOnStderr, Some(json)) => return print_error_json(json),
        // A failure to write to stdout may be the failure itself, which stderr reports.
        (ErrorFormat::Json, Some(json)) => drop(print_json_to_reader(json)),
        (ErrorFormat::Text | ErrorFormat::Json | ErrorFormat::JsonOnStderr, _) => {}
    }
    print_error(&format!("polymeter: {failure}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_tiny_widths_are_replaced() {
        assert_eq!((reported_width(0), reported_width(5), reported_width(80)), (None, Some(20), Some(80)));
    }
}
