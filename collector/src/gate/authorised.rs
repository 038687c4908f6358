//! The directory of authorised agents: `NAME.pub` for each, with its public key.
//!
//! What changed there counts for the next connection. A file that was edited in place, which leaves its directory as it
//! was, counts after [`limits::KEYS_READ_AGAIN`] at the latest.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::key::{KeyFileError, PublicKey};
use polymeter_proto::series::Identifier;

use crate::clock::Now;
use crate::keys;
use crate::{limits, log};

/// Whose key is whose.
pub(super) type Names = HashMap<PublicKey, Arc<Identifier>>;

/// The directory, and what it was when it was read.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    seen: Option<Seen>,
    /// What the log was told when it was last read: once is enough.
    complaints: Vec<String>,
}

/// What the directory was when it was read.
#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    at: Now,
}

/// What of a directory changes when a file is added, removed or renamed.
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

    /// Whether a further change at `now` might leave the stamp as it is, since file systems count time in ticks.
    const fn is_fresh(&self, now: Now) -> bool {
        now.wall_us / 1_000_000 - self.changed_s <= 1
    }
}

impl Directory {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, seen: None, complaints: Vec::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the directory holds, if it may have changed since it was last read.
    ///
    /// # Errors
    /// When it cannot be read, or others can change it. Nobody is authorised by it then.
    pub(super) fn changed(&mut self, now: Now) -> Result<Option<Names>, KeyFileError> {
        // Nothing that was seen counts any more if this fails.
        let seen = self.seen.take();
        let cannot_read = |error| KeyFileError::Read(self.path.clone(), error);
        let stamp = Stamp::of(&keys::check_directory(&self.path)?);
        let is_known = |seen: &Seen| {
            seen.stamp == stamp
                && !seen.stamp.is_fresh(seen.at)
                && now.since_start.saturating_sub(seen.at.since_start) < limits::KEYS_READ_AGAIN
        };
        if seen.as_ref().is_some_and(is_known) {
            self.seen = seen;
            return Ok(None);
        }
        let (names, complaints) = read(&self.path).map_err(cannot_read)?;
        for complaint in complaints.iter().filter(|complaint| !self.complaints.contains(complaint)) {
            log::warning(complaint);
        }
        (self.complaints, self.seen) = (complaints, Some(Seen { stamp, at: now }));
        Ok(Some(names))
    }
}

/// The keys in a directory, and what is wrong with files in it.
fn read(path: &Path) -> io::Result<(Names, Vec<String>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension() == Some(OsStr::new("pub")) {
            files.push(file);
        }
        if files.len() > limits::AUTHORISED_AGENTS {
            return Err(io::Error::other(format!("it has more than {} keys", limits::AUTHORISED_AGENTS)));
        }
    }
    // So that of two files with the same key it is always the same one that counts.
    files.sort();
    Ok(judge(&files, keys::read_public))
}

/// The keys in `files`, each of which `read` reads, and what is wrong with them.
fn judge(files: &[PathBuf], read: impl Fn(&Path) -> Result<PublicKey, KeyFileError>) -> (Names, Vec<String>) {
    let (mut names, mut complaints) = (Names::new(), Vec::new());
    for file in files {
        let name = file.file_stem().and_then(OsStr::to_str).map(Identifier::try_from);
        let Some(Ok(name)) = name else {
            complaints
                .push(format!("{}: this cannot be an agent's name; the key is not used", file.display()));
            continue;
        };
        match read(file) {
            Ok(key) => {
                let name = Arc::new(name);
                let counts = names.entry(key).or_insert_with(|| Arc::clone(&name));
                if *counts != name {
                    complaints.push(format!(
                        "{}: this key is {counts}'s already, and counts as that",
                        file.display()
                    ));
                }
            }
            Err(error) => complaints.push(format!("{error}; the key is not used")),
        }
    }
    (names, complaints.into_iter().take(limits::KEY_COMPLAINTS).collect())
}

