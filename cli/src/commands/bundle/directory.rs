//! The directory of a bundle: files go in, and in the end the manifest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::manifest::{self, BYTES_MAX, Manifest};
use crate::failure::Failure;

/// How deep a bundle's directories may lie. More is none of ours, and a loop of mounts would never end.
const DEPTH_MAX: usize = 8;

/// A bundle that is being made.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// A new one, or one that is there and has nothing in it.
    pub(super) fn make(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| cannot("make", path, &error))?;
        let mut entries = fs::read_dir(path).map_err(|error| cannot("read", path, &error))?;
        if entries.next().is_some() {
            let path = path.display();
            return Err(Failure::Refused(format!("{path} is not empty; say another directory with --out")));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// One whose files are there already.
    pub(super) fn of_results(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Ok(Self { path: path.to_owned() });
        }
        Err(Failure::Refused(format!("{} is no directory", path.display())))
    }

    /// Where a file of this name lies.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file that is to be written piece by piece.
    pub(super) fn create(&self, name: &str) -> Result<File, Failure> {
        let path = self.file(name);
        File::create(&path).map_err(|error| cannot("write", &path, &error))
    }

    /// Puts a text there.
    pub(super) fn text(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.file(name);
        fs::write(&path, text).map_err(|error| cannot("write", &path, &error))
    }

    /// Puts a value there as JSON.
    pub(super) fn json(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::refused(&format!("cannot write {name}"), &error))?;
        self.text(name, &(text + "\n"))
    }

    /// Writes the manifest of all that is there.
    pub(super) fn seal(&self) -> Result<(), Failure> {
        let found = found(&self.path).map_err(|error| cannot("read", &self.path, &error))?;
        self.text(manifest::NAME, &found.to_string())
    }
}

/// What the manifest of the bundle at `path` says.
pub(super) fn said(path: &Path) -> Result<Manifest, Failure> {
    let place = path.join(manifest::NAME);
    let mut text = String::new();
    // Opening a FIFO would wait for ever.
    if fs::symlink_metadata(&place).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Failure::Refused(format!("{} is no file", place.display())));
    }
    File::open(&place)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| cannot("read", &place, &error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::Refused(format!("{} has more than {BYTES_MAX} bytes", place.display())));
    }
    Manifest::parse(&text)
        .map_err(|line| Failure::Refused(format!("{}:{}: no hash and path", place.display(), line.0)))
}

/// All files of the directory at `path`, and their hashes.
pub(super) fn found(path: &Path) -> io::Result<Manifest> {
    let mut files = BTreeMap::new();
    walk(path, "", DEPTH_MAX, &mut files)?;
    files.remove(manifest::NAME);
    Ok(Manifest(files))
}

fn walk(path: &Path, prefix: &str, depth: usize, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(io::Error::other(format!("{prefix} lies deeper than {DEPTH_MAX} directories")));
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
            // A link would let another file pass for one of the bundle's.
            return Err(io::Error::other(format!(
                "{name:?} is neither a file nor a directory with a plain name"
            )));
        }
    }
    Ok(())
}

pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Refused(format!("cannot {what} {}: {error}", path.display()))
}
