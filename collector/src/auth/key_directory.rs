//! Directory of authorised keys: a file `NODE.pub` for each agent.
//!
//! A changed directory takes effect for the next connection. A file that is edited in place, which does not
//! change its directory, takes effect after at most [`limits::KEYS_REREAD_INTERVAL`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::key::{KeyFileError, PublicKey};
use polymeter_proto::series::Identifier;

use polymeter_service::clock::Now;
use polymeter_service::key_files::{check_directory, read_public_key};
use tracing::warn;

use crate::limits;

pub(super) type NodesByKey = HashMap<PublicKey, Arc<Identifier>>;

#[derive(Debug)]
pub(super) struct KeyDirectory {
    path: PathBuf,
    last_read: Option<LastRead>,
    /// Logged when it was last read, so that each is logged once.
    faults: Vec<String>,
}

#[derive(Debug)]
struct LastRead {
    stamp: Stamp,
    at: Now,
}

impl LastRead {
    fn is_current(&self, stamp: Stamp, now: Now) -> bool {
        self.stamp == stamp
            && !self.stamp.is_fresh(self.at)
            && now.since_start.saturating_sub(self.at.since_start) < limits::KEYS_REREAD_INTERVAL
    }
}

/// Metadata of a directory that change when a file is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    mode: u32,
    changed_s: i64,
    changed_ns: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            mode: metadata.mode(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        }
    }

    /// Another change at `now` might leave the stamp unchanged, since timestamps of file systems are coarse.
    const fn is_fresh(&self, now: Now) -> bool {
        now.wall_us / 1_000_000 - self.changed_s <= 1
    }
}

impl KeyDirectory {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, last_read: None, faults: Vec::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Contents of the directory if it may have changed since it was last read.
    ///
    /// Fails if it cannot be read, or other users can change it. No agent is authorised then.
    pub(super) fn changed(&mut self, now: Now) -> Result<Option<NodesByKey>, KeyFileError> {
        // If this fails, the next call must read the directory.
        let last_read = self.last_read.take();
        let stamp = Stamp::of(&check_directory(&self.path)?);
        if last_read.as_ref().is_some_and(|last| last.is_current(stamp, now)) {
            self.last_read = last_read;
            return Ok(None);
        }
        let (nodes, faults) =
            read(&self.path).map_err(|error| KeyFileError::Read(self.path.clone(), error))?;
        for fault in faults.iter().filter(|fault| !self.faults.contains(fault)) {
            warn!(error = %fault, "cannot use an authorised key");
        }
        (self.faults, self.last_read) = (faults, Some(LastRead { stamp, at: now }));
        Ok(Some(nodes))
    }
}

fn read(path: &Path) -> io::Result<(NodesByKey, Vec<String>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension() == Some(OsStr::new("pub")) {
            files.push(file);
        }
        if files.len() > limits::AUTHORISED_AGENTS {
            return Err(io::Error::other(format!(
                "the directory has more than {} keys",
                limits::AUTHORISED_AGENTS
            )));
        }
    }
    // Sorted, so that the choice between two files with the same key is deterministic.
    files.sort();
    Ok(collect(&files, read_public_key))
}

/// `read` reads the files one by one.
fn collect(
    files: &[PathBuf],
    read: impl Fn(&Path) -> Result<PublicKey, KeyFileError>,
) -> (NodesByKey, Vec<String>) {
    let (mut nodes, mut faults) = (NodesByKey::new(), Vec::new());
    for file in files {
        let name = file.file_stem().and_then(OsStr::to_str).map(Identifier::try_from);
        let Some(Ok(name)) = name else {
            faults.push(format!("{}: the file name is not a valid node name", file.display()));
            continue;
        };
        match read(file) {
            Ok(key) => {
                let name = Arc::new(name);
                let first = nodes.entry(key).or_insert_with(|| Arc::clone(&name));
                if *first != name {
                    faults.push(format!("{}: same key as in {first}.pub", file.display()));
                }
            }
            Err(error) => faults.push(error.to_string()),
        }
    }
    (nodes, faults.into_iter().take(limits::KEY_FAULTS).collect())
}

