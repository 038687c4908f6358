//! What is printed, and how wide.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::failure::Failure;
use crate::printable::{printable, printable_json, printable_lines};

/// The width of what has none of its own: a file, or a terminal that does not know.
pub(crate) const COLUMNS: usize = 100;

/// Nothing is made to fit less: it would be of no use.
const COLUMNS_LEAST: usize = 20;

/// What stands between two columns of a table.
const GAP: &str = "  ";

/// To so few characters a cell is shortened, and to no fewer.
const CELL_LEAST: usize = 6;

/// The least width of a last column whose text is broken into lines; below, it is shortened like any other.
const TEXT_LEAST: usize = 16;

/// A terminal that does not know its width says 0.
fn of_terminal(columns: u16) -> Option<usize> {
    (columns > 0).then(|| usize::from(columns).max(COLUMNS_LEAST))
}

/// The width that what is printed there must fit: that of a terminal. A file or a program gets all.
pub(crate) fn bound(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let width = || tcgetwinsize(stream).ok().and_then(|size| of_terminal(size.ws_col)).unwrap_or(COLUMNS);
    stream.is_terminal().then(width)
}

/// Prints lines of text on stdout. A reader that has gone away, such as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(drop)
}

/// The same, and returns whether there still was a reader.
pub(crate) fn print_to_reader(text: &str) -> Result<bool, Failure> {
    was_read(write_all(printable_lines(text).as_bytes()))
}

/// Prints JSON on stdout, and returns whether there still was a reader.
pub(crate) fn print_json_to_reader(json: &str) -> Result<bool, Failure> {
    was_read(write_all(printable_json(json).as_bytes()))
}

/// Prints JSON on stdout.
pub(crate) fn print_json(json: &str) -> Result<(), Failure> {
    print_json_to_reader(json).map(drop)
}

/// Prints bytes of this program's own on stdout, such as a script for a shell.
pub(crate) fn print_raw(bytes: &[u8]) -> Result<(), Failure> {
    was_read(write_all(bytes)).map(drop)
}

/// Writes to stdout, and what the standard library still holds with it.
fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Whether there still was a reader.
fn was_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::refused("cannot write to the standard output", &error)),
    }
}

/// Prints lines of text on stderr, where what is no result belongs. Where that cannot be written there is no other place.
pub(crate) fn complain(text: &str) {
    io::stderr().lock().write_all(printable_lines(text).as_bytes()).ok();
}

/// Prints JSON on stderr.
pub(crate) fn complain_json(json: &str) {
    io::stderr().lock().write_all(printable_json(json).as_bytes()).ok();
}

/// Lines in columns, which fit the terminal where stdout is one.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    table_within(rows, bound(&std::io::stdout()))
}

/// Lines in columns that are as wide as their widest cell, in all at most `bound` where there is one: then the last
/// column's text goes on below, and where that is not enough the widest cells are shortened.
pub(crate) fn table_within(rows: &[Vec<String>], bound: Option<usize>) -> String {
    let safe = |row: &Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(safe).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count).map(|column| column_width(&rows, column)).collect();
    if let Some(bound) = bound {
        narrow(&mut widths, bound.saturating_sub(GAP.len() * count.saturating_sub(1)));
    }
    rows.iter().map(|row| lines(row, &widths)).collect()
}

/// What a line of a report says below `label`, in lines where there is a bound.
pub(crate) fn paragraph(label: &str, text: &str, bound: Option<usize>) -> String {
    const LABEL: usize = 18;
    let text = printable(text);
    let width = bound.map_or(usize::MAX, |bound| bound.saturating_sub(GAP.len() + LABEL).max(TEXT_LEAST));
    format!("{GAP}{label:LABEL$}{}\n", broken(&text, width).join(&format!("\n{GAP}{:LABEL$}", "")))
}

/// What is to be known of a table above, in parentheses, in lines where there is a bound.
pub(crate) fn remark(text: &str, bound: Option<usize>) -> String {
    let text = printable(text);
    let width = bound.map_or(usize::MAX, |bound| bound.saturating_sub(GAP.len() + 1).max(TEXT_LEAST));
    format!("{GAP}{}\n", broken(&format!("({text})"), width).join(&format!("\n{GAP} ")))
}

