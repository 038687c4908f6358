//! The file in which earlier releases kept pending requests. Its requests are moved to the store.
//!
//! One line of JSON per request. The request itself is parsed like a received one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polymeter_proto::control::RoutedRequest;
use polymeter_proto::wire::control::ControlLine;
use serde::Deserialize;

use crate::limits;

/// The first line, which names the format.
const HEAD: &str = "{\"polymeter_requests\":1}";

/// The permission bits for users other than the owner to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The ending of the name that the file has after its requests are in the store.
const DONE: &str = "moved-to-store";

/// One request.
#[derive(Debug, Deserialize)]
struct Line {
    uid: u32,
    at_us: i64,
    until_us: i64,
    line: ControlLine,
    /// The sessions that have answered. Older files have the key `told`.
    #[serde(alias = "told")]
    answered: Vec<u64>,
}

/// A request of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FiledRequest {
    pub(super) request: RoutedRequest,
    /// The numeric id of the user.
    pub(super) uid: u32,
    /// The common time at which it takes effect, in microseconds since the epoch.
    pub(super) at_us: i64,
    /// The end of its effect, in microseconds since the epoch.
    pub(super) until_us: i64,
    /// The sessions that have answered.
    pub(super) answered: Vec<u64>,
}

/// Reads the requests of a file. Returns none if there is no file, else them and the number of invalid lines.
pub(super) fn read(path: &Path) -> io::Result<Option<(Vec<FiledRequest>, usize)>> {
    match read_text(path) {
        Ok(text) => Ok(Some(parse(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives the file another name, after its requests were stored. Returns the name.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.with_extension(DONE);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Reads a file that no other user could have written: a user that can write it can send requests in the name
/// of every user.
fn read_text(path: &Path) -> io::Result<String> {
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

/// Parses the file's text. Returns the requests, and the number of invalid lines.
pub(super) fn parse(text: &str) -> (Vec<FiledRequest>, usize) {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return (Vec::new(), text.lines().count());
    }
    let (mut requests, mut invalid) = (Vec::new(), 0);
    for line in lines {
        match serde_json::from_str(line).ok().and_then(request) {
            Some(request) if requests.len() < limits::PENDING_REQUESTS => requests.push(request),
            Some(_) | None => invalid += 1,
        }
    }
    (requests, invalid)
}

/// Parses the text of a file, and returns the number of its requests. For the fuzzer.
pub fn requests(file: &str) -> usize {
    parse(file).0.len()
}

fn request(line: Line) -> Option<FiledRequest> {
    let Line { uid, at_us, until_us, line, mut answered } = line;
    let request = RoutedRequest::parse(line.as_str().as_bytes()).ok()?;
    answered.truncate(limits::NODES);
    Some(FiledRequest { request, uid, at_us, until_us, answered })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file as the previous release wrote it, and one as the release before wrote it.
    const FILE: &str = r#"{"polymeter_requests":1}
{"uid":1000,"at_us":7,"until_us":100,"line":"{\"verb\":\"set\",\"job\":\"7\",\"plan\":{\"cpu.*\":\"10ms\"}}","answered":[1,2]}
{"uid":0,"at_us":8,"until_us":200,"line":"{\"verb\":\"reset\",\"job\":\"7\"}","told":[2]}
"#;

    #[test]
    fn reads_files_of_earlier_releases() {
        let (requests, invalid) = parse(FILE);
        assert_eq!((requests.len(), invalid), (2, 0));
        let FiledRequest { request, uid, at_us, until_us, answered } = &requests[0];
        assert_eq!((*uid, *at_us, *until_us, answered.as_slice()), (1000, 7, 100, &[1, 2][..]));
        assert_eq!(request.selectors, ["cpu.*"]);
        assert_eq!((requests[1].uid, requests[1].answered.as_slice()), (0, &[2][..]));
    }

    #[test]
    fn leaves_invalid_lines_out() {
        let (requests, invalid) = parse(&format!("{FILE}{{}}\nnonsense\n{{\"uid\":1}}\n"));
        assert_eq!((requests.len(), invalid), (2, 3));
        assert_eq!(parse("other\nlines\n").1, 2);
        assert_eq!(parse("").1, 0);
        let last = FILE.lines().last().unwrap();
        let many = format!("{FILE}{}", format!("{last}\n").repeat(limits::PENDING_REQUESTS));
        assert_eq!(parse(&many).0.len(), limits::PENDING_REQUESTS);
    }

    #[test]
    fn ignores_a_file_that_others_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("requests.json");
        assert_eq!(read(&path).unwrap(), None, "there is none");
        fs::write(&path, FILE).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().0.len(), 2);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        read(&path).unwrap_err();
        let aside = set_aside(&path).unwrap();
        assert!(aside.is_file() && read(&path).unwrap().is_none());
    }
}
