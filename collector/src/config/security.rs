//! The keys of encryption, and the check that other machines can connect without it only if the configuration
//! permits it.

use std::path::PathBuf;

use polymeter_service::document::{Faults, Reporter, Section};

use super::endpoint::Endpoint;
use crate::keys::CollectorKeyFiles;

/// The fault of a collector without keys that other machines can reach.
const UNPROTECTED: &str = "other machines can reach this address, but without keys, data is not encrypted and agents are \
    not authenticated; create keys with `polymeter keygen` and set `key` and `authorised_agents`, or set `insecure = true` (--insecure) on a \
    trusted network";

/// The raw keys.
#[derive(Debug, Default)]
pub(super) struct RawSecurity {
    key: Option<PathBuf>,
    authorised_agents: Option<PathBuf>,
    pub(super) bind_node_to_key: Option<bool>,
    insecure: Option<bool>,
    /// The file and line of `key` or `authorised_agents`.
    keys_place: String,
    /// The file and line of `listen`.
    listen_place: String,
}

impl RawSecurity {
    /// Takes the keys out of the document; `listen` must not be taken yet.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Self {
        let place = |key| root.span(key).map(|span| reporter.place(&span));
        let keys_place = place("authorised_agents").or_else(|| place("key")).unwrap_or_default();
        let listen_place = place("listen").unwrap_or_default();
        Self {
            key: root.parse("key", reporter, str::parse),
            authorised_agents: root.parse("authorised_agents", reporter, str::parse),
            bind_node_to_key: root.boolean("bind_node_to_key", reporter),
            insecure: root.boolean("insecure", reporter),
            keys_place,
            listen_place,
        }
    }

    /// Adds a fault if only one of the two keys is set.
    pub(super) fn check(&self, faults: &mut Faults) {
        let message = match (&self.key, &self.authorised_agents) {
            (Some(_), None) => "`key`: requires `authorised_agents`, the directory of the agents' keys",
            (None, Some(_)) => "`authorised_agents`: requires `key`, the collector's own key file",
            (Some(_), Some(_)) | (None, None) => return,
        };
        faults.add(&*self.keys_place, message);
    }

    /// Adds a fault if other machines can reach `listen` without keys, unless the file or the option
    /// `insecure` permits it. `is_option` is true if the endpoint is from the command line.
    pub(super) fn check_endpoint(
        &self,
        listen: &Endpoint,
        is_option: bool,
        insecure: bool,
        faults: &mut Faults,
    ) {
        let insecure = insecure || self.insecure.unwrap_or(false);
        if listen.is_local() || insecure || (self.key.is_some() && self.authorised_agents.is_some()) {
            return;
        }
        faults.add(if is_option { "--listen" } else { &self.listen_place }, UNPROTECTED);
    }

    /// Returns the key files, if both are set.
    pub(super) fn resolve(self) -> Option<CollectorKeyFiles> {
        Some(CollectorKeyFiles { key: self.key?, authorised_agents: self.authorised_agents? })
    }
}
