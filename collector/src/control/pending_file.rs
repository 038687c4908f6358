//! What is pending, in a file: a collector that is started anew tells agents that were away what its last life promised.
//!
//! One line of JSON for each request. What a line means is found out of the request itself, as when it came.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::control::ControlLine;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::pending_requests::{Again, Entry, PendingRequests};
use super::request;
use tracing::warn;

use crate::limits;

/// What makes a file readable by programs that know this form.
const HEAD: &str = "{\"polymeter_requests\":1}";

/// The bits of a mode by which others than the owner could write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// One request.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    uid: u32,
    at_us: i64,
    until_us: i64,
    line: ControlLine,
    /// The sessions that have answered. Where there is no room for all of them, some are told twice.
    told: Vec<u64>,
}

/// The file, and whether what it says is old.
#[derive(Debug)]
pub(super) struct PendingFile {
    path: PathBuf,
    is_old: AtomicBool,
    turn: Mutex<()>,
}

impl PendingFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, is_old: AtomicBool::new(false), turn: Mutex::new(()) }
    }

    /// What the file says. A file that cannot be used is told of and left alone until there is something to write.
    pub(super) fn read(&self) -> PendingRequests {
        let is_new = || self.path.parent().is_some_and(Path::is_dir);
        let text = match read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_new() => {
                return PendingRequests::default();
            }
            Err(error) => {
                warn!(
                    %error,
                    remedy = "agents that were disconnected do not receive earlier requests",
                    path = %self.path.display(),
                    "cannot read the pending requests"
                );
                return PendingRequests::default();
            }
        };
        let (pending, unreadable) = parse(&text);
        if unreadable > 0 {
            warn!(
                count = unreadable,
                path = %self.path.display(),
                "cannot parse some lines of the pending requests"
            );
        }
        pending
    }

    /// Writes what `text` says, once it is this caller's turn and unless another has written the same meanwhile.
    pub(super) async fn write(&self, text: impl FnOnce() -> String) {
        self.is_old.store(true, Relaxed);
        let _turn = self.turn.lock().await;
        if !self.is_old.swap(false, Relaxed) {
            return;
        }
        let (path, text) = (self.path.clone(), text());
        let written = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
        if let Ok(Err(error)) = written {
            warn!(
                %error,
                remedy = "if the collector stops, disconnected agents will not receive the requests",
                path = %self.path.display(),
                "cannot write the pending requests"
            );
        }
    }
}

