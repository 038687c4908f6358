//! The file of pending requests: a restarted collector still sends them to agents that were disconnected.
//!
//! One line of JSON per request. The request itself is parsed like a received one.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::control::RoutedRequest;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::control::ControlLine;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

use super::pending_requests::{PendingRequest, PendingRequests};
use crate::limits;

/// The first line, which names the format.
const HEAD: &str = "{\"polymeter_requests\":1}";

/// The permission bits for users other than the owner to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// One request.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    uid: u32,
    at_us: i64,
    until_us: i64,
    line: ControlLine,
    /// The sessions that have answered. If there is no room for all of them, some receive the request twice.
    /// Older files have the key `told`.
    #[serde(alias = "told")]
    answered: Vec<u64>,
}

/// The file of pending requests.
#[derive(Debug)]
pub(super) struct PendingFile {
    path: PathBuf,
    is_stale: AtomicBool,
    turn: Mutex<()>,
}

impl PendingFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, is_stale: AtomicBool::new(false), turn: Mutex::new(()) }
    }

    /// Reads the file. An unusable file is logged, and left unchanged until there is something to write.
    pub(super) fn read(&self) -> PendingRequests {
        let is_new = || self.path.parent().is_some_and(Path::is_dir);
        let path = self.path.display();
        let text = match read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_new() => {
                return PendingRequests::default();
            }
            Err(error) => {
                let effect = "agents that were disconnected do not receive earlier requests";
                warn!(%error, %path, effect, "cannot read the pending requests");
                return PendingRequests::default();
            }
        };
        let (pending, invalid) = parse(&text);
        if invalid > 0 {
            warn!(%path, count = invalid, "cannot parse some lines of the pending requests");
        }
        pending
    }

    /// Writes the result of `text` after concurrent calls, unless another call has written the same
    /// meanwhile.
    pub(super) async fn write(&self, text: impl FnOnce() -> String) {
        self.is_stale.store(true, Relaxed);
        let _turn = self.turn.lock().await;
        if !self.is_stale.swap(false, Relaxed) {
            return;
        }
        let (path, text) = (self.path.clone(), text());
        let written = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
        if let Ok(Err(error)) = written {
            let effect = "if this collector stops, disconnected agents do not receive them";
            warn!(%error, path = %self.path.display(), effect, "cannot write the pending requests");
        }
    }
}

