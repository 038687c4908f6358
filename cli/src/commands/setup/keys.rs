//! Pairs of keys.

use std::path::{Path, PathBuf};

use crate::commands::keygen;
use crate::failure::Failure;

/// Makes a pair of keys, and returns the path of the secret one.
pub(super) fn make(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    keygen::make(directory, name).map(|files| files.secret)
}
