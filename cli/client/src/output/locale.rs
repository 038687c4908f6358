//! Text for locales without UTF-8. Pure, except for [`replaced`].

use std::borrow::Cow;
use std::sync::OnceLock;

use unicode_width::UnicodeWidthChar;

/// Variables that name the locale of characters; the first that is set counts.
const VARIABLES: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];

/// Replaces characters that the locale of this process cannot show: those with which this program draws and
/// abbreviates and, for a terminal, all others. Without a locale nothing is replaced.
pub fn replaced(text: &str, for_terminal: bool) -> Cow<'_, str> {
    static IS_UTF8: OnceLock<bool> = OnceLock::new();
    let is_utf8 = IS_UTF8.get_or_init(|| {
        let mut set = VARIABLES.into_iter().filter_map(std::env::var_os).filter(|value| !value.is_empty());
        set.next().is_none_or(|locale| is_utf8(&locale.to_string_lossy()))
    });
    if *is_utf8 || text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(ascii(text, for_terminal)) }
}

/// True for the name of a locale with UTF-8: `de_DE.UTF-8`, `C.utf8`.
fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Replaces the characters with which this program draws, and `all_others`, by ASCII of the same width.
fn ascii(text: &str, all_others: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '▁' => shown.push('_'),
            '▂' => shown.push('.'),
            '▃' => shown.push('-'),
            '▄' => shown.push(':'),
            '▅' => shown.push('='),
            '▆' => shown.push('+'),
            '▇' => shown.push('*'),
            '█' => shown.push('#'),
            '░' => shown.push('.'),
            '…' | '±' => shown.push('~'),
            '–' | '—' => shown.push('-'),
            '°' => shown.push(' '),
            'µ' | 'μ' => shown.push('u'),
            '×' => shown.push('x'),
            _ if character.is_ascii() || !all_others => shown.push(character),
            _ => shown.push_str(&"?".repeat(character.width().unwrap_or(0))),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::chart::bars;
    use crate::output::layout::{shortened, width};

    #[test]
    fn locales_with_utf8_are_known() {
        assert!(["de_DE.UTF-8", "C.utf8", "en_US.utf-8@euro"].into_iter().all(is_utf8));
        assert!(!["C", "POSIX", "de_DE.ISO-8859-1", "ja_JP.eucJP"].into_iter().any(is_utf8));
    }

    #[test]
    fn replaced_text_is_ascii_of_the_same_width() {
        let heights: Vec<Option<f64>> = (0..8).map(|height| Some(f64::from(height))).collect();
        let drawn = [bars(&heights), shortened("cpu.usage", 4), "█░ 5.0 ± 1.8 45 °C 12 µs".to_owned()];
        for text in &drawn {
            for all_others in [false, true] {
                let shown = ascii(text, all_others);
                assert!(shown.is_ascii() && width(&shown) == width(text), "{shown}");
            }
        }
        assert_eq!(ascii(&drawn[0], false), "_.-:=+*#");
        assert_eq!(ascii("härte 平 e\u{301}…", true), "h?rte ?? e~");
        assert_eq!(ascii("härte 平…", false), "härte 平~");
    }
}