/// Reads a file that no other user could have written: a user that can write it can send requests in the name
/// of every user.
fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let own = [0, rustix::process::geteuid().as_raw()];
    if !own.contains(&metadata.uid()) || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other(
            "other users can write to it; run `chmod go-w` on it, and check its content",
        ));
    }
    if metadata.len() > limits::PENDING_FILE_BYTES as u64 {
        return Err(io::Error::other("it is too long"));
    }
    let mut text = String::new();
    file.take(limits::PENDING_FILE_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces the file atomically: if the process is killed, either the old or the new file remains.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    fs::rename(&next, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Formats the pending requests as the file's text.
pub(super) fn text(pending: &PendingRequests) -> String {
    let mut room = limits::PENDING_FILE_BYTES - limits::PENDING_BYTES * 2;
    let mut text = format!("{HEAD}\n");
    for pending in pending.iter() {
        let mut answered: Vec<u64> = pending.answered.iter().map(|session| session.0).collect();
        answered.sort_unstable();
        answered.truncate(room / SESSION_BYTES);
        room = room.saturating_sub(answered.len() * SESSION_BYTES + LINE_BYTES);
        let PendingRequest { uid, at_us, until_us, ref request, .. } = *pending;
        let line = Line { uid, at_us, until_us, line: request.line.clone(), answered };
        // Serialising numbers and texts cannot fail.
        if let Ok(line) = serde_json::to_string(&line) {
            writeln!(text, "{line}").ok();
        }
    }
    text
}

/// The maximum length of a session's number in a line, in bytes.
const SESSION_BYTES: usize = 21;

/// The maximum length of a line without its request and its sessions, in bytes.
const LINE_BYTES: usize = 128;

/// Parses the file's text. Returns the requests, and the number of invalid lines.
pub(super) fn parse(text: &str) -> (PendingRequests, usize) {
    let mut lines = text.lines();
    let (mut pending, mut invalid) = (PendingRequests::default(), 0);
    if lines.next() != Some(HEAD) {
        return (pending, text.lines().count());
    }
    for line in lines {
        match serde_json::from_str(line).ok().and_then(request) {
            Some(request) => pending.restore(request),
            None => invalid += 1,
        }
    }
    (pending, invalid)
}

/// Parses the text of a file and formats its requests again. For the fuzzer.
#[cfg(fuzzing)]
pub fn requests(file: &str) -> String {
    text(&parse(file).0)
}

fn request(line: Line) -> Option<PendingRequest> {
    let Line { uid, at_us, until_us, line, answered } = line;
    let request = RoutedRequest::parse(line.as_str().as_bytes()).ok()?;
    let answered: HashSet<SessionId> = answered.into_iter().take(limits::NODES).map(SessionId).collect();
    Some(PendingRequest { number: 0, request, uid, at_us, until_us, answered })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use polymeter_proto::series::Identifier;

    use super::super::pending_requests::SentRequest;
    use super::*;

    fn pending() -> PendingRequests {
        let mut pending = PendingRequests::default();
        let mut add = |line: &str, until_us: i64, answered: &[u64]| {
            let request = RoutedRequest::parse(line.as_bytes()).unwrap();
            let answered = answered.iter().copied().map(SessionId).collect();
            pending.add(SentRequest { request, uid: 1000, at_us: 7, until_us: Some(until_us), answered }, 0);
        };
        add(r#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"}}"#, 100, &[1, 2]);
        add(r#"{"verb":"reset","job":"7"}"#, 0, &[2]);
        add(r#"{"verb":"set","job":"7","plan":{"memory.*":"10ms"}}"#, 200, &[]);
        pending
    }

    fn unanswered(pending: &PendingRequests, session: u64) -> Vec<String> {
        let unanswered = pending.unanswered(&Identifier::try_from("7").unwrap(), SessionId(session), 50);
        unanswered
            .into_iter()
            .map(|resend| format!("{} {} {}", resend.uid, resend.at_us, resend.line.as_str()))
            .collect()
    }

    #[test]
    fn reads_what_it_has_written() {
        let before = pending();
        let (after, invalid) = parse(&text(&before));
        assert_eq!(invalid, 0);
        for session in [1, 2, 3] {
            assert_eq!(unanswered(&after, session), unanswered(&before, session));
        }
        assert_eq!(unanswered(&after, 3).len(), 2, "the first was reset");
        let numbers = after.unanswered(&Identifier::try_from("7").unwrap(), SessionId(3), 50);
        assert_ne!(numbers[0].number, numbers[1].number, "each is known by its number");
    }

    #[test]
    fn reads_the_key_of_older_files() {
        let old = text(&pending()).replace("\"answered\"", "\"told\"");
        let (after, invalid) = parse(&old);
        assert_eq!((invalid, unanswered(&after, 3).len()), (0, 2));
    }

    #[test]
    fn leaves_invalid_lines_out() {
        let good = text(&pending());
        let (after, invalid) = parse(&format!("{good}{{}}\nnonsense\n{{\"uid\":1}}\n"));
        assert_eq!((unanswered(&after, 3).len(), invalid), (2, 3));
        assert_eq!(parse("other\nlines\n").1, 2);
        assert_eq!(parse("").1, 0);
        let (after, _) = parse(&good.repeat(limits::PENDING_REQUESTS).replace(HEAD, "").replacen(
            '\n',
            &format!("{HEAD}\n"),
            1,
        ));
        assert!(after.iter().count() <= limits::PENDING_REQUESTS);
    }

    #[test]
    fn ignores_a_file_that_others_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("requests.json");
        let pending_file = PendingFile::at(path.clone());
        assert_eq!(unanswered(&pending_file.read(), 3), [""; 0], "there is none");
        replace(&path, &text(&pending())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(unanswered(&pending_file.read(), 3).len(), 2);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        assert_eq!(unanswered(&pending_file.read(), 3), [""; 0]);
    }
}
