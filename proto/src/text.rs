//! Characters that are allowed in text from other sources, and texts that are never empty.
//!
//! Refused are characters that could deceive a reader or break a line: control characters, characters that
//! change the direction of writing, characters without a width, and separators of lines and paragraphs. They
//! never reach a terminal, a table or a store.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Reason for which a character is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprintable {
    Control,
    /// Changes the direction of the surrounding text.
    Direction,
    /// Has no width, or is invisible.
    Invisible,
    Separator,
    /// Has no defined meaning: private use, or not a character.
    Unassigned,
}

impl Unprintable {
    /// Returns none for a character that is allowed in names.
    pub const fn of(c: char) -> Option<Self> {
        Some(match c {
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Self::Control,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                Self::Direction
            }
            '\u{2028}' | '\u{2029}' => Self::Separator,
            // The rest of Unicode's category Cf, the fillers, the variation selectors, and characters that
            // look like a space.
            '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'
            | '\u{891}'
            | '\u{8e2}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' => Self::Invisible,
            '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => Self::Unassigned,
            '\u{fdd0}'..='\u{fdef}' => Self::Unassigned,
            _ => return None,
        })
    }
}

impl fmt::Display for Unprintable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "a control character",
            Self::Direction => "a character that changes the text direction",
            Self::Invisible => "an invisible character",
            Self::Separator => "a line or paragraph separator",
            Self::Unassigned => "an unassigned character",
        })
    }
}

/// Describes a refused character by its number: the character itself would affect the message in the same
/// way.
pub(crate) fn describe(c: char) -> String {
    match Unprintable::of(c) {
        Some(why) => format!("the character U+{:04X}, {why}", u32::from(c)),
        None => format!("the character {c:?} (U+{:04X})", u32::from(c)),
    }
}

/// Makes any bytes printable and reversible: each byte of an [`Unprintable`] character or of what is not
/// UTF-8 becomes `\xNN`, as does a backslash that would read as such an escape. A text of spaces only is
/// escaped throughout.
pub fn escape(raw: &[u8]) -> String {
    let mut escaped = String::with_capacity(raw.len());
    let mut behind = raw;
    let is_hidden = std::str::from_utf8(raw).is_ok_and(is_blank);
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars() {
            behind = behind.get(c.len_utf8()..).unwrap_or_default();
            let is_ambiguous = c == '\\' && starts_with_escape(behind);
            if is_hidden || is_ambiguous || Unprintable::of(c).is_some() {
                put_escapes(&mut escaped, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                escaped.push(c);
            }
        }
        put_escapes(&mut escaped, chunk.invalid());
        behind = behind.get(chunk.invalid().len()..).unwrap_or_default();
    }
    escaped
}

fn put_escapes(escaped: &mut String, bytes: &[u8]) {
    for byte in bytes {
        escaped.push_str("\\x");
        escaped.extend(
            [byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16)),
        );
    }
}

