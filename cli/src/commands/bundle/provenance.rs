//! Origin of a bundle: the program that made it, and its inputs.

use std::fs;

use polymeter_client::version::Version;
use polymeter_service::clock;
use serde::Serialize;

use super::directory::BundleDirectory;
use super::manifest;
use crate::version::libraries;

/// Name in the bundle.
pub(super) const DESCRIPTION: &str = "description.toml";

const LOCK: &str = "flake.lock";

#[derive(Debug, Serialize)]
pub(super) struct Provenance {
    pub(super) program: Version,
    /// Microseconds since the epoch.
    pub(super) made_us: i64,
    /// URL without a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'static str>,
    /// Seed of the experiment's random numbers, from its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flake_lock_sha256: Option<String>,
}

impl Provenance {
    pub(super) fn of(directory: &BundleDirectory, store: Option<String>) -> Self {
        let description = fs::read_to_string(directory.file(DESCRIPTION)).ok();
        Self {
            program: Version::of_this_program(Some(libraries())),
            made_us: clock::realtime_us(),
            store,
            description: description.as_ref().map(|_| DESCRIPTION),
            seed: description.as_deref().and_then(seed),
            flake_lock_sha256: manifest::hash(&directory.file(LOCK)).ok(),
        }
    }
}

fn seed(description: &str) -> Option<i64> {
    description.parse::<toml::Table>().ok()?.get("seed")?.as_integer()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_description_is_found() {
        assert_eq!(seed("replicates = 2\nseed = 7\n[[tool]]\nseed = 8\n"), Some(7));
        assert_eq!(seed("seed = 'x'"), None);
        assert_eq!(seed("no TOML"), None);
    }
}
