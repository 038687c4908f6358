//! Indented tables and labelled lines of a report. Pure.

use crate::output::layout::wrapped;
use crate::output::printable::printable;
use crate::output::table::table_within;

const INDENT: &str = "  ";

const TEXT_MIN: usize = 16;

/// Width of the labels of a report.
pub(crate) const LABEL: usize = 18;

pub(super) fn indented_table_within(rows: &[Vec<String>], limit: Option<usize>) -> String {
    let text = table_within(rows, limit.map(|limit| limit.saturating_sub(INDENT.len())));
    text.lines().map(|line| format!("{INDENT}{line}\n")).collect()
}

/// Lays out at most `lines_max` rows below the head, `rows`' first, and states how many others there are.
pub(super) fn shortened_table(mut rows: Vec<Vec<String>>, lines_max: usize, limit: Option<usize>) -> String {
    let hidden = rows.len().saturating_sub(lines_max.saturating_add(1));
    rows.truncate(rows.len() - hidden);
    let mut text = indented_table_within(&rows, limit);
    if hidden > 0 {
        text.push_str(&remark(&format!("{hidden} more; `polymeter report --show all` shows them"), limit));
    }
    text
}

/// Wrapped where there is a limit.
pub(super) fn paragraph(label: &str, text: &str, limit: Option<usize>) -> String {
    let text = printable(text);
    let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(INDENT.len() + LABEL).max(TEXT_MIN));
    let lines = wrapped(&text, room).join(&format!("\n{INDENT}{:LABEL$}", ""));
    format!("{INDENT}{label:LABEL$}{lines}\n")
}

/// Belongs to the table above it; in parentheses, wrapped where there is a limit.
pub(super) fn remark(text: &str, limit: Option<usize>) -> String {
    let text = printable(text);
    let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(INDENT.len() + 1).max(TEXT_MIN));
    format!("{INDENT}{}\n", wrapped(&format!("({text})"), room).join(&format!("\n{INDENT} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_text_is_aligned_behind_its_label() {
        assert_eq!(
            paragraph("note", "a b\u{202e} some words that are wrapped", Some(44)),
            "  note              a b\\u{202e} some words\n\
             \u{20}                   that are wrapped\n"
        );
        assert_eq!(remark("a remark that is wrapped", Some(20)), "  (a remark that is\n   wrapped)\n");
    }
}
