//! Reading of key files, if no other user could have read or changed them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use polymeter_proto::key::{Guard, KeyFileError, KeyPair, PublicKey, SERVICE_USER};
use rustix::process::geteuid;

use crate::users::uid_of;

/// A private key with its certificates has a few thousand bytes.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Why keys cannot be used. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(
        "keys are configured, but this libzmq does not support CURVE; install a libzmq built with libsodium"
    )]
    NoCurve,
    #[error(transparent)]
    File(#[from] KeyFileError),
}

/// `has_curve` is the result of `zmq::has("curve")`, which may be unknown.
pub fn require_curve(has_curve: Option<bool>) -> Result<(), KeysError> {
    if has_curve == Some(true) { Ok(()) } else { Err(KeysError::NoCurve) }
}

/// Reads the key pair in the file at `path`, which no other user may be able to read.
pub fn read_key_pair(path: &Path) -> Result<KeyPair, KeyFileError> {
    let (file, guard) = open(path)?;
    KeyPair::from_file(path, guard, file)
}

/// Reads the public key in the file at `path`, which no other user may be able to change.
pub fn read_public_key(path: &Path) -> Result<PublicKey, KeyFileError> {
    let (file, guard) = open(path)?;
    PublicKey::from_file(path, guard, file)
}

/// Reads the text of a file, up to [`SECRET_BYTES_MAX`], which no other user may be able to read.
pub fn read_secret(path: &Path) -> Result<String, KeyFileError> {
    let (file, guard) = open(path)?;
    guard.keeps_secret(path).map_err(|exposed| KeyFileError::Exposed(path.to_owned(), exposed))?;
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| KeyFileError::Read(path.to_owned(), error))?;
    Ok(text)
}

/// Returns the metadata of the directory at `path`, which no other user may be able to change.
pub fn check_directory(path: &Path) -> Result<Metadata, KeyFileError> {
    let cannot_read = |error| KeyFileError::Read(path.to_owned(), error);
    let metadata = path.metadata().map_err(cannot_read)?;
    if !metadata.is_dir() {
        return Err(cannot_read(io::ErrorKind::NotADirectory.into()));
    }
    guard(&metadata).keeps_intact(path).map_err(|exposed| KeyFileError::Exposed(path.to_owned(), exposed))?;
    Ok(metadata)
}

fn guard(metadata: &Metadata) -> Guard {
    let user = geteuid().as_raw();
    let mut guard = Guard { owner: metadata.uid(), mode: metadata.mode(), user, service: None };
    if guard.asks_for_service() {
        guard.service = uid_of(SERVICE_USER);
    }
    guard
}

fn open(path: &Path) -> Result<(File, Guard), KeyFileError> {
    let cannot_read = |error| KeyFileError::Read(path.to_owned(), error);
    // This is checked before the file is opened: opening a pipe waits for its other end.
    if !path.metadata().map_err(cannot_read)?.is_file() {
        return Err(cannot_read(io::Error::other("not a regular file")));
    }
    let file = File::open(path).map_err(cannot_read)?;
    // The metadata are those of the open file, since the path may have changed since.
    let metadata = file.metadata().map_err(cannot_read)?;
    Ok((file, guard(&metadata)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn reads_only_files_that_others_cannot_change() {
        let directory = tempfile::tempdir().unwrap();
        let (path, key) = (directory.path().join("a.pub"), PublicKey::new([7; 32]));
        fs::write(&path, key.to_text("a")).unwrap();
        assert_eq!(read_public_key(&path).unwrap(), key);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(read_public_key(&path).unwrap_err().to_string().contains("chmod go-w"));
        assert!(read_public_key(directory.path()).unwrap_err().to_string().contains("not a regular file"));
        assert!(check_directory(directory.path()).is_ok());
        assert!(check_directory(&path).is_err());
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(check_directory(directory.path()).unwrap_err().to_string().contains("chmod go-w"));
    }

    #[test]
    fn keys_need_a_libzmq_that_encrypts() {
        assert!(require_curve(Some(true)).is_ok());
        assert!(require_curve(None).is_err() && require_curve(Some(false)).is_err());
    }
}
