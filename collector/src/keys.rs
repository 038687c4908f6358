//! Key files, read with a look at who else could have read or changed them.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::User;
use polymeter_proto::key::{Guard, KeyFileError, KeyPair, PublicKey, SERVICE_USER};
use rustix::process::geteuid;

/// Why keys cannot be used. No secret is in it.
#[derive(Debug)]
pub enum KeysError {
    /// The libzmq that this program was linked with cannot encrypt.
    NoCurve,
    /// A file or directory cannot be used.
    File(KeyFileError),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCurve => f.write_str(
                "this libzmq has no CURVE, and keys are configured; install a libzmq that was built with libsodium",
            ),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for KeysError {}

/// Where a collector's keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFiles {
    /// The file with its own key pair.
    pub key: PathBuf,
    /// The directory with the public keys of the agents that may connect.
    pub authorised_agents: PathBuf,
}

impl KeyFiles {
    /// The collector's own keys; and whether all is as it should be, but for the agents' files themselves.
    ///
    /// # Errors
    /// When it is not, or when libzmq cannot encrypt.
    pub fn read(&self) -> Result<KeyPair, KeysError> {
        if zmq::has("curve") != Some(true) {
            return Err(KeysError::NoCurve);
        }
        check_directory(&self.authorised_agents).map_err(KeysError::File)?;
        let (file, guard) = open(&self.key).map_err(KeysError::File)?;
        KeyPair::from_file(&self.key, guard, file).map_err(KeysError::File)
    }
}

/// The public key in the file at `path`, which nobody else may be able to change.
///
/// # Errors
/// When it cannot be read, when others can change it, or when it holds something else.
pub(crate) fn read_public(path: &Path) -> Result<PublicKey, KeyFileError> {
    let (file, guard) = open(path)?;
    PublicKey::from_file(path, guard, file)
}

/// The metadata of the directory at `path`, which nobody else may be able to change.
///
/// # Errors
/// When there is no such directory, or others can change it.
pub(crate) fn check_directory(path: &Path) -> Result<Metadata, KeyFileError> {
    let cannot_read = |error| KeyFileError::Read(path.to_owned(), error);
    let metadata = path.metadata().map_err(cannot_read)?;
    if !metadata.is_dir() {
        return Err(cannot_read(io::Error::other("it is no directory")));
    }
    guard(&metadata).keeps_intact(path).map_err(|exposed| KeyFileError::Exposed(path.to_owned(), exposed))?;
    Ok(metadata)
}

fn guard(metadata: &Metadata) -> Guard {
    let user = geteuid().as_raw();
    let mut guard = Guard { owner: metadata.uid(), mode: metadata.mode(), user, service: None };
    if guard.asks_for_service() {
        // A name service that does not answer knows nobody.
        guard.service = User::from_name(SERVICE_USER).ok().flatten().map(|user| user.uid.as_raw());
    }
    guard
}

fn open(path: &Path) -> Result<(File, Guard), KeyFileError> {
    let cannot_read = |error| KeyFileError::Read(path.to_owned(), error);
    // Before it is opened: to open a pipe is to wait for its other end.
    if !path.metadata().map_err(cannot_read)?.is_file() {
        return Err(cannot_read(io::Error::other("it is no file")));
    }
    let file = File::open(path).map_err(cannot_read)?;
    // Of the file that is open, whatever the path has become meanwhile.
    let metadata = file.metadata().map_err(cannot_read)?;
    Ok((file, guard(&metadata)))
}
