//! The key files of an encrypted connection.

use std::path::PathBuf;

use polymeter_proto::key::{KeyPair, PublicKey};
use polymeter_service::key_files::{KeysError, read_key_pair, read_public_key, require_curve};

/// The agent's key files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentKeyFiles {
    /// The file with the agent's key pair.
    pub key: PathBuf,
    /// The public keys of the collectors, or the files that hold them: one for all, or one for each.
    pub collectors: Vec<CollectorKey>,
}

/// The collector's public key, as the configuration states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorKey {
    /// The key itself.
    Key(PublicKey),
    File(PathBuf),
}

/// The error for a text that is neither a path nor a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an absolute path or a public key, which has 40 characters")]
pub struct InvalidCollectorKey;

impl CollectorKey {
    /// Parses a path, if the text begins with a slash, or a key. `polymeter keygen` makes no key that begins
    /// with a slash.
    ///
    /// # Errors
    /// Returns an error if the text is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidCollectorKey> {
        if text.starts_with('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        text.parse().map(Self::Key).map_err(|_invalid| InvalidCollectorKey)
    }
}

/// The keys of an encrypted connection.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The agent's key pair.
    pub own: KeyPair,
    /// The public keys of the collectors: one for all, or one for each.
    pub collectors: Vec<PublicKey>,
}

impl Keys {
    /// Returns the public key of a collector, by its place in the configuration.
    pub fn of_collector(&self, place: usize) -> Option<PublicKey> {
        if let [shared] = self.collectors.as_slice() {
            Some(*shared)
        } else {
            self.collectors.get(place).copied()
        }
    }
}

impl AgentKeyFiles {
    /// Reads the keys.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, is open to other users or contains no key, or if libzmq has
    /// no encryption.
    pub fn read(&self) -> Result<Keys, KeysError> {
        require_curve(zmq::has("curve"))?;
        let own = read_key_pair(&self.key)?;
        let read = |key: &CollectorKey| match key {
            CollectorKey::Key(key) => Ok(*key),
            CollectorKey::File(path) => read_public_key(path),
        };
        Ok(Keys { own, collectors: self.collectors.iter().map(read).collect::<Result<_, _>>()? })
    }
}
