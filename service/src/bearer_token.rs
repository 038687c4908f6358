//! A token that clients of a page present, `Authorization: Bearer TOKEN`, from a file.

use std::fmt;
use std::io;
use std::path::Path;

use polymeter_proto::key::KeyFileError;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::key_files::read_secret;

/// Fewer could be guessed.
const CHARACTERS_MIN: usize = 16;

/// Debug output does not show it. Only its digest is kept.
#[derive(Clone)]
pub struct BearerToken([u8; 32]);

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

impl BearerToken {
    /// Reads the token in the first line of the file at `path`, which no other user may be able to read.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read_secret(path)?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < CHARACTERS_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!(
                "the first line is no token: expected {CHARACTERS_MIN} or more printable characters without \
                 spaces; type: openssl rand -hex 32 > {}",
                path.display()
            );
            return Err(KeyFileError::Read(path.to_owned(), io::Error::other(message)));
        }
        Ok(Self(Sha256::digest(token.as_bytes()).into()))
    }

    /// Compares the value of the header `Authorization` in a time that does not depend on where they differ.
    pub fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, token)) = authorization.split_once(' ') else { return false };
        let digest: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        scheme.eq_ignore_ascii_case("bearer") && bool::from(digest.ct_eq(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_private_and_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(BearerToken::read(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let token = BearerToken::read(&path).unwrap();
        assert!(token.is_in("Bearer 0123456789abcdef") && token.is_in("bearer  0123456789abcdef"));
        for wrong in ["", "Bearer", "Bearer ", "Basic 0123456789abcdef", "Bearer 0123456789abcdeg"] {
            assert!(!token.is_in(wrong), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "BearerToken(..)");
        for wrong in ["", "short\n", "0123456789 abcdef"] {
            fs::write(&path, wrong).unwrap();
            assert!(BearerToken::read(&path).unwrap_err().to_string().contains("openssl rand"), "{wrong}");
        }
    }
}