/// The text of a file that nobody else could have written: who can write it asks in everybody's name.
fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let own = [0, rustix::process::geteuid().as_raw()];
    if !own.contains(&metadata.uid()) || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other("others can write it; it is not believed"));
    }
    if metadata.len() > limits::KEPT_BYTES as u64 {
        return Err(io::Error::other("it is too long"));
    }
    let mut text = String::new();
    file.take(limits::KEPT_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Puts a new file in the place of the old one: whoever is killed leaves one of both.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    fs::rename(&next, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// The text of a file that says what is pending.
pub(super) fn text(pending: &PendingRequests) -> String {
    let mut room = limits::KEPT_BYTES - limits::REMEMBERED_BYTES * 2;
    let mut text = format!("{HEAD}\n");
    for entry in pending.entries() {
        let mut told: Vec<u64> = entry.told.iter().map(|session| session.0).collect();
        told.sort_unstable();
        told.truncate(room / TOLD_BYTES);
        room = room.saturating_sub(told.len() * TOLD_BYTES + LINE_BYTES);
        let Again { uid, at_us, ref line, .. } = entry.again;
        let line = Line { uid, at_us, until_us: entry.until_us, line: line.clone(), told };
        // Neither numbers nor texts can be refused.
        if let Ok(line) = serde_json::to_string(&line) {
            writeln!(text, "{line}").ok();
        }
    }
    text
}

/// The most that a session's number takes in a line.
const TOLD_BYTES: usize = 21;

/// The most that a line takes beside its request and its sessions.
const LINE_BYTES: usize = 128;

/// What a text says, and how many of its lines say nothing that can be understood.
pub(super) fn parse(text: &str) -> (PendingRequests, usize) {
    let mut lines = text.lines();
    let (mut pending, mut unreadable) = (PendingRequests::default(), 0);
    if lines.next() != Some(HEAD) {
        return (pending, text.lines().count());
    }
    for line in lines {
        let entry = serde_json::from_str(line).ok().and_then(entry);
        match entry {
            Some(entry) => pending.restore(entry),
            None => unreadable += 1,
        }
    }
    (pending, unreadable)
}

/// For the fuzzer: what a file would say that says what was understood of `file`.
#[cfg(fuzzing)]
pub fn requests(file: &str) -> String {
    text(&parse(file).0)
}

fn entry(line: Line) -> Option<Entry> {
    let Line { uid, at_us, until_us, line, told } = line;
    let request = request::parse(line.as_str().as_bytes()).ok()?;
    let told: HashSet<SessionId> = told.into_iter().take(limits::NODES).map(SessionId).collect();
    let again = Again { number: 0, uid, at_us, line: request.line };
    Some(Entry { again, job: request.job, kind: request.kind, until_us, told })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use polymeter_proto::series::Identifier;

    use super::super::pending_requests::Passed;
    use super::*;

    fn pending() -> PendingRequests {
        let mut pending = PendingRequests::default();
        let mut add = |line: &str, until_us: i64, told: &[u64]| {
            let request = request::parse(line.as_bytes()).unwrap();
            let told = told.iter().copied().map(SessionId).collect();
            let (job, kind, line) = (request.job, request.kind, request.line);
            pending.add(Passed { job, kind, uid: 1000, at_us: 7, line, until_us: Some(until_us), told }, 0);
        };
        add(r#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"}}"#, 100, &[1, 2]);
        add(r#"{"verb":"reset","job":"7"}"#, 0, &[2]);
        add(r#"{"verb":"set","job":"7","plan":{"memory.*":"10ms"}}"#, 200, &[]);
        pending
    }

    fn missed(pending: &PendingRequests, session: u64) -> Vec<String> {
        let missed = pending.missed(&Identifier::try_from("7").unwrap(), SessionId(session), 50);
        missed
            .into_iter()
            .map(|again| format!("{} {} {}", again.uid, again.at_us, again.line.as_str()))
            .collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let before = pending();
        let (after, unreadable) = parse(&text(&before));
        assert_eq!(unreadable, 0);
        for session in [1, 2, 3] {
            assert_eq!(missed(&after, session), missed(&before, session));
        }
        assert_eq!(missed(&after, 3).len(), 2, "the first was taken back");
        let numbers = after.missed(&Identifier::try_from("7").unwrap(), SessionId(3), 50);
        assert_ne!(numbers[0].number, numbers[1].number, "each is known by its number");
    }

    #[test]
    fn what_cannot_be_understood_is_left_out() {
        let good = text(&pending());
        let (after, unreadable) = parse(&format!("{good}{{}}\nnonsense\n{{\"uid\":1}}\n"));
        assert_eq!((missed(&after, 3).len(), unreadable), (2, 3));
        assert_eq!(parse("other\nlines\n").1, 2);
        assert_eq!(parse("").1, 0);
        let (after, _) =
            parse(&good.repeat(limits::REMEMBERED).replace(HEAD, "").replacen('\n', &format!("{HEAD}\n"), 1));
        assert!(after.entries().count() <= limits::REMEMBERED);
    }

    #[test]
    fn a_file_that_others_can_write_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("requests.json");
        let pending_file = PendingFile::at(path.clone());
        assert_eq!(missed(&pending_file.read(), 3), [""; 0], "there is none");
        replace(&path, &text(&pending())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(missed(&pending_file.read(), 3).len(), 2);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        assert_eq!(missed(&pending_file.read(), 3), [""; 0]);
    }
}
