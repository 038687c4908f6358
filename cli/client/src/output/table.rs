//! Tables and paragraphs that fit a terminal. Pure, except for the width of the terminal in [`table`].

use super::layout::{left_aligned, shortened, width, without_middle, wrapped};
use super::printable::printable;
use super::terminal;

const GAP: &str = "  ";

/// Cells are shortened to no less.
const CELL_MIN: usize = 6;

/// Shortens a narrower last column instead of wrapping its text.
const TEXT_MIN: usize = 16;

/// Fits the table to standard output.
pub fn table(rows: &[Vec<String>]) -> String {
    table_within(rows, terminal::width_limit(&std::io::stdout()))
}

const UNKNOWN: &str = "-";

/// Lays out rows as a table, the first of which is its head. Columns are as wide as their widest cell. With a
/// `limit` on the whole width, first columns without a known value are left out, then the last column is
/// wrapped, then the widest cells are shortened.
pub fn table_within(rows: &[Vec<String>], limit: Option<usize>) -> String {
    table_shortening(rows, limit, &[])
}

/// Like [`table_within`]. Where room is short, the columns with these heads are shortened before the others
/// are.
pub fn table_shortening(rows: &[Vec<String>], limit: Option<usize>, heads: &[&str]) -> String {
    let mut rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell).into_owned()).collect()).collect();
    let mut widths = widths_of(&rows);
    if let Some(limit) = limit {
        if with_gaps(&widths) > limit {
            rows = without_unknown(&rows);
            widths = widths_of(&rows);
        }
        let gaps = with_gaps(&widths) - widths.iter().sum::<usize>();
        let limit = limit.saturating_sub(gaps);
        let head = rows.first().into_iter().flatten();
        let chosen: Vec<bool> = head.map(|head| heads.contains(&head.as_str())).collect();
        narrow_widest(&mut widths, limit, |column| chosen.get(column) == Some(&true));
        narrow(&mut widths, limit);
    }
    rows.iter().map(|row| table_row(row, &widths)).collect()
}

fn widths_of(rows: &[Vec<String>]) -> Vec<usize> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    (0..count).map(|column| column_width(rows, column)).collect()
}

fn with_gaps(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// Leaves out the columns that have nothing but unknown values below their head.
fn without_unknown(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let is_known = |column: usize| {
        let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column));
        rows.len() < 2 || cells.any(|cell| cell != UNKNOWN)
    };
    rows.iter()
        .map(|row| {
            let cells = row.iter().enumerate().filter(|(column, _)| is_known(*column));
            cells.map(|(_, cell)| cell.clone()).collect()
        })
        .collect()
}

