//! Directory of a bundle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use polymeter_service::own_file;
use serde::Serialize;

use super::manifest::{self, BYTES_MAX, Manifest};
use crate::failure::Failure;
use crate::output::printable::printable_json;

/// Ends the search in a loop of mounts.
const DEPTH_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct BundleDirectory {
    path: PathBuf,
}

impl BundleDirectory {
    /// Uses an existing directory if it is empty.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| io_failure("create", path, &error))?;
        let mut entries = fs::read_dir(path).map_err(|error| io_failure("read", path, &error))?;
        if entries.next().is_some() {
            let path = path.display();
            return Err(Failure::Failed(format!(
                "cannot create {path}: the directory is not empty; name another with --out"
            )));
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn of_results(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Ok(Self { path: path.to_owned() });
        }
        Err(Failure::Failed(format!("cannot seal {}: not a directory", path.display())))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn create_file(&self, name: &str) -> Result<File, Failure> {
        let path = self.file(name);
        own_file::create(&path).map_err(|error| io_failure("write", &path, &error))
    }

    pub(super) fn add_text(&self, name: &str, text: &str) -> Result<(), Failure> {
        let written = self.create_file(name)?.write_all(text.as_bytes());
        written.map_err(|error| io_failure("write", &self.file(name), &error))
    }

    /// Escapes invisible characters.
    pub(super) fn add_json(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::because(&format!("cannot write {name}"), &error))?;
        self.add_text(name, &(printable_json(&text).into_owned() + "\n"))
    }

    pub(super) fn add_manifest(&self) -> Result<(), Failure> {
        let files = hash_files(&self.path).map_err(|error| io_failure("read", &self.path, &error))?;
        self.add_text(manifest::NAME, &files.to_string())
    }
}

pub(super) fn read_manifest(path: &Path) -> Result<Manifest, Failure> {
    let path = path.join(manifest::NAME);
    let mut text = String::new();
    // Opening a FIFO would block.
    if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Failure::Failed(format!("cannot read {}: not a regular file", path.display())));
    }
    File::open(&path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| io_failure("read", &path, &error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::Failed(format!("cannot read {}: more than {BYTES_MAX} bytes", path.display())));
    }
    Manifest::parse(&text)
        .map_err(|line| Failure::Failed(format!("{}:{}: expected a hash and a path", path.display(), line.0)))
}

pub(super) fn hash_files(path: &Path) -> io::Result<Manifest> {
    let mut files = BTreeMap::new();
    walk(path, "", DEPTH_MAX, &mut files)?;
    files.remove(manifest::NAME);
    Ok(Manifest(files))
}

fn walk(path: &Path, prefix: &str, depth: usize, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(io::Error::other(format!("{prefix} is nested deeper than {DEPTH_MAX} directories")));
    };
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let own_name = entry.file_name();
        let name = format!("{prefix}{}", own_name.to_string_lossy());
        let kind = entry.file_type()?;
        let is_plain = own_name.to_str().is_some_and(|name| !name.contains('\n'));
        if kind.is_dir() {
            walk(&entry.path(), &format!("{name}/"), depth, files)?;
        } else if kind.is_file() && is_plain {
            let hash = manifest::hash(&entry.path());
            files.insert(name.clone(), hash.map_err(|error| io::Error::other(format!("{name}: {error}")))?);
        } else {
            // A link could lead to a file outside of the bundle.
            return Err(io::Error::other(format!(
                "{name:?} is neither a regular file nor a directory, or its name contains a line feed"
            )));
        }
    }
    Ok(())
}

pub(super) fn io_failure(verb: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot {verb} {}: {error}", path.display()))
}
