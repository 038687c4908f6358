//! Error of the parameters of connections.

use std::error::Error;
use std::path::{Path, PathBuf};

use polymeter_service::tls_client::TlsError;

use crate::StoreError;

/// Why connections cannot be made with these parameters; never contains a password.
#[derive(Debug, thiserror::Error)]
pub(in crate::postgres) enum SettingsError {
    /// The connection string, or a value in it or in the environment, is invalid.
    #[error("{0}")]
    Invalid(String),
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// Verb and object, such as "read the password file".
        action: &'static str,
        path: PathBuf,
        error: Box<dyn Error + Send + Sync>,
    },
    #[error(
        "cannot use {path}: other users have access to it, and it contains a secret; run chmod 600 {path}",
        path = .0.display()
    )]
    Exposed(PathBuf),
}

impl SettingsError {
    pub(super) fn invalid(text: &str) -> Self {
        Self::Invalid(text.to_owned())
    }

    pub(super) fn file(
        action: &'static str,
        path: &Path,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::File { action, path: path.to_owned(), error: error.into() }
    }
}

impl From<TlsError> for SettingsError {
    fn from(error: TlsError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<SettingsError> for StoreError {
    fn from(error: SettingsError) -> Self {
        Self::Unusable(error.to_string())
    }
}