/// The width of the widest cell of a column.
pub(crate) fn column_width(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// The same, each line two places further in.
pub(crate) fn indented_table_within(rows: &[Vec<String>], bound: Option<usize>) -> String {
    let text = table_within(rows, bound.map(|bound| bound.saturating_sub(GAP.len())));
    text.lines().map(|line| format!("{GAP}{line}\n")).collect()
}

/// Takes from the widths until they are at most `bound` together, or cannot be less.
fn narrow(widths: &mut [usize], bound: usize) {
    let excess = |widths: &[usize]| widths.iter().sum::<usize>().saturating_sub(bound);
    if let Some(last) = widths.last().copied() {
        let narrowed = last.saturating_sub(excess(widths)).max(TEXT_LEAST.min(last));
        widths.iter_mut().next_back().into_iter().for_each(|last| *last = narrowed);
    }
    while excess(widths) > 0 {
        let widest = widths.iter_mut().max_by_key(|width| **width);
        let Some(widest) = widest.filter(|width| **width > CELL_LEAST) else { return };
        *widest -= 1;
    }
}

/// One row of a table: a line, and more where the text of the last cell goes on. The last cell is not filled up.
fn lines(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
    for (position, (cell, width)) in row.iter().zip(widths).enumerate() {
        if position + 1 == widths.len() {
            text.push_str(&broken(cell, *width).join(&format!("\n{:before$}", "")));
        } else {
            // What tells a series from its neighbours are its labels, at the end of its name.
            let cell = if position == 0 { without_middle(cell, *width) } else { shortened(cell, *width) };
            text.push_str(&format!("{cell:width$}{GAP}"));
        }
    }
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    if text.is_empty() { "\n".to_owned() } else { lines.collect() }
}

/// A text in at most `width` characters, the last of which says that there was more.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A name in at most `width` characters: its end, where labels are, matters as much as its beginning.
pub(crate) fn without_middle(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let tail = width.saturating_sub(1) / 2;
    let head = width.saturating_sub(tail + 1);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(count - tail)).take(width).collect()
}

/// Names in at most `width` characters, so that those that differ still do: where two would look the same, what all of
/// these begin with is left out instead of the middle.
pub(crate) fn distinct_names(names: &[String], width: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| without_middle(name, width)).collect();
    let is_ambiguous = |at: usize| {
        let same = |(other, text): (usize, &String)| {
            other != at && Some(text) == short.get(at) && names.get(other) != names.get(at)
        };
        short.iter().enumerate().any(same)
    };
    let name = |(at, name): (usize, &String)| {
        let count = name.chars().count();
        if count <= width || !is_ambiguous(at) {
            return short.get(at).cloned().unwrap_or_default();
        }
        std::iter::once('…').chain(name.chars().skip(count - width.saturating_sub(1))).collect()
    };
    names.iter().enumerate().map(name).collect()
}

/// A text in lines of at most `width` characters, broken between words. A word that is too long is shortened.
fn broken(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').map(|word| shortened(word, width)) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        [
            ["METRIC", "UNIT", "WHAT IT IS"],
            ["cpu.usage", "nanoseconds", "CPU time used by the tasks of the job."],
            ["pids.current", "count", "Tasks."],
        ]
        .map(|row| row.map(str::to_owned).to_vec())
        .to_vec()
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn without_a_bound_nothing_is_cut() {
        let text = table_within(&rows(), None);
        assert_eq!(
            text,
            "METRIC        UNIT         WHAT IT IS\n\
             cpu.usage     nanoseconds  CPU time used by the tasks of the job.\n\
             pids.current  count        Tasks.\n"
        );
        assert_eq!(table_within(&rows(), Some(80)), text);
    }

    #[test]
    fn the_last_column_goes_on_below() {
        assert_eq!(
            table_within(&rows(), Some(50)),
            "METRIC        UNIT         WHAT IT IS\n\
             cpu.usage     nanoseconds  CPU time used by the\n\
             \u{20}                          tasks of the job.\n\
             pids.current  count        Tasks.\n"
        );
    }

    #[test]
    fn what_is_still_too_wide_is_shortened() {
        let text = table_within(&rows(), Some(36));
        assert!(text.contains("pids.…rrent") && text.contains("of the\n"), "{text}");
        for bound in 24..100 {
            let widest = widest(&table_within(&rows(), Some(bound)));
            assert!(widest <= bound, "{widest} > {bound}");
        }
        assert_eq!(table_within(&[], Some(10)), "");
        assert_eq!(table_within(&[vec![]], Some(10)), "\n");
    }

    #[test]
    fn names_that_differ_stay_different() {
        let names = ["cpu.usage{step=0}", "cpu.usage{step=1}", "cpu.usage{step=batch}", "cpu.user"]
            .map(str::to_owned);
        for width in 8..22 {
            let mut short = distinct_names(&names, width);
            assert!(short.iter().all(|name| name.chars().count() <= width), "{width}: {short:?}");
            short.sort();
            short.dedup();
            assert_eq!(short.len(), names.len(), "{width}: {short:?}");
        }
        let tasks = ["memory.current{step=3,task=7}", "memory.current{step=4,task=7}"].map(str::to_owned);
        assert_ne!(distinct_names(&tasks, 17)[0], distinct_names(&tasks, 17)[1]);
    }

    #[test]
    fn no_cell_reaches_a_terminal_as_it_came() {
        let rows =
            vec![vec!["a\u{202e}b".to_owned(), "x\ny".to_owned()], vec!["plain".to_owned(), String::new()]];
        assert_eq!(table_within(&rows, None), "a\\u{202e}b  x\\u{a}y\nplain\n");
    }

    #[test]
    fn a_terminal_that_does_not_know_its_width_has_the_usual_one() {
        assert_eq!((of_terminal(0), of_terminal(5), of_terminal(80)), (None, Some(20), Some(80)));
    }
}
