//! What is printed, and how wide.

use std::io::Write;

use rustix::termios::tcgetwinsize;

/// The width where there is no terminal to ask.
const COLUMNS: usize = 100;

/// The width of the terminal behind stdout or stderr, in columns.
pub(crate) fn columns() -> usize {
    let asked = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stderr()));
    asked.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(COLUMNS)
}

/// Prints on stdout. A reader that has gone away, such as `head`, is no error.
pub(crate) fn print(text: &str) {
    std::io::stdout().lock().write_all(text.as_bytes()).ok();
}

/// Prints on stderr, where what is no result belongs.
pub(crate) fn complain(text: &str) {
    std::io::stderr().lock().write_all(text.as_bytes()).ok();
}

/// Lines in columns that are as wide as their widest cell; the last is not filled up.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
