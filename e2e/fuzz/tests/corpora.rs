//! Each fuzz target on the files of its corpus and on mutations of them, the same ones in each run.

#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "a fault of a test is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use polymeter_fuzz::{Body, TARGETS};

const MUTATIONS: usize = 400;
/// Limits all mutations of a target to a few seconds.
const MUTATED_BYTES: usize = 2 * 1024 * 1024;
/// Longest input, as in `run.sh`.
const INPUT_BYTES: usize = 16 * 1024;

fn main() -> ExitCode {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut tests = Vec::new();
    for (name, body) in TARGETS {
        let corpus = corpora.join(name);
        tests.push(Trial::test(*name, move || {
            run(&corpus, *body);
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

struct Shown<'a> {
    file: &'a Path,
    mutation: usize,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { file, mutation, input } = self;
            eprintln!("mutation {mutation} of {}: {}", file.display(), input.escape_ascii());
        }
    }
}

fn run(corpus: &Path, body: Body) {
    let mut files = Vec::new();
    add_files(corpus, &mut files);
    assert!(!files.is_empty(), "{} has no files", corpus.display());
    files.sort();
    let mut inputs = Vec::new();
    for file in &files {
        let mut input = fs::read(file).unwrap();
        input.truncate(INPUT_BYTES);
        inputs.push(input);
    }
    let bytes: usize = inputs.iter().map(Vec::len).sum();
    let mutations = MUTATIONS.min(MUTATED_BYTES / bytes.max(1));
    let mut random = Random(files.len() as u64);
    for (file, input) in files.iter().zip(&inputs) {
        for mutation in 0..=mutations {
            let mut input = input.clone();
            if mutation > 0 {
                let other = random.below(inputs.len());
                mutate(&mut input, inputs.get(other).unwrap(), &mut random);
            }
            let _shown = Shown { file, mutation, input: &input };
            body(&input);
        }
    }
}

fn add_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Edits an input at up to four places. `other` is an input that it may be continued with.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const TEXTS: [&[u8]; 8] =
        [b"\0", b"\n", b" ", b"-1", b"18446744073709551616", b"1e400", b"\xff\xff\xff\xff", b"\xe2\x80\xae"];
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(24)).min(input.len());
        match random.below(6) {
            0 => input
                .get_mut(at..)
                .into_iter()
                .flatten()
                .take(1)
                .for_each(|byte| *byte ^= 1 << random.below(8)),
            1 => input.get_mut(at..).into_iter().flatten().take(1).for_each(|byte| *byte = random.byte()),
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input.get(at..end).unwrap_or_default().to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, part);
            }
            4 => {
                let text = TEXTS.get(random.below(TEXTS.len())).copied().unwrap_or_default();
                input.splice(at..at, text.iter().copied());
            }
            _ => {
                input.truncate(at);
                input.extend_from_slice(other.get(random.below(other.len() + 1)..).unwrap_or_default());
            }
        }
    }
    input.truncate(INPUT_BYTES);
}

/// Numbers of splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}
