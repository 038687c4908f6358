//! Key files of an encrypted connection.

use std::path::PathBuf;

use polymeter_proto::key::{KeyPair, PublicKey};
use polymeter_service::key_files::{KeysError, read_key_pair, read_public_key, require_curve};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentKeyFiles {
    pub key: PathBuf,
    /// Public keys of the collectors, or the files that hold them: one for all, or one for each.
    pub collectors: Vec<CollectorKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorKey {
    Key(PublicKey),
    File(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an absolute path or a public key, which has 40 characters")]
pub struct InvalidCollectorKey;

impl CollectorKey {
    /// Parses a path, if the text begins with a slash, or a key. `polymeter keygen` makes no key that begins
    /// with a slash.
    pub fn parse(text: &str) -> Result<Self, InvalidCollectorKey> {
        if text.starts_with('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        text.parse().map(Self::Key).map_err(|_invalid| InvalidCollectorKey)
    }
}

#[derive(Debug, Clone)]
pub struct Keys {
    pub own: KeyPair,
    /// Public keys of the collectors: one for all, or one for each.
    pub collectors: Vec<PublicKey>,
}

impl Keys {
    /// Public key of a collector, by its place in the configuration.
    pub fn of_collector(&self, place: usize) -> Option<PublicKey> {
        if let [shared] = self.collectors.as_slice() {
            Some(*shared)
        } else {
            self.collectors.get(place).copied()
        }
    }
}

impl AgentKeyFiles {
    /// Reads the keys. A file that is open to other users is refused.
    pub fn read(&self) -> Result<Keys, KeysError> {
        require_curve(zmq::has("curve"))?;
        let own = read_key_pair(&self.key)?;
        let collectors = self.collectors.iter().map(|key| match key {
            CollectorKey::Key(key) => Ok(*key),
            CollectorKey::File(path) => read_public_key(path),
        });
        Ok(Keys { own, collectors: collectors.collect::<Result<_, _>>()? })
    }
}
