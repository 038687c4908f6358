//! Key files that the caller has opened.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::guard::{Exposed, Guard};
use super::pair::{KeyError, KeyPair, PublicKey};

/// Bound on the size of a key file: keys and a comment take a few hundred bytes.
pub const KEY_FILE_BYTES: u64 = 4096;

/// Why the keys in a file or directory cannot be used; never contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("{path}: cannot be read: {error}", path = .0.display(), error = .1)]
    Read(PathBuf, io::Error),
    /// Other users could have read or changed it.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Exposed(PathBuf, Exposed),
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Content(PathBuf, KeyError),
}

impl KeyPair {
    /// Reads a key file, which no other user may be able to read.
    pub fn from_file(path: &Path, guard: Guard, file: impl Read) -> Result<Self, KeyFileError> {
        guard.keeps_secret(path).map_err(|exposed| KeyFileError::Exposed(path.to_owned(), exposed))?;
        Self::from_text(&read(path, file)?).map_err(|error| KeyFileError::Content(path.to_owned(), error))
    }
}

impl PublicKey {
    /// Reads a file with a public key, which no other user may be able to change.
    pub fn from_file(path: &Path, guard: Guard, file: impl Read) -> Result<Self, KeyFileError> {
        guard.keeps_intact(path).map_err(|exposed| KeyFileError::Exposed(path.to_owned(), exposed))?;
        Self::from_text(&read(path, file)?).map_err(|error| KeyFileError::Content(path.to_owned(), error))
    }
}

fn read(path: &Path, file: impl Read) -> Result<String, KeyFileError> {
    let cannot_read = |error| KeyFileError::Read(path.to_owned(), error);
    let mut text = String::new();
    let read = file.take(KEY_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot_read)?;
    if read as u64 > KEY_FILE_BYTES {
        return Err(cannot_read(io::Error::other("the file is too long for a key file")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Guard = Guard { owner: 1, mode: 0o644, user: 1, service: None };

    #[test]
    fn a_file_is_judged_before_it_is_read() {
        let path = Path::new("/k");
        let key = PublicKey::new([3; 32]);
        assert_eq!(PublicKey::from_file(path, OPEN, key.to_text("n").as_bytes()).unwrap(), key);
        let exposed = KeyPair::from_file(path, OPEN, "nonsense".as_bytes()).unwrap_err().to_string();
        assert!(exposed.contains("chmod 600 /k"), "{exposed}");
        let writable = Guard { mode: 0o666, ..OPEN };
        let exposed =
            PublicKey::from_file(path, writable, key.to_text("n").as_bytes()).unwrap_err().to_string();
        assert!(exposed.contains("chmod go-w /k"), "{exposed}");
    }

    #[test]
    fn long_and_binary_files_are_refused() {
        for bytes in [vec![b'#'; 5000], vec![0xff; 10]] {
            let error = PublicKey::from_file(Path::new("/k"), OPEN, bytes.as_slice()).unwrap_err();
            assert!(matches!(error, KeyFileError::Read(..)), "{error}");
        }
    }
}
