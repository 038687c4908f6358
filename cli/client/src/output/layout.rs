//! Text fitted into a number of terminal columns. Pure.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::printable::printable;

/// Takes one column.
const ELLIPSIS: char = '…';

/// Terminal columns that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Longest beginning that takes at most `columns`.
pub fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, character)| {
        used += character.width().unwrap_or(0);
        (used > columns).then_some(at)
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let begin = text.char_indices().rev().find_map(|(at, character)| {
        used += character.width().unwrap_or(0);
        (used > columns).then(|| at + character.len_utf8())
    });
    text.get(begin.unwrap_or(0)..).unwrap_or_default()
}

/// Shortens a text to at most `columns`, with an ellipsis at its end where something was cut off.
pub fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    format!("{}{ELLIPSIS}", head(text, columns - 1))
}

/// Shortens a name to at most `columns` by omitting its middle: the end, which has the labels, matters as
/// much as the beginning.
pub fn without_middle(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let tail_columns = (columns - 1) / 2;
    let head_columns = columns - 1 - tail_columns;
    format!("{}{ELLIPSIS}{}", head(name, head_columns), tail(name, tail_columns))
}

/// Fills up with blanks.
pub fn left_aligned(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

pub fn right_aligned(text: &str, columns: usize) -> String {
    format!("{:1$}{text}", "", columns.saturating_sub(width(text)))
}

/// Breaks a text between words into lines of at most `columns`. A longer word is broken, too: a path or a
/// command is of no use without its end.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    if width(text) <= columns {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').flat_map(|word| pieces(word, columns)) {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Wraps the lines of a text to at most `limit` columns. Those that continue a line have its indentation.
pub fn wrapped_lines(text: &str, limit: Option<usize>) -> String {
    let Some(limit) = limit else { return text.to_owned() };
    let mut lines = String::new();
    for line in text.lines() {
        let safe = printable(line);
        let content = safe.trim_start_matches(' ');
        let indent = safe.len() - content.len();
        let room = limit.saturating_sub(indent).max(1);
        for part in wrapped(content, room) {
            lines.push_str(&format!("{:indent$}{}\n", "", part.trim_end()));
        }
    }
    lines
}

/// Breaks a word into parts of at most `columns`. A character that takes more is left out.
fn pieces(word: &str, columns: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = word;
    while width(rest) > columns {
        let part = head(rest, columns);
        if part.is_empty() {
            return parts;
        }
        parts.push(part);
        rest = rest.strip_prefix(part).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("平a"), 3);
        assert_eq!(shortened("平平平", 5), "平平…");
        assert_eq!(shortened("平平平", 4), "平…");
        assert_eq!(without_middle("平平平平", 5), "平…平");
        assert_eq!((left_aligned("平", 4), right_aligned("平", 4)), ("平  ".to_owned(), "  平".to_owned()));
        assert_eq!(wrapped("平 平 平", 5), ["平 平", "平"]);
        assert_eq!(wrapped("平平平", 4), ["平平", "平"]);
    }

    #[test]
    fn lines_of_a_text_are_wrapped_each() {
        let text = "short\n\n  an indented line\n";
        assert_eq!(wrapped_lines(text, Some(12)), "short\n\n  an\n  indented\n  line\n");
        assert_eq!(wrapped_lines(text, None), text);
        assert_eq!(wrapped_lines("a\u{202e}b c", Some(11)), "a\\u{202e}b\nc\n");
    }

    #[test]
    fn results_fit_the_width() {
        for columns in 0..20 {
            for text in
                ["plain text that is long", "平 wide 平平平平平 text", "e\u{301}e\u{301}e\u{301}e\u{301}"]
            {
                assert!(width(&shortened(text, columns)) <= columns, "{text} in {columns}");
                assert!(width(&without_middle(text, columns)) <= columns, "{text} in {columns}");
            }
        }
    }
}
