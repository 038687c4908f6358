//! Monitoring groups of this agent.
//!
//! A group is created for the first source of a job and removed after the last one. The agent holds a lock,
//! flock(2), on the directory of each group: a group without one was left behind by an agent that was killed,
//! and the next agent removes it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};

use super::counter::Counter;
use super::operations::Operations;
use super::text::Event;
use crate::sources::lock::lock;

/// Directory of the monitoring groups of the default control group.
pub(super) const GROUPS: &str = "mon_groups";

pub(super) const PREFIX: &str = "polymeter-";

/// Longest name of a group. A file name has at most 255 bytes.
const NAME_BYTES: usize = 200;

/// Attempts to create a group that another agent removes at the same time, as one that was left behind.
const ATTEMPTS: usize = 3;

/// Groups of this process, each with the number of its users.
static OPEN: Mutex<BTreeMap<PathBuf, (usize, Arc<Shared>)>> = Mutex::new(BTreeMap::new());

/// Name of the group of a job. Ids of jobs may be longer than names of files, and have other characters.
pub(super) fn name_of(job: &str) -> String {
    let mut name = PREFIX.to_owned();
    for byte in job.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.len() > NAME_BYTES {
        let mut hasher = DefaultHasher::new();
        job.hash(&mut hasher);
        name.truncate(NAME_BYTES);
        name.push_str(&format!("-{:016x}", hasher.finish()));
    }
    name
}

/// A monitoring group, with the counts since its first reading.
#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    operations: &'static dyn Operations,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Locked; `None` while there is none.
    directory: Option<File>,
    counters: BTreeMap<(u32, Event), Counter>,
}

impl Shared {
    /// Creates the group if it is not there. The counts continue in the new group.
    fn ensure(&self, state: &mut State) -> io::Result<()> {
        if state.directory.as_ref().is_some_and(|directory| is_at(directory, &self.path)) {
            return Ok(());
        }
        state.directory = None;
        state.counters.values_mut().for_each(Counter::begin_anew);
        for _ in 0..ATTEMPTS {
            match self.operations.create_group(&self.path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let Ok(directory) = File::open(&self.path) else { continue };
            flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
            if is_at(&directory, &self.path) {
                state.directory = Some(directory);
                return Ok(());
            }
        }
        Err(ErrorKind::NotFound.into())
    }
}

fn is_at(directory: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (Ok(open), Ok(there)) = (directory.metadata(), fs::metadata(path)) else { return false };
    identity(open) == identity(there)
}

/// A use of a monitoring group. The last one removes it.
#[derive(Debug)]
pub(super) struct Group(Arc<Shared>);

impl Group {
    /// Opens the group at `path`, and creates it if it is not open already. The error is
    /// [`ErrorKind::WouldBlock`] if it belongs to another agent.
    pub(super) fn open(path: &Path, operations: &'static dyn Operations) -> io::Result<Self> {
        let mut open = lock(&OPEN);
        if let Some((users, shared)) = open.get_mut(path) {
            *users += 1;
            return Ok(Self(Arc::clone(shared)));
        }
        let shared = Arc::new(Shared { path: path.to_owned(), operations, state: Mutex::default() });
        shared.ensure(&mut lock(&shared.state))?;
        open.insert(path.to_owned(), (1, Arc::clone(&shared)));
        Ok(Self(shared))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(super) fn ensure(&self) -> io::Result<()> {
        self.0.ensure(&mut lock(&self.0.state))
    }

    pub(super) fn add_task(&self, thread: u32) -> io::Result<()> {
        self.0.operations.add_task(&self.0.path, thread)
    }

    /// Takes a reading of a counter. Returns its increase since the first one.
    pub(super) fn count(&self, domain: u32, event: Event, raw: u64) -> u64 {
        lock(&self.0.state).counters.entry((domain, event)).or_default().read(raw)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        let Some((users, shared)) = open.get_mut(&self.0.path) else { return };
        *users = users.saturating_sub(1);
        if *users == 0 {
            // One that cannot be removed is left behind for the next agent.
            shared.operations.remove_group(&shared.path).ok();
            open.remove(&self.0.path);
        }
    }
}

/// Removes the groups that an agent which was killed has left behind. Returns their number.
pub(super) fn remove_left_behind(mount: &Path, operations: &dyn Operations) -> usize {
    let entries = fs::read_dir(mount.join(GROUPS)).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    ours.map(|entry| entry.path())
        .filter(|path| {
            // The lock is held until it is removed, so that no agent takes it over meanwhile.
            let Ok(directory) = File::open(path) else { return false };
            flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
                && operations.remove_group(path).is_ok()
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_job_has_a_name_of_its_own() {
        assert_eq!(name_of("4242"), "polymeter-4242");
        assert_eq!(name_of("4242_7.a-b"), "polymeter-4242_7.a-b");
        assert_eq!(name_of("../a b"), "polymeter-..%2fa%20b");
        assert_eq!(name_of("é%2f"), "polymeter-%c3%a9%252f");
        let long = |last: &str| name_of(&("é".repeat(127) + last));
        assert!(long("a").len() < 255 && long("a") != long("b"), "{}", long("a"));
        assert_eq!(long("a"), long("a"));
    }
}
