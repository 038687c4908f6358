//! Frames and messages of the protocol, stored as files: later revisions must decode them.
//!
//! `golden/NAME.bin` contains the bytes, `golden/NAME.json` their decoded contents. The bytes are built from
//! fixed data and must be identical; `POLYMETER_BLESS=1` writes the files again after an intended change of
//! the encoding. `decoder.py` was written from `docs/reference/protocol.md` alone and must decode each file
//! to the same contents.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;
mod document;
mod extras;
mod frames;
mod json;
mod messages;
mod samples;
mod seeds;
mod view;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::frame_of;
use json::Json;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::DecodeError;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{ToAgent, ToCollector};

polymeter_test_harness::tests![
    golden_files_match_the_encoder_and_decode,
    document_explains_the_golden_bytes,
    second_decoder_agrees,
    second_decoder_refuses_invalid_frames,
];

fn main() -> std::process::ExitCode {
    polymeter_test_harness::run(&[TESTS, frames::TESTS, seeds::TESTS])
}

const T0: i64 = 1_790_000_000_000_000;
const SESSION: SessionId = SessionId(0xfeed);
/// Needs all 64 bits.
const LARGE_SESSION: SessionId = SessionId(0xfedc_ba98_7654_3210);

/// Direction of a frame or message, which its bytes do not contain: it follows from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Frame,
    ToCollector,
    ToAgent,
}

type Golden = (&'static str, Direction, Vec<u8>);

fn all() -> Vec<Golden> {
    [samples::modes(), samples::times(), extras::all(), messages::to_collector(), messages::to_agent()]
        .concat()
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn file(name: &str, extension: &str) -> PathBuf {
    here().join("golden").join(format!("{name}.{extension}"))
}

fn decode(direction: Direction, bytes: &[u8]) -> Result<Json, DecodeError> {
    Ok(match direction {
        Direction::Frame => view::of_frame(&Frame::decode(bytes)?),
        Direction::ToCollector => view::of_message_to_collector(&ToCollector::decode(bytes)?),
        Direction::ToAgent => view::of_message_to_agent(&ToAgent::decode(bytes)?),
    })
}

fn golden_files_match_the_encoder_and_decode() {
    let bless = std::env::var("POLYMETER_BLESS").is_ok_and(|value| value == "1");
    for (name, direction, bytes) in all() {
        let (bytes_file, json_file) = (file(name, "bin"), file(name, "json"));
        if bless {
            fs::write(&bytes_file, &bytes).unwrap();
            fs::write(&json_file, format!("{}\n", decode(direction, &bytes).unwrap())).unwrap();
        }
        let stored =
            fs::read(&bytes_file).unwrap_or_else(|error| panic!("{}: {error}", bytes_file.display()));
        assert_eq!(bytes, stored, "{name}: the encoding has changed; is that a new version of the protocol?");
        let expected = Json::parse(&fs::read_to_string(&json_file).unwrap());
        let expected = expected.unwrap_or_else(|| panic!("{name}.json is not JSON of this subset"));
        assert_eq!(decode(direction, &stored).unwrap().difference(&expected, name), None);
    }
    check_directory();
}

/// Checks that the directory has no other data, and that its files are small.
fn check_directory() {
    let mut expected = BTreeSet::new();
    for (name, _, _) in all() {
        assert!(expected.insert(format!("{name}.bin")) && expected.insert(format!("{name}.json")), "{name}");
    }
    let (mut found, mut bytes) = (BTreeSet::new(), 0);
    for file in fs::read_dir(here().join("golden")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_none_or(|extension| extension != "rs") {
            found.insert(file.file_name().to_string_lossy().into_owned());
            bytes += file.metadata().unwrap().len();
        }
    }
    assert_eq!(found, expected);
    assert!(bytes < 100 * 1024, "{bytes} bytes of golden files");
}

fn document_explains_the_golden_bytes() {
    let document = fs::read_to_string(here().join("../../docs/reference/protocol.md")).unwrap();
    let golden = all();
    for (name, example) in document::EXAMPLES {
        let (_, _, bytes) = golden.iter().find(|(golden, ..)| *golden == name).unwrap();
        for part in example.split(" | ") {
            assert!(document.contains(part), "{name}: `{part}` is not in the document");
        }
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        assert!(digits.contains(&expected), "{name} is {digits}");
    }
}

/// Runs the decoder on `bytes`. Skips the test if python3 is not installed.
fn python(direction: Direction, bytes: &[u8]) -> Output {
    let direction = (direction == Direction::ToAgent).then_some("--to-agent");
    let child = Command::new("python3")
        .arg(here().join("decoder.py"))
        .args(direction)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            polymeter_test_harness::skip("python3", "python3 is not installed")
        }
        child => child.unwrap(),
    };
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap()
}

