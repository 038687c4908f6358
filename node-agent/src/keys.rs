//! The keys with which the agent encrypts, and shows the collector who it is.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polymeter_proto::key::{Guard, KeyFileError, KeyPair, PublicKey, SERVICE_USER};
use rustix::process::geteuid;

use crate::user_database::uid_of;

/// Where the agent's keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFiles {
    /// The file with its own key pair.
    pub key: PathBuf,
    /// The collector's public key, or the file that holds it.
    pub collector: CollectorKey,
}

/// The collector's public key, as the configuration says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorKey {
    /// Itself.
    Key(PublicKey),
    /// In this file.
    File(PathBuf),
}

impl CollectorKey {
    /// What a text means: a path where it begins with a slash, and else the key. `polymeter keygen` makes no key that
    /// begins so.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let why = |_| "it is neither an absolute path nor a public key, which has 40 characters".to_owned();
        text.parse().map(Self::Key).map_err(why)
    }
}

/// The keys of an encrypted connection.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The agent's own.
    pub own: KeyPair,
    /// The collector's, which nobody else can have the secret of.
    pub collector: PublicKey,
}

/// Why keys cannot be used. No secret is in it.
#[derive(Debug)]
pub enum KeysError {
    /// The libzmq that this program was linked with cannot encrypt.
    NoCurve,
    /// A file cannot be used.
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

impl KeyFiles {
    /// The keys in the files.
    ///
    /// # Errors
    /// When a file cannot be read, is open to others or holds something else, or when libzmq cannot encrypt.
    pub fn read(&self) -> Result<Keys, KeysError> {
        if zmq::has("curve") != Some(true) {
            return Err(KeysError::NoCurve);
        }
        let (file, guard) = open(&self.key).map_err(KeysError::File)?;
        let own = KeyPair::from_file(&self.key, guard, file).map_err(KeysError::File)?;
        let collector = match &self.collector {
            CollectorKey::Key(key) => *key,
            CollectorKey::File(path) => {
                let (file, guard) = open(path).map_err(KeysError::File)?;
                PublicKey::from_file(path, guard, file).map_err(KeysError::File)?
            }
        };
        Ok(Keys { own, collector })
    }
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
    let user = geteuid().as_raw();
    let mut guard = Guard { owner: metadata.uid(), mode: metadata.mode(), user, service: None };
    if guard.asks_for_service() {
        guard.service = uid_of(SERVICE_USER);
    }
    Ok((file, guard))
}