pub fn head<const COLUMNS: usize>(names: [&str; COLUMNS]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// `-` for a value that is not known.
pub fn figure<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Time as schedulers print it: days, hours, minutes and seconds.
pub fn elapsed(us: i64) -> String {
    let seconds = us.max(0) / 1_000_000;
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let days = seconds / 86_400;
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

pub fn column_width(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
}

fn excess(widths: &[usize], limit: usize) -> usize {
    widths.iter().sum::<usize>().saturating_sub(limit)
}

/// Narrows columns until they are at most `limit` together, or cannot be narrower.
fn narrow(widths: &mut [usize], limit: usize) {
    if let Some(last) = widths.last().copied() {
        let narrowed = last.saturating_sub(excess(widths, limit)).max(TEXT_MIN.min(last));
        widths.iter_mut().next_back().into_iter().for_each(|last| *last = narrowed);
    }
    narrow_widest(widths, limit, |_| true);
}

fn narrow_widest(widths: &mut [usize], limit: usize, is_chosen: impl Fn(usize) -> bool) {
    while excess(widths, limit) > 0 {
        let chosen = widths.iter_mut().enumerate().filter(|(column, _)| is_chosen(*column));
        let widest = chosen.map(|(_, width)| width).max_by_key(|width| **width);
        let Some(widest) = widest.filter(|width| **width > CELL_MIN) else { return };
        *widest -= 1;
    }
}

/// One line, or more where the text of the last cell is wrapped.
fn table_row(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
    for (position, (cell, width)) in row.iter().zip(widths).enumerate() {
        if position + 1 == widths.len() {
            text.push_str(&wrapped(cell, *width).join(&format!("\n{:before$}", "")));
        } else {
            // The first cell is a name, whose end distinguishes it from similar ones.
            let cell = if position == 0 { without_middle(cell, *width) } else { shortened(cell, *width) };
            text.push_str(&left_aligned(&cell, *width));
            text.push_str(GAP);
        }
    }
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    if text.is_empty() { "\n".to_owned() } else { lines.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        vec![
            head(["METRIC", "UNIT", "DESCRIPTION"]),
            head(["cpu.usage", "nanoseconds", "CPU time used by the tasks of the job."]),
            head(["pids.current", "count", "Tasks."]),
        ]
    }

    #[test]
    fn nothing_is_cut_without_a_limit() {
        let text = table_within(&rows(), None);
        assert_eq!(
            text,
            "METRIC        UNIT         DESCRIPTION\n\
             cpu.usage     nanoseconds  CPU time used by the tasks of the job.\n\
             pids.current  count        Tasks.\n"
        );
        assert_eq!(table_within(&rows(), Some(80)), text);
    }

    #[test]
    fn the_last_column_is_wrapped() {
        assert_eq!(
            table_within(&rows(), Some(50)),
            "METRIC        UNIT         DESCRIPTION\n\
             cpu.usage     nanoseconds  CPU time used by the\n\
             \u{20}                          tasks of the job.\n\
             pids.current  count        Tasks.\n"
        );
    }

    #[test]
    fn cells_are_shortened_to_the_limit() {
        let text = table_within(&rows(), Some(36));
        assert!(text.contains("pids.…rrent") && text.contains("of the\n"), "{text}");
        for limit in 24..100 {
            let text = table_within(&rows(), Some(limit));
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= limit, "{widest} > {limit}");
        }
        assert_eq!(table_within(&[], Some(10)), "");
        assert_eq!(table_within(&[vec![]], Some(10)), "\n");
    }

    #[test]
    fn chosen_columns_are_shortened_before_the_others() {
        let rows = [
            head(["JOB", "NAME", "QUEUE"]),
            head(["run-1234567-1795823786", "a long name of a job", "long"]),
        ];
        assert_eq!(
            table_shortening(&rows, Some(40), &["NAME"]),
            "JOB                     NAME       QUEUE\nrun-1234567-1795823786  a long n…  long\n"
        );
        for limit in 24..60 {
            let text = table_shortening(&rows, Some(limit), &["NAME"]);
            assert!(text.lines().all(|line| width(line) <= limit), "{limit}: {text}");
        }
    }

    #[test]
    fn unknown_columns_are_left_out_where_room_is_short() {
        let rows = [head(["JOB", "QUEUE", "STATE"]), head(["run-1234", "-", "COMPLETED"])];
        assert_eq!(table_within(&rows, Some(26)), "JOB       QUEUE  STATE\nrun-1234  -      COMPLETED\n");
        assert_eq!(table_within(&rows, Some(25)), "JOB       STATE\nrun-1234  COMPLETED\n");
    }

    #[test]
    fn columns_are_aligned_beside_wide_characters() {
        let rows = [head(["平平", "x"]), head(["abcd", "y"])];
        assert_eq!(table_within(&rows, None), "平平  x\nabcd  y\n");
    }

    #[test]
    fn control_characters_in_cells_are_escaped() {
        let rows = [head(["a\u{202e}b", "x\ny"]), head(["plain", ""])];
        assert_eq!(table_within(&rows, None), "a\\u{202e}b  x\\u{a}y\nplain\n");
    }
}
