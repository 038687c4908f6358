//! The structure of the workspace, read from its manifests and sources.
//!
//! A module is a file or a directory below `src`. Module A imports module B if a path in A's code, in a `use`
//! or elsewhere, leads to an item that B defines; re-exports are followed to the definition. Code under
//! `#[cfg(test)]` does not count.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a tool for developers: a source that cannot be read is a failure"
)]

pub mod check;
pub mod cycles;
pub mod draw;
pub mod graph;
pub mod modules;
pub mod rules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::graph::Target;

#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Directories of the crates of the workspace below `root`, relative to it.
#[must_use]
pub fn members(root: &Path) -> Vec<String> {
    let manifest = manifest(root);
    let members = manifest["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

#[derive(Debug)]
pub struct Workspace {
    pub root: PathBuf,
    /// Listed in the order of the manifest.
    pub members: Vec<Member>,
    /// Names of the workspace's dependencies, as code spells them.
    pub dependencies: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Member {
    /// Relative to the workspace.
    pub directory: String,
    pub package: String,
    /// Packages that it depends on, without those of its tests.
    pub dependencies: BTreeSet<String>,
    /// The library and each program.
    pub targets: Vec<Target>,
}

impl Workspace {
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let manifest = manifest(root);
        let declared = manifest["workspace"].get("dependencies").and_then(toml::Value::as_table);
        Self {
            root: root.to_owned(),
            members: members(root).iter().map(|member| Member::read(root, member)).collect(),
            dependencies: declared.into_iter().flatten().map(|(name, _)| name.replace('-', "_")).collect(),
        }
    }

    /// Makes a path relative to the workspace, for messages.
    #[must_use]
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.members.iter().flat_map(|member| &member.targets)
    }

    #[must_use]
    pub fn package(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.package == name)
    }
}

impl Member {
    fn read(root: &Path, directory: &str) -> Self {
        let manifest = manifest(&root.join(directory));
        let mut tables = vec![&manifest];
        let conditional = manifest.get("target").and_then(toml::Value::as_table);
        tables.extend(conditional.into_iter().flatten().filter_map(|(_, table)| table.as_table()));
        let dependencies = tables
            .iter()
            .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")])
            .filter_map(|dependencies| dependencies?.as_table())
            .flat_map(|dependencies| dependencies.keys().cloned())
            .collect();
        Self {
            directory: directory.to_owned(),
            package: manifest["package"]["name"].as_str().unwrap().to_owned(),
            dependencies,
            targets: graph::targets(&root.join(directory)),
        }
    }
}

fn manifest(directory: &Path) -> toml::Table {
    let path = directory.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
