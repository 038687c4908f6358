//! Other inputs of the collector: key files, the directory of authorised agents, ZAP requests of libzmq, HTTP
//! requests for the metrics, and the output of `unmunge`. All parsers read the same bytes, since each is
//! fast.

use std::path::PathBuf;

use polymeter_collector::fuzzing;
use polymeter_proto::key::{KeyPair, PublicKey};

pub fn body(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        keys(text);
    }
    authorised(data);
    zap(data);
    http(data);
    if let Some((_, payload)) = fuzzing::signed(data) {
        assert!(data.ends_with(&payload) && payload.len() + b"STATUS:0\nUID:0\n\n".len() <= data.len());
    }
}

/// Checks that a parsed key is unchanged after formatting and parsing.
fn keys(text: &str) {
    if let Ok(key) = PublicKey::from_text(text) {
        assert_eq!(PublicKey::from_text(&key.to_text("n")), Ok(key));
    }
    if let Ok(pair) = KeyPair::from_text(text) {
        assert!(PublicKey::from_text(text).is_err(), "a file with a secret key is no public one");
        let again = KeyPair::from_text(&pair.to_text("n")).expect("the text was formatted above");
        assert_eq!((again.public, again.secret.as_bytes()), (pair.public, pair.secret.as_bytes()));
    }
}

/// Parses files that are separated by zeros: a line with the name, and the content.
fn authorised(data: &[u8]) {
    let mut files = Vec::new();
    for file in data.split(|byte| *byte == 0) {
        let end = file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len());
        let (name, content) = file.split_at(end);
        files.push((PathBuf::from(String::from_utf8_lossy(name).into_owned()), content));
    }
    let (names, faults) = fuzzing::authorise(&files);
    assert!(names.len() <= files.len() && faults.len() <= fuzzing::KEY_FAULTS);
    for name in names {
        let is_its =
            |(path, _): &(PathBuf, &[u8])| path.file_stem().is_some_and(|stem| stem == name.as_str());
        assert!(files.iter().any(is_its), "{name} has a file");
    }
}

/// Parses parts that are preceded by their lengths.
fn zap(data: &[u8]) {
    let (mut parts, mut rest) = (Vec::new(), data);
    while let Some((length, behind)) = rest.split_first() {
        let (part, next) = behind.split_at(usize::from(*length).min(behind.len()));
        parts.push(part.to_vec());
        rest = next;
    }
    let (key, is_answer) = fuzzing::ask(&parts);
    assert!(is_answer, "every request has an answer");
    assert!(key.is_none_or(|key| parts.last().is_some_and(|part| part == key.as_bytes())));
}

/// Checks that a request beyond the limit, and one that has an end, are answered.
fn http(data: &[u8]) {
    // The library closes connections that begin as HTTP/2 does.
    if data.starts_with(b"PRI * HTTP/2.0") {
        return;
    }
    assert!(!fuzzing::metrics_answer(data).is_empty() || data.len() <= fuzzing::HTTP_REQUEST_BYTES);
    // Empty lines alone are no request.
    let more = [data, b"x\r\n\r\n"].concat();
    assert!(fuzzing::metrics_answer(&more).starts_with(b"HTTP/1."));
}
