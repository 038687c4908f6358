//! Untrusted text, made safe for terminals and logs.

use polymeter_proto::text::Unprintable;

/// Puts the first `chars_max` characters of `text` on one line: line breaks become spaces, and deceptive
/// characters become `?`.
pub fn printable(text: &str, chars_max: usize) -> String {
    text.trim_end()
        .chars()
        .take(chars_max)
        .map(|c| match c {
            '\n' => ' ',
            c if Unprintable::of(c).is_some() => '?',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_what_could_deceive_a_reader() {
        assert_eq!(printable("a\nb\u{1b}[31m\u{202e}c\n", usize::MAX), "a b?[31m?c");
        assert_eq!(printable("abcdef", 3), "abc");
    }
}
