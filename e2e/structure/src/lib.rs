//! The import graph of the workspace's crates, read from their sources.
//!
//! A module is a file or a directory below `src`. Module A imports module B if a path in A's code, in a `use` or
//! elsewhere, leads to an item that B defines; re-exports are followed to the definition. Code under `#[cfg(test)]` does
//! not count.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a tool for developers: a source that cannot be read is a failure"
)]

pub mod cycles;
pub mod draw;
pub mod graph;
pub mod modules;
pub mod rules;

use std::path::{Path, PathBuf};

/// Returns the directory of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the directories of the workspace's crates, from the workspace's manifest.
#[must_use]
pub fn crates() -> Vec<PathBuf> {
    let root = workspace();
    let manifest = manifest(&root);
    let members = manifest["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| root.join(member.as_str().unwrap())).collect()
}

/// Reads the manifest in a directory.
#[must_use]
pub fn manifest(directory: &Path) -> toml::Table {
    let path = directory.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a path relative to the workspace, for messages.
#[must_use]
pub fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}
