//! Text fitted into a number of terminal columns. Pure.

use std::collections::{HashMap, HashSet};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The character that replaces text that was cut off. It takes one column.
const ELLIPSIS: char = '…';

/// Returns the number of terminal columns that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Returns the longest beginning of a text that takes at most `columns`.
pub fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, character)| {
        used += character.width().unwrap_or(0);
        (used > columns).then_some(at)
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Returns the longest end of a text that takes at most `columns`.
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

/// Shortens names to at most `columns` each so that different names stay different: if omitting the middle
/// would make two names equal, their beginnings are omitted instead.
pub fn distinct_names(names: &[String], columns: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| without_middle(name, columns)).collect();
    let ambiguous = ambiguous(&short, names);
    let mut distinct = Vec::new();
    for (name, short) in names.iter().zip(&short) {
        distinct.push(if width(name) <= columns || !ambiguous.contains(short.as_str()) {
            short.clone()
        } else {
            format!("{ELLIPSIS}{}", tail(name, columns.saturating_sub(1)))
        });
    }
    distinct
}

/// Returns true if different names have different short forms.
pub fn has_distinct(short: &[String], names: &[String]) -> bool {
    ambiguous(short, names).is_empty()
}

/// Returns the short forms that several different names have.
fn ambiguous<'a>(short: &'a [String], names: &[String]) -> HashSet<&'a str> {
    let mut name_of: HashMap<&str, &str> = HashMap::new();
    let pairs = short.iter().zip(names);
    let others = pairs.filter(|(short, name)| *name_of.entry(short).or_insert(name) != name.as_str());
    others.map(|(short, _)| short.as_str()).collect()
}

/// Fills a text up to `columns` with blanks on its right.
pub fn left_aligned(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

/// Fills a text up to `columns` with blanks on its left.
pub fn right_aligned(text: &str, columns: usize) -> String {
    format!("{:1$}{text}", "", columns.saturating_sub(width(text)))
}

/// Breaks a text between words into lines of at most `columns`. A longer word is shortened.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    if width(text) <= columns {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').map(|word| shortened(word, columns)) {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&word) <= columns => {
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

    #[test]
    fn different_names_stay_different() {
        let names = ["cpu.usage{step=0}", "cpu.usage{step=1}", "cpu.usage{step=batch}", "cpu.user"]
            .map(str::to_owned);
        for columns in 8..22 {
            let mut short = distinct_names(&names, columns);
            assert!(short.iter().all(|name| width(name) <= columns), "{columns}: {short:?}");
            short.sort();
            short.dedup();
            assert_eq!(short.len(), names.len(), "{columns}: {short:?}");
        }
        let tasks = ["memory.current{step=3,task=7}", "memory.current{step=4,task=7}"].map(str::to_owned);
        assert_ne!(distinct_names(&tasks, 17)[0], distinct_names(&tasks, 17)[1]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("平a"), 3);
        assert_eq!(shortened("平平平", 5), "平平…");
        assert_eq!(shortened("平平平", 4), "平…");
        assert_eq!(without_middle("平平平平", 5), "平…平");
        assert_eq!((left_aligned("平", 4), right_aligned("平", 4)), ("平  ".to_owned(), "  平".to_owned()));
        assert_eq!(wrapped("平 平 平", 5), ["平 平", "平"]);
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
