//! Text from other programs and users, made safe for terminals and spreadsheets. Pure.

use std::borrow::Cow;

/// Escapes characters that control a terminal or are invisible, as `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_invisible(character).then(|| character.escape_unicode().to_string()))
}

/// Escapes as [`printable`] does, and all characters of a name that consists of blanks only.
pub fn printable_name(name: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        return Cow::Owned(name.escape_unicode().to_string());
    }
    printable(name)
}

/// Escapes as [`printable`] does, except for line ends.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        (character != '\n' && is_invisible(character)).then(|| character.escape_unicode().to_string())
    })
}

fn escape_utf16(character: char) -> String {
    let units = &mut [0; 2];
    character.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Escapes as `\u202e`, which a JSON reader decodes to the same characters. They occur in strings only; line
/// ends occur between values only.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(json, |character| (character != '\n' && is_invisible(character)).then(|| escape_utf16(character)))
}

/// Formats a field of comma-separated values (RFC 4180) that is safe in a spreadsheet: text that begins like
/// a formula and is not a number gets an apostrophe in front.
pub fn csv_field(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let safe = printable(text);
    let safe = if is_formula { Cow::Owned(format!("'{safe}")) } else { safe };
    // Line ends are escaped by now.
    if safe.contains(['"', ',']) { Cow::Owned(format!("\"{}\"", safe.replace('"', "\"\""))) } else { safe }
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

/// Tells whether a character controls a terminal or the direction of text, ends a line, or is invisible.
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
    fn control_characters_are_escaped() {
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
    fn a_blank_name_is_escaped() {
        assert_eq!(printable_name(" "), "\\u{20}");
        assert_eq!(printable_name("\u{3000}"), "\\u{3000}");
        assert_eq!(printable_name("a b"), "a b");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"name": "a\u{202e}b\u{e0041}\u{7f}\n", "more": ["\u{200b}"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = printable_json(&text);
        assert!(safe.contains("a\\u202eb\\udb40\\udc41\\u007f\\n") && !safe.contains('\u{202e}'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn fields_are_quoted_and_a_formula_becomes_text() {
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
            ("cpu=3,device=sda", "\"cpu=3,device=sda\""),
            ("=f(\"x\",1)\n", "\"'=f(\"\"x\"\",1)\\u{a}\""),
            ("", ""),
        ] {
            assert_eq!(csv_field(cell), safe);
        }
    }
}