fn second_decoder_agrees() {
    for (name, direction, bytes) in all() {
        let output = python(direction, &bytes);
        let (text, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {error}");
        let contents = Json::parse(&text).unwrap_or_else(|| panic!("{name}: {text}"));
        assert_eq!(contents.difference(&decode(direction, &bytes).unwrap(), name), None);
    }
}

fn second_decoder_refuses_invalid_frames() {
    let good = samples::several_blocks();
    let [damaged, damaged_at_the_end] = [good.len() / 2, good.len() - 1].map(|position| {
        let mut bytes = good.clone();
        bytes[position] ^= 1;
        bytes
    });
    let another_version = [b"PLM\x02", &good[4..]].concat();
    let trailing = [ToAgent::NeedDictionary { session: SESSION }.encode(), vec![0]].concat();
    let invalid = [
        ("damaged", Direction::Frame, damaged, "the checksum is wrong"),
        ("damaged at the end", Direction::Frame, damaged_at_the_end, "the checksum is wrong"),
        ("cut", Direction::Frame, good[..good.len() - 5].to_vec(), "the checksum is wrong"),
        ("another version", Direction::Frame, another_version, "another version"),
        ("another protocol", Direction::Frame, b"GET / HTTP/1.1".to_vec(), "no bytes of this protocol"),
        ("an unknown section", Direction::Frame, frame_of(&[11]), "no kind of section"),
        ("windows of no block", Direction::Frame, frame_of(&[17, 1]), "no kind of section"),
        (
            "too long a window",
            Direction::Frame,
            frame_of(&[22, 1, 1, 0, 0xff, 0xff, 0xff, 0x7f, 0x10, 5]),
            "too many samples in a window",
        ),
        (
            "a series before the block",
            Direction::Frame,
            frame_of(&[22, 1, 1, 0, 2, 15, 1, 0]),
            "before the block",
        ),
        ("eight counts", Direction::Frame, frame_of(&[10, 1, 0, 1, 0x80]), "more than seven counts"),
        ("no ticks", Direction::Frame, frame_of(&[2, 1, 1, 0]), "no ticks"),
        ("a copy of nothing", Direction::Frame, frame_of(&[2, 1, 1, 1, 0, 0x0a, 0]), "before the block"),
        ("too many zeros", Direction::Frame, frame_of(&[2, 1, 1, 1, 0, 0x08]), "more columns than its block"),
        (
            "too much memory",
            Direction::Frame,
            frame_of(&[2, 0, 0x80, 0x20, 0x80, 0x80, 4]),
            "too many values",
        ),
        ("a message and a byte", Direction::ToAgent, trailing, "bytes behind the end"),
        ("an unknown message", Direction::ToCollector, b"PLC\x01\x03".to_vec(), "no variant"),
    ];
    for (name, direction, bytes, reason) in invalid {
        assert!(decode(direction, &bytes).is_err(), "{name}");
        let output = python(direction, &bytes);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.starts_with("refused: "), "{name}: {error}");
        assert!(error.contains(reason), "{name}: {error}");
    }
}
