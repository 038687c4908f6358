//! Key files of encrypted connections.

use std::path::PathBuf;

use polymeter_proto::key::KeyPair;
use polymeter_service::key_files::{KeysError, check_directory, read_key_pair, require_curve};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorKeyFiles {
    /// File with the collector's key pair.
    pub key: PathBuf,
    /// Directory with the public keys of the agents that may connect.
    pub authorised_agents: PathBuf,
}

impl CollectorKeyFiles {
    /// Reads the key pair, and checks the directory, but not the files in it.
    ///
    /// Fails, too, if libzmq does not support encryption.
    pub fn read(&self) -> Result<KeyPair, KeysError> {
        require_curve(zmq::has("curve"))?;
        check_directory(&self.authorised_agents)?;
        Ok(read_key_pair(&self.key)?)
    }
}
