//! Output of results as tables.

use std::io::{ErrorKind, Write as _};

/// Prints a line, which is the result of an experiment. Unwinds if it cannot be written, without a message if
/// its reader has gone.
#[expect(clippy::print_stderr, reason = "an error is for the terminal")]
pub fn say(line: &str) {
    let Err(error) = writeln!(std::io::stdout(), "{line}") else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        eprintln!("Error: cannot print a result: {error}");
    }
    std::panic::resume_unwind(Box::new(error));
}

pub fn table(head: &[&str], rows: &[Vec<String>]) {
    say(markdown(head, rows).trim_end());
}

/// Prints the head of a Markdown table. [`row`] prints its rows, each as soon as it is known.
pub fn head(head: &[&str]) {
    say(markdown(head, &[]).trim_end());
}

pub fn row(cells: &[String]) {
    say(line(cells).trim_end());
}

pub fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let rule = format!("|{}\n", " --- |".repeat(head.len()));
    let rows: String = rows.iter().map(|cells| line(cells)).collect();
    format!("| {} |\n{rule}{rows}", head.join(" | "))
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

pub fn machine() {
    say(&format!("machine: {}; revision {}", crate::machine::description(), crate::machine::revision()));
    say("");
}

/// Converts to the nearest double.
#[expect(clippy::cast_precision_loss, reason = "results are rounded to a few digits")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Rounds a non-negative double to an integer; negative values become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as it should")]
pub fn to_u64(value: f64) -> u64 {
    value.round() as u64
}