/// Returns true if `text`, behind a backslash, completes an escape.
pub(crate) fn starts_with_escape(text: &[u8]) -> bool {
    matches!(text, [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Shortens a printable text to `limit_bytes`. The end becomes `~` and a checksum of the whole, so that
/// different texts stay different.
pub(crate) fn shorten(text: String, limit_bytes: usize) -> String {
    if text.len() <= limit_bytes {
        return text;
    }
    // FNV-1a, which is short and the same everywhere.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let suffix = format!("~{hash:016x}");
    let mut end = limit_bytes.saturating_sub(suffix.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned() + &suffix
}

/// Lists names, separated by commas. After `limit` names it states the number of the others.
pub fn abridged_list(names: &[impl AsRef<str>], limit: usize) -> String {
    let listed = names.iter().take(limit).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(limit) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Makes a character fit for a message.
pub(crate) fn to_printable(c: char) -> char {
    if Unprintable::of(c).is_some() { '?' } else { c }
}

pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// One line of text for the user: never blank, at most [`limits::TEXT_BYTES`] long, without [`Unprintable`]
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

const NOTHING: &str = "not stated";

impl Text {
    /// Makes a text valid: [`Unprintable`] characters become `?`, text beyond the limit is cut off, and blank
    /// text becomes "not stated".
    pub fn of(text: &str) -> Self {
        let mut printable = String::with_capacity(text.len().min(limits::TEXT_BYTES));
        for c in text.trim().chars().map(to_printable) {
            if printable.len() + c.len_utf8() > limits::TEXT_BYTES {
                break;
            }
            printable.push(c);
        }
        let printable = printable.trim_end();
        Self(if printable.is_empty() { NOTHING } else { printable }.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::of(&text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::of(text)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn deceptive_characters_are_unprintable_and_letters_are_not() {
        for (c, why) in [
            ('\n', Unprintable::Control),
            ('\u{1b}', Unprintable::Control),
            ('\u{85}', Unprintable::Control),
            ('\u{202e}', Unprintable::Direction),
            ('\u{2066}', Unprintable::Direction),
            ('\u{200b}', Unprintable::Invisible),
            ('\u{feff}', Unprintable::Invisible),
            ('\u{e0041}', Unprintable::Invisible),
            ('\u{2028}', Unprintable::Separator),
            ('\u{2029}', Unprintable::Separator),
            ('\u{e000}', Unprintable::Unassigned),
        ] {
            assert_eq!(Unprintable::of(c), Some(why), "{c:?}");
        }
        for c in "aZ9 _-.:/[](){}%+*?=,;#@~zoë漢字Ωж\u{a0}".chars() {
            assert_eq!(Unprintable::of(c), None, "{c:?}");
        }
    }

    #[test]
    fn abridges_long_lists() {
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(abridged_list(&names, 4), "a, b, c, d and 2 more");
        assert_eq!(abridged_list(&names, 6), "a, b, c, d, e, f");
        assert_eq!(abridged_list(&["a".to_owned(), "b".to_owned()], 4), "a, b");
        assert_eq!(abridged_list(&names[..0], 4), "");
    }

    #[test]
    fn escapes_tell_every_text_from_every_other() {
        for (raw, escaped) in [
            (br#"R&D 'o"b' <i> \srv a=b,c"#.as_slice(), r#"R&D 'o"b' <i> \srv a=b,c"#),
            ("zoë 漢字 ".as_bytes(), "zoë 漢字 "),
            (br"CORP\jdoe", r"CORP\jdoe"),
            (b"a\x1b[31m\n", r"a\x1b[31m\x0a"),
            (br"a\x1b \x \\x41", r"a\x5cx1b \x \\x5cx41"),
            (b"\xe9t\xe9", r"\xe9t\xe9"),
            (b"  ", r"\x20\x20"),
            (b"", ""),
            ("\u{202e}".as_bytes(), r"\xe2\x80\xae"),
        ] {
            assert_eq!(escape(raw), escaped, "{raw:?}");
        }
    }

    #[test]
    fn long_texts_stay_different() {
        let (one, other) = ("ä".repeat(200) + "1", "ä".repeat(200) + "2");
        let short = [one, other].map(|text| shorten(text, 255));
        assert!(
            short[0] != short[1] && short.iter().all(|text| (254..=255).contains(&text.len())),
            "{short:?}"
        );
        assert_eq!(shorten("ab".to_owned(), 2), "ab");
    }

    /// Replaces each escape by its byte.
    fn unescape(text: &str) -> Vec<u8> {
        let (mut raw, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((first, behind)) = rest.split_first() {
            if *first == b'\\' && starts_with_escape(behind) {
                raw.push(u8::from_str_radix(std::str::from_utf8(&behind[1..3]).unwrap(), 16).unwrap());
                rest = &behind[3..];
            } else {
                raw.push(*first);
                rest = behind;
            }
        }
        raw
    }

    proptest! {
        #[test]
        fn escapes_are_printable_and_reversible(
            raw in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(br"\x4e ".to_vec())], 0..40),
            text in strategy::hostile(),
        ) {
            for raw in [&raw[..], text.as_bytes()] {
                let escaped = escape(raw);
                prop_assert!(escaped.chars().all(|c| Unprintable::of(c).is_none()), "{:?}", escaped);
                prop_assert!(raw.is_empty() || !is_blank(&escaped));
                prop_assert_eq!(unescape(&escaped), raw);
            }
        }

        #[test]
        fn a_text_is_never_blank_and_always_printable(text in strategy::hostile()) {
            let made = Text::of(&text);
            prop_assert!(!is_blank(made.as_str()));
            prop_assert!(made.as_str().len() <= limits::TEXT_BYTES);
            prop_assert!(made.as_str().chars().all(|c| Unprintable::of(c).is_none()));
            prop_assert_eq!(Text::of(made.as_str()), made);
        }
    }
}

#[cfg(test)]
pub(crate) mod strategy {
    use proptest::prelude::*;

    pub(crate) fn hostile() -> impl Strategy<Value = String> {
        let deceiving = prop::sample::select(vec![
            '\u{202e}',
            '\u{2066}',
            '\u{200b}',
            '\u{200d}',
            '\u{feff}',
            '\u{2028}',
            '\u{2029}',
            '\u{ad}',
            '\u{1b}',
            '\n',
            '\0',
            ' ',
            '\u{3000}',
            '\u{e0041}',
            '\'',
            '<',
        ]);
        let character = prop_oneof![3 => any::<char>(), 2 => deceiving, 3 => prop::char::range('a', 'z')];
        prop::collection::vec(character, 0..300).prop_map(|characters| characters.into_iter().collect())
    }
}