/// For the fuzzer: the names of the keys that a directory with these files would authorise, and the complaints. Of each
/// file the name and the content.
#[cfg(fuzzing)]
pub fn authorise(files: &[(PathBuf, &[u8])]) -> (Vec<Arc<Identifier>>, Vec<String>) {
    let guard = polymeter_proto::key::Guard { owner: 0, mode: 0o644, user: 0, service: None };
    let content =
        |path: &Path| files.iter().find(|(file, _)| file == path).map_or(&b""[..], |(_, text)| text);
    let paths: Vec<_> = files.iter().map(|(path, _)| path.clone()).collect();
    let (names, complaints) = judge(&paths, |path| PublicKey::from_file(path, guard, content(path)));
    (names.into_values().collect(), complaints)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    fn key(byte: u8) -> PublicKey {
        PublicKey::new([byte; 32])
    }

    fn names(directory: &mut Directory, now: Now) -> Option<Vec<(PublicKey, String)>> {
        let names = directory.changed(now).unwrap()?;
        let mut names: Vec<_> = names.into_iter().map(|(key, name)| (key, name.to_string())).collect();
        names.sort_by(|a, b| a.1.cmp(&b.1));
        Some(names)
    }

    #[test]
    fn what_comes_and_goes_is_seen_and_nothing_is_read_twice() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, byte| fs::write(place.path().join(name), key(byte).to_text("x")).unwrap();
        let mut directory = Directory::new(place.path().to_owned());
        let now = Clock::start().now();
        write("n1.pub", 1);
        write("n2.pub", 2);
        write("n3.key", 3);
        let both = vec![(key(1), "n1".to_owned()), (key(2), "n2".to_owned())];
        assert_eq!(names(&mut directory, now), Some(both.clone()));
        let second = limits::KEYS_READ_AGAIN / 30;
        let later = |wait: u32| Now {
            wall_us: now.wall_us + i64::from(wait) * 1_000_000,
            since_start: now.since_start + second * wait,
        };
        assert_eq!(
            names(&mut directory, later(1)),
            Some(both.clone()),
            "it may have changed in the same tick"
        );
        assert_eq!(names(&mut directory, later(10)), Some(both.clone()));
        assert_eq!(names(&mut directory, later(11)), None);
        assert_eq!(names(&mut directory, later(50)), Some(both), "edited in place");
        // File systems count time in ticks of some milliseconds, and the times above are not the file system's.
        std::thread::park_timeout(Duration::from_millis(20));
        fs::remove_file(place.path().join("n1.pub")).unwrap();
        assert_eq!(names(&mut directory, later(51)), Some(vec![(key(2), "n2".to_owned())]));
        drop(place);
        assert!(directory.changed(later(52)).is_err());
    }

    #[test]
    fn bad_files_are_told_of_and_keep_nobody_else_out() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("a.pub"), key(1).to_text("a")).unwrap();
        fs::write(at("b.pub"), key(1).to_text("b")).unwrap();
        fs::write(at("c.pub"), "nonsense").unwrap();
        fs::write(at("d.pub"), key(4).to_text("d")).unwrap();
        fs::set_permissions(at("d.pub"), PermissionsExt::from_mode(0o666)).unwrap();
        fs::write(at("e'.pub"), key(5).to_text("e")).unwrap();
        fs::create_dir(at("f.pub")).unwrap();
        let (names, complaints) = read(place.path()).unwrap();
        assert_eq!(names.len(), 1);
        assert_eq!(names.get(&key(1)).map(ToString::to_string), Some("a".to_owned()));
        for (file, why) in [
            ("b.pub", "a's already"),
            ("c.pub", "line 1"),
            ("d.pub", "chmod go-w"),
            ("e'.pub", "name"),
            ("f.pub", "no file"),
        ] {
            let said = |complaint: &&String| complaint.contains(file) && complaint.contains(why);
            assert_eq!(complaints.iter().filter(said).count(), 1, "{file} {why}: {complaints:?}");
        }
        fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let exposed = Directory::new(place.path().to_owned()).changed(Clock::start().now()).unwrap_err();
        assert!(exposed.to_string().contains("chmod go-w"), "{exposed}");
    }
}
