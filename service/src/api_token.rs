//! Tokens of the HTTP API: `polymeter_ID_SECRET`, both parts in hexadecimal digits.
//!
//! The command makes the secret and tells the collector only its digest: the secret passes no network before
//! its use, and no store has it.

use std::fmt::{self, Write};
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Prefix by which programs that search for secrets recognise a token.
const PREFIX: &str = "polymeter_";

const ID_BYTES: usize = 8;

/// Bytes of a secret: too many to be guessed.
const SECRET_BYTES: usize = 32;

fn random_digits<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0_u8; BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(digits(&bytes))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Formatting into a string cannot fail.
        write!(digits, "{byte:02x}").ok();
        digits
    })
}

fn is_digits(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn new_id() -> io::Result<String> {
    random_digits::<ID_BYTES>()
}

pub fn is_id(text: &str) -> bool {
    is_digits(text, ID_BYTES)
}

/// Debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn new() -> io::Result<Self> {
        random_digits::<SECRET_BYTES>().map(Self)
    }

    pub fn digest(&self) -> String {
        digits(&Sha256::digest(self.0.as_bytes()))
    }

    /// Compares in a time that does not depend on where the two differ.
    pub fn matches(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }
}

pub fn is_digest(text: &str) -> bool {
    is_digits(text, 32)
}

/// Token as a client presents it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Not secret.
    pub id: String,
    pub secret: Secret,
}

impl ApiToken {
    /// Returns none for a text of another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_valid = is_id(id) && is_digits(secret, SECRET_BYTES);
        is_valid.then(|| Self { id: id.to_owned(), secret: Secret(secret.to_owned()) })
    }

    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_parsed_as_it_is_written() {
        let token = ApiToken { id: new_id().unwrap(), secret: Secret::new().unwrap() };
        let text = token.to_text();
        assert_eq!(text.len(), PREFIX.len() + 16 + 1 + 64);
        assert_eq!(ApiToken::parse(&text), Some(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret.0), "the secret is not logged");
        for wrong in [
            "",
            "polymeter_",
            &text[1..],
            &text[..text.len() - 1],
            &text.to_uppercase(),
            &text.replace("polymeter_", "polymeter_x"),
            &format!("{text}0"),
            &format!("{}\u{e9}", &text[..text.len() - 2]),
        ] {
            assert_eq!(ApiToken::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_secret_matches_its_digest() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert!(is_digest(&one.digest()) && one.matches(&one.digest()));
        assert!(!one.matches(&other.digest()) && !one.matches("") && !one.matches(&one.digest()[1..]));
        assert_eq!(
            Secret("abc".to_owned()).digest(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