/// Nodes that a directory with these files (names and contents) would authorise, and the faults; used by the
/// fuzzer.
pub fn authorise(files: &[(PathBuf, &[u8])]) -> (Vec<Arc<Identifier>>, Vec<String>) {
    let guard = polymeter_proto::key::Guard { owner: 0, mode: 0o644, user: 0, service: None };
    let content =
        |path: &Path| files.iter().find(|(file, _)| file == path).map_or(&b""[..], |(_, text)| text);
    let paths: Vec<_> = files.iter().map(|(path, _)| path.clone()).collect();
    let (nodes, faults) = collect(&paths, |path| PublicKey::from_file(path, guard, content(path)));
    (nodes.into_values().collect(), faults)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use polymeter_service::clock::Clock;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        PublicKey::new([byte; 32])
    }

    fn nodes(directory: &mut KeyDirectory, now: Now) -> Option<Vec<(PublicKey, String)>> {
        let nodes = directory.changed(now).unwrap()?;
        let mut nodes: Vec<_> = nodes.into_iter().map(|(key, name)| (key, name.to_string())).collect();
        nodes.sort_by(|a, b| a.1.cmp(&b.1));
        Some(nodes)
    }

    #[test]
    fn rereads_the_directory_only_when_it_may_have_changed() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, byte| fs::write(place.path().join(name), key(byte).to_text("x")).unwrap();
        let mut directory = KeyDirectory::new(place.path().to_owned());
        let now = Clock::start().now();
        write("n1.pub", 1);
        write("n2.pub", 2);
        write("n3.key", 3);
        let both = vec![(key(1), "n1".to_owned()), (key(2), "n2".to_owned())];
        assert_eq!(nodes(&mut directory, now), Some(both.clone()));
        let second = limits::KEYS_REREAD_INTERVAL / 30;
        let later = |wait: u32| Now {
            wall_us: now.wall_us + i64::from(wait) * 1_000_000,
            since_start: now.since_start + second * wait,
        };
        assert_eq!(
            nodes(&mut directory, later(1)),
            Some(both.clone()),
            "it may have changed in the same tick"
        );
        assert_eq!(nodes(&mut directory, later(10)), Some(both.clone()));
        assert_eq!(nodes(&mut directory, later(11)), None);
        assert_eq!(nodes(&mut directory, later(50)), Some(both), "edited in place");
        // File systems have timestamps of some milliseconds, and the times above are not the file system's.
        std::thread::park_timeout(Duration::from_millis(20));
        fs::remove_file(place.path().join("n1.pub")).unwrap();
        assert_eq!(nodes(&mut directory, later(51)), Some(vec![(key(2), "n2".to_owned())]));
        drop(place);
        assert!(directory.changed(later(52)).is_err());
    }

    #[test]
    fn invalid_files_are_reported_and_affect_no_other_agent() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("a.pub"), key(1).to_text("a")).unwrap();
        fs::write(at("b.pub"), key(1).to_text("b")).unwrap();
        fs::write(at("c.pub"), "nonsense").unwrap();
        fs::write(at("d.pub"), key(4).to_text("d")).unwrap();
        fs::set_permissions(at("d.pub"), PermissionsExt::from_mode(0o666)).unwrap();
        fs::write(at("e\u{202e}.pub"), key(5).to_text("e")).unwrap();
        fs::create_dir(at("f.pub")).unwrap();
        let (nodes, faults) = read(place.path()).unwrap();
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes.get(&key(1)).map(ToString::to_string), Some("a".to_owned()));
        for (file, why) in [
            ("b.pub", "same key as in a.pub"),
            ("c.pub", "line 1"),
            ("d.pub", "chmod go-w"),
            ("e\u{202e}.pub", "name"),
            ("f.pub", "not a regular file"),
        ] {
            assert_eq!(
                faults.iter().filter(|fault| fault.contains(file) && fault.contains(why)).count(),
                1,
                "{file} {why}: {faults:?}"
            );
        }
        fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let exposed = KeyDirectory::new(place.path().to_owned()).changed(Clock::start().now()).unwrap_err();
        assert!(exposed.to_string().contains("chmod go-w"), "{exposed}");
    }
}
