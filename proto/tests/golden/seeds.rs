//! Seeds of the fuzz target `ingest`, which reads a sequence of an agent's messages. They are made of the
//! golden files, so that they are valid to their ends. `POLYMETER_BLESS=1 cargo test -p polymeter-proto
//! --test golden seeds::` writes them again after a change of the golden files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

polymeter_test_harness::tests![the_seeds_of_ingest_are_made_of_the_golden_files];

const SEEDS: [(&str, &[&str]); 5] = [
    ("dictionary_then_frame", &["message_dictionary", "first_frame"]),
    ("first_frame", &["first_frame"]),
    ("many", &["dictionary", "one_tick", "zeros", "partial", "events", "ledger"]),
    ("skipped", &["first_frame", "message_skipped_outbox_full", "one_tick"]),
    ("twice", &["first_frame", "first_frame"]),
];

/// Length of the checksum at a frame's end. The fuzz target adds the checksum, which no fuzzer can guess.
const CHECKSUM_BYTES: usize = 4;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Returns a golden file preceded by its length; a frame without its checksum.
fn message(name: &str) -> Vec<u8> {
    let path = here().join(format!("{name}.bin"));
    let mut bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !name.starts_with("message_") {
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    }
    let length = u16::try_from(bytes.len()).unwrap().to_le_bytes();
    [length.as_slice(), &bytes].concat()
}

fn the_seeds_of_ingest_are_made_of_the_golden_files() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/fuzz/corpus/ingest");
    let bless = std::env::var("POLYMETER_BLESS").is_ok_and(|value| value == "1");
    for (name, parts) in SEEDS {
        let (seed, path) = (parts.iter().copied().flat_map(message).collect::<Vec<u8>>(), corpus.join(name));
        if bless {
            fs::write(&path, &seed).unwrap();
        }
        let kept = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(kept == seed, "{name} is not what the golden files say now: set POLYMETER_BLESS=1");
    }
    let names = fs::read_dir(&corpus).unwrap();
    let names: BTreeSet<_> =
        names.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(names, SEEDS.map(|(name, _)| name.to_owned()).into());
}
