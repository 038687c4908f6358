//! What the file says of keys, and whether other machines may be let in by it.

use std::path::PathBuf;

use super::{Endpoint, Fault};
use crate::keys::KeyFiles;

/// What is wrong with a collector that listens to other machines without keys, and what to do.
const OPEN: &str = "other machines can reach this address, and without keys nothing is encrypted and anybody may send; \
    make keys with `polymeter keygen` and set `key` and `authorised_agents`, or say `insecure = true` (--insecure) if you \
    trust everybody on that network";

/// What a file said of keys.
#[derive(Debug, Default)]
pub struct SaidSecurity {
    /// See [`KeyFiles::key`].
    pub key: Option<PathBuf>,
    /// See [`KeyFiles::authorised_agents`].
    pub authorised_agents: Option<PathBuf>,
    /// See [`super::Config::bind_node_to_key`].
    pub bind_node_to_key: Option<bool>,
    /// Whether other machines may connect without encryption.
    pub insecure: Option<bool>,
    /// Where `key` or `authorised_agents` stands in the file.
    pub place: String,
    /// Where `listen` stands in the file.
    pub listen_place: String,
}

impl SaidSecurity {
    /// One of the keys without the other would be either no encryption or a locked door.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        let message = match (&self.key, &self.authorised_agents) {
            (Some(_), None) => "`key` needs `authorised_agents`: the directory of the agents' keys",
            (None, Some(_)) => "`authorised_agents` needs `key`: the collector's own",
            (Some(_), Some(_)) | (None, None) => return,
        };
        faults.push(Fault { place: self.place.clone(), message: message.to_owned() });
    }

    /// Other machines are let in with keys, or when that is wished in so many words. `by_option` says that the
    /// command line named the endpoint, and `insecure` that it has the wish.
    pub(super) fn check_endpoint(
        &self,
        listen: &Endpoint,
        by_option: bool,
        insecure: bool,
        faults: &mut Vec<Fault>,
    ) {
        let insecure = insecure || self.insecure.unwrap_or(false);
        if listen.is_local() || insecure || (self.key.is_some() && self.authorised_agents.is_some()) {
            return;
        }
        let place = if by_option { "--listen".to_owned() } else { self.listen_place.clone() };
        faults.push(Fault { place, message: OPEN.to_owned() });
    }

    /// Where the keys are, if anywhere.
    pub(super) fn keys(self) -> Option<KeyFiles> {
        Some(KeyFiles { key: self.key?, authorised_agents: self.authorised_agents? })
    }
}
