//! Words `key=value` of a connection string, and of the query of a URL. Pure.

use super::error::SettingsError;

pub(super) type Word = (String, String);

/// Splits a connection string in libpq's form, such as `host=a password='a b'`. The error does not repeat
/// values.
pub(super) fn split(text: &str) -> Result<Vec<Word>, SettingsError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) =
            rest.split_once('=').ok_or_else(|| SettingsError::invalid("a word has no `=`"))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(SettingsError::invalid("a word has no `=`"));
        }
        let (value, after) = value(after.trim_start(), name)?;
        words.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(words)
}

/// Parses a value, which may be quoted, and returns it with the text behind it.
fn value<'a>(text: &'a str, name: &str) -> Result<(String, &'a str), SettingsError> {
    let quoted = text.strip_prefix('\'');
    let mut characters = quoted.unwrap_or(text).char_indices();
    let mut value = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if quoted.is_some() => return Ok((value, characters.as_str())),
            _ if quoted.is_none() && character.is_whitespace() => {
                return Ok((value, text.get(at..).unwrap_or_default()));
            }
            _ => value.push(character),
        }
    }
    if quoted.is_some() {
        Err(SettingsError::Invalid(format!("the value of `{name}` has no closing quote")))
    } else {
        Ok((value, ""))
    }
}

pub(super) fn join(words: &[Word]) -> String {
    let quoted = words.iter().map(|(name, value)| {
        let value = value.replace('\\', r"\\").replace('\'', r"\'");
        format!("{name}='{value}'")
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Splits the query of a URL, such as `sslmode=require&host=%2Frun`.
pub(super) fn split_query(query: &str) -> Result<Vec<Word>, SettingsError> {
    let mut words = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let Some((name, value)) = parameter.split_once('=') else {
            return Err(SettingsError::invalid("a parameter of the URL has no `=`"));
        };
        words.push((unescape(name)?, unescape(value)?));
    }
    Ok(words)
}

pub(super) fn join_query(words: &[Word]) -> String {
    words
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

fn unescape(text: &str) -> Result<String, SettingsError> {
    let wrong_escape = || SettingsError::invalid("the URL has an invalid `%` escape");
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).ok_or_else(wrong_escape)?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal).ok_or_else(wrong_escape)?;
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().ok_or_else(wrong_escape)
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Word> {
        split(text).unwrap()
    }

    #[test]
    fn words_are_split_as_libpq_does() {
        let word = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(words("host=a  port = 5433"), [word("host", "a"), word("port", "5433")]);
        assert_eq!(words(r"password='a b\'c\\' user=x"), [word("password", r"a b'c\"), word("user", "x")]);
        assert_eq!(words("password='' user=x"), [word("password", ""), word("user", "x")]);
        assert_eq!(words(r"user=a\ b"), [word("user", "a b")]);
        assert_eq!(words(" "), []);
        for text in ["host", "host a=b", "=b", "a='b", "a=b c"] {
            let error = split(text).unwrap_err().to_string();
            assert!(error.contains("no `=`") || error.contains("closing quote"), "{text}: {error}");
        }
    }

    #[test]
    fn words_that_are_joined_and_split_are_unchanged() {
        let values = ["", "a", "a b", r"a'b\c", "100%", "ä&=", "\n"];
        let before: Vec<Word> = values.iter().map(|value| ("k".to_owned(), (*value).to_owned())).collect();
        assert_eq!(split(&join(&before)).unwrap(), before);
        assert_eq!(split_query(&join_query(&before)).unwrap(), before);
    }

    #[test]
    fn invalid_queries_are_refused() {
        for query in ["a", "a=%", "a=%4", "a=%zz", "a=%ff", "a=%+1"] {
            assert!(split_query(query).is_err(), "{query}");
        }
        assert_eq!(split_query("&").unwrap(), []);
    }
}
