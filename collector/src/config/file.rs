//! Configuration file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use polymeter_service::document::{Fault, Faults, Reporter, read_text};
use polymeter_service::keys;

use super::model::{CollectorConfig, KEYS};

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) config: CollectorConfig,
    /// File and line of `listen`; empty if it has the default.
    pub(super) listen_place: String,
}

/// Faults of a configuration file with the contents `text`.
pub fn check(path: &Path, text: &str) -> Faults {
    File::parse(path, text).1
}

impl File {
    /// Reads the file at `path`. Its faults are added to `faults`.
    pub(super) fn read(path: &Path, faults: &mut Faults) -> Self {
        let text = match read_text(path) {
            Ok(text) => text,
            Err(unreadable) => {
                faults.0.extend(unreadable.0);
                return Self::default();
            }
        };
        let (file, found) = Self::parse(path, &text);
        faults.0.extend(found.0);
        if file.config.store.has_password() {
            faults.0.extend(exposed_password(path));
        }
        file
    }

    pub(super) fn parse(path: &Path, text: &str) -> (Self, Faults) {
        let mut reporter = Reporter::new(path, text);
        let root = reporter.root();
        let listen_place = root.span("listen").map(|span| reporter.place(&span)).unwrap_or_default();
        let mut config = CollectorConfig::default();
        keys::read(KEYS, &mut config, root, &mut reporter);
        (Self { config, listen_place }, reporter.into_faults())
    }
}

/// Fault if every user can read a file that contains a password.
fn exposed_password(path: &Path) -> Option<Fault> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let file = path.display();
    (mode & 0o004 != 0).then(|| {
        let message = format!("every user can read the password in `store`; run chmod o= {file}, or put the password into a file that passfile= names");
        Fault::new(file.to_string(), message)
    })
}
