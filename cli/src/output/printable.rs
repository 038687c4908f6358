//! Text from elsewhere, made safe for terminals and for spreadsheets. Names in a store or in an answer are whatever their
//! authors wrote.

use std::borrow::Cow;

/// The text with everything that a terminal would obey, or not show, written as `\u{202e}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_invisible(character).then(|| character.escape_unicode().to_string()))
}

/// The same of a name, which stands for something and is never empty to the eye: one of blanks only is written out, too.
pub(crate) fn printable_name(name: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        return Cow::Owned(name.escape_unicode().to_string());
    }
    printable(name)
}

/// The same of whole lines, whose ends stay.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        (character != '\n' && is_invisible(character)).then(|| character.escape_unicode().to_string())
    })
}

/// JSON with the same characters as `\u202e`, which every reader of JSON takes for them. They stand in strings only; the
/// line ends between are JSON's own.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    let escape = |character: char| {
        let units = &mut [0; 2];
        character.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    escaped(json, |character| (character != '\n' && is_invisible(character)).then(|| escape(character)))
}

/// A cell that no spreadsheet takes for a formula: before one that begins like a formula, and is no number, stands an
/// apostrophe.
pub(crate) fn spreadsheet_cell(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let safe = printable(text);
    if is_formula { Cow::Owned(format!("'{safe}")) } else { safe }
}

fn escaped(text: &str, escape: impl Fn(char) -> Option<String>) -> Cow<'_, str> {
    if !text.chars().any(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match escape(character) {
            Some(escape) => safe.push_str(&escape),
            None => safe.push(character),
        }
    }
    Cow::Owned(safe)
}

/// Whether a character controls a terminal or the direction of text, ends a line, or leaves no mark of its own.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(
            printable("a\u{202e}b\u{200b}c\u{2028}d\u{1b}[31m\u{9b}\t"),
            "a\\u{202e}b\\u{200b}c\\u{2028}d\\u{1b}[31m\\u{9b}\\u{9}"
        );
        assert_eq!(printable("a\nb"), "a\\u{a}b");
        assert_eq!(printable_lines("a\nb\r"), "a\nb\\u{d}");
        for plain in ["", "cpu.usage{step=0}", "härte 平 ▁▂█ µs", "emoji 🦀"] {
            assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain), "{plain}");
        }
    }

    #[test]
    fn a_blank_name_is_seen() {
        assert_eq!(printable_name(" "), "\\u{20}");
        assert_eq!(printable_name("\u{3000}"), "\\u{3000}");
        assert_eq!(printable_name("a b"), "a b");
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"name": "a\u{202e}b\u{e0041}\u{7f}\n", "more": ["\u{200b}"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = printable_json(&text);
        assert!(safe.contains("a\\u202eb\\udb40\\udc41\\u007f\\n") && !safe.contains('\u{202e}'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn no_cell_is_a_formula() {
        for (cell, safe) in [
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2+3|cmd", "'-2+3|cmd"),
            ("+x", "'+x"),
            ("\t=1", "'\\u{9}=1"),
            ("\r=1", "'\\u{d}=1"),
            ("-5", "-5"),
            ("+5", "+5"),
            ("-1e3", "-1e3"),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(spreadsheet_cell(cell), safe);
        }
    }
}
