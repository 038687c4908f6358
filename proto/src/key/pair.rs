//! Public and secret keys, and the text of key files.

use std::fmt;
use std::str::FromStr;

use super::z85::{self, KEY_BYTES};

const PUBLIC: &str = "public";

const SECRET: &str = "secret";

/// Public key, which identifies the peer of a connection. Its text is Z85 (ZeroMQ's RFC 32).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Parses the text of a file that must have one public key and no secret one.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let lines = Lines::parse(text)?;
        if lines.secret.is_some() {
            return Err(KeyError::SecretHere);
        }
        lines.public.map(Self).ok_or(KeyError::Missing(PUBLIC))
    }

    /// Formats the file with the public key of `name`.
    pub fn to_text(&self, name: &str) -> String {
        format!("# Polymeter: the public key of {name}.\n{PUBLIC} {self}\n")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&z85::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        z85::decode(text).map(Self).ok_or(KeyError::NoKey)
    }
}

/// Secret key, which cannot be printed.
#[derive(Clone)]
pub struct SecretKey([u8; KEY_BYTES]);

impl SecretKey {
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(hidden)")
    }
}

#[derive(Debug, Clone)]
pub struct KeyPair {
    pub public: PublicKey,
    pub secret: SecretKey,
}

impl KeyPair {
    /// Takes the bytes of two keys that belong together.
    pub const fn new(public: [u8; KEY_BYTES], secret: [u8; KEY_BYTES]) -> Self {
        Self { public: PublicKey(public), secret: SecretKey(secret) }
    }

    /// Parses the text of a file that must have a public and a secret key, each once.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let lines = Lines::parse(text)?;
        match (lines.public, lines.secret) {
            (Some(public), Some(secret)) => Ok(Self::new(public, secret)),
            (_, None) => Err(KeyError::Missing(SECRET)),
            (None, _) => Err(KeyError::Missing(PUBLIC)),
        }
    }

    /// Formats the file with the keys of `name`.
    pub fn to_text(&self, name: &str) -> String {
        format!(
            "# Polymeter: the key pair of {name}. Keep it secret: it authenticates {name}.\n{PUBLIC} {}\n{SECRET} {}\n",
            self.public,
            z85::encode(&self.secret.0)
        )
    }
}

/// Fault of a text that should contain keys. It never repeats the text, which may be secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("expected a key of 40 characters; create keys with `polymeter keygen`")]
    NoKey,
    /// A line is neither empty, nor a comment, nor a known word and a key.
    #[error(
        "line {0}: expected `public KEY`, `secret KEY` or a comment; create key files with `polymeter keygen`"
    )]
    Line(usize),
    /// A line repeats a key.
    #[error("line {0} repeats an entry")]
    Twice(usize),
    #[error("it has no line `{0} KEY`")]
    Missing(&'static str),
    /// A secret key where only public ones are expected.
    #[error("the file contains a secret key, expected only a public key; use the file that ends in .pub")]
    SecretHere,
}

/// Keys in the lines of a file.
#[derive(Default)]
struct Lines {
    public: Option<[u8; KEY_BYTES]>,
    secret: Option<[u8; KEY_BYTES]>,
}

impl Lines {
    fn parse(text: &str) -> Result<Self, KeyError> {
        let mut lines = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, key) = line.split_once(char::is_whitespace).ok_or(KeyError::Line(number))?;
            let slot = match word {
                PUBLIC => &mut lines.public,
                SECRET => &mut lines.secret,
                _ => return Err(KeyError::Line(number)),
            };
            let key = z85::decode(key.trim_start()).ok_or(KeyError::Line(number))?;
            if slot.replace(key).is_some() {
                return Err(KeyError::Twice(number));
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> KeyPair {
        let byte = |at: usize| u8::try_from(at).unwrap();
        KeyPair::new(std::array::from_fn(byte), std::array::from_fn(|at| 200 - byte(at)))
    }

    #[test]
    fn written_files_are_read_back() {
        let read = KeyPair::from_text(&pair().to_text("node17")).unwrap();
        assert_eq!((read.public, read.secret.0), (pair().public, pair().secret.0));
        assert_eq!(PublicKey::from_text(&pair().public.to_text("node17")), Ok(pair().public));
        let spaced = format!("\r\n  public \t {}\r\n# x\n", pair().public);
        assert_eq!(PublicKey::from_text(&spaced), Ok(pair().public));
        assert_eq!(pair().public.to_string().parse(), Ok(pair().public));
    }

    #[test]
    fn other_texts_are_refused() {
        let (public, both) = (pair().public.to_text("n"), pair().to_text("n"));
        assert_eq!(PublicKey::from_text(&both), Err(KeyError::SecretHere));
        assert_eq!(PublicKey::from_text(""), Err(KeyError::Missing("public")));
        assert_eq!(PublicKey::from_text(&format!("{public}{public}")), Err(KeyError::Twice(4)));
        assert_eq!(KeyPair::from_text(&public).unwrap_err(), KeyError::Missing("secret"));
        let secret = both.replace("public", "# public");
        assert_eq!(KeyPair::from_text(&secret).unwrap_err(), KeyError::Missing("public"));
        for text in ["public", "public short", "private x", &format!("public {}x", pair().public)] {
            assert_eq!(PublicKey::from_text(text), Err(KeyError::Line(1)), "{text}");
        }
    }

    #[test]
    fn a_secret_is_in_no_debug_output_and_in_no_error() {
        let secret = z85::encode(&pair().secret.0);
        assert!(!format!("{:?}", pair()).contains(&secret));
        let broken = pair().to_text("n").replace("secret ", "sercet ");
        assert!(!KeyPair::from_text(&broken).unwrap_err().to_string().contains(&secret));
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_an_error(words in "((public|secret|#)[ \t]?|[!-~]{0,45}|\n){0,12}") {
            if let Ok(key) = PublicKey::from_text(&words) {
                prop_assert_eq!(PublicKey::from_text(&key.to_text("n")), Ok(key));
            }
            if let Ok(pair) = KeyPair::from_text(&words) {
                prop_assert_eq!(KeyPair::from_text(&pair.to_text("n")).map(|pair| pair.public), Ok(pair.public));
            }
        }
    }
}
