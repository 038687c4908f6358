//! Runs the test programs of the workspace side by side: `test-suite MESSAGES [FILTER...]`, with the messages
//! that `cargo test --no-run --message-format=json` prints. Filters are passed to each program.
//!
//! Cargo runs test programs one after another, so that the CPUs idle while tests wait. cargo-nextest would
//! start a process, and with it a database server, for each test, and takes minutes to build.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the report is for the terminal")]
#![allow(clippy::disallowed_methods, reason = "no clock is to be replaced: only the report has times")]

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::error::Error;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polymeter_test_harness::{LOCK_VARIABLE, share};
use serde::Deserialize;

const PROGRAMS_PER_CPU: usize = 2;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run the tests: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all programs. Returns true if all tests passed.
fn run() -> Result<bool, Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let messages = arguments.next().ok_or("the file of cargo's messages is missing")?;
    let mut programs = programs(&fs::read_to_string(&messages)?)?;
    if programs.is_empty() {
        return Err(format!("{} names no test program", messages.display()).into());
    }
    // Programs with the most tests are the largest, and run longest.
    programs.sort_by_key(|program| Reverse(program.bytes));
    let logs = Path::new(&messages).with_extension("logs");
    fs::create_dir_all(&logs)?;
    let suite = Suite {
        // The programs run in other directories.
        logs: fs::canonicalize(logs)?,
        filters: arguments.map(|filter| filter.to_string_lossy().into_owned()).collect(),
        queue: Mutex::new(programs.into()),
        total: Mutex::default(),
    };
    let started = Instant::now();
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..PROGRAMS_PER_CPU * cpus {
            scope.spawn(|| suite.work());
        }
    });
    let total = suite.total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{} s", started.elapsed().as_secs());
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(total.failed == 0)
}

struct Program {
    name: String,
    executable: PathBuf,
    /// Directory of its package, in which cargo runs it.
    directory: PathBuf,
    bytes: u64,
    /// True if it takes the suite's lock itself, as the tests of [`polymeter_test_harness`] do.
    takes_lock: bool,
}

/// Parts of cargo's message about a built target that matter here.
#[derive(Deserialize)]
struct Artifact {
    executable: PathBuf,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
}

#[derive(Deserialize)]
struct Target {
    kind: (String,),
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Test programs that the messages of cargo name. Benches have a target of their own.
fn programs(messages: &str) -> Result<Vec<Program>, Box<dyn Error>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        // Other messages lack these fields.
        let Ok(artifact) = serde_json::from_str::<Artifact>(line) else { continue };
        let Target { kind: (kind,), name } = artifact.target;
        if !artifact.profile.test || kind == "bench" {
            continue;
        }
        let directory = artifact.manifest_path.parent().ok_or("a message has no manifest_path")?;
        let package = directory.file_name().unwrap_or_default().to_string_lossy();
        programs.push(Program {
            name: format!("{package}-{kind}-{name}"),
            bytes: fs::metadata(&artifact.executable)?.len(),
            executable: artifact.executable,
            takes_lock: kind == "test",
            directory: directory.to_owned(),
        });
    }
    Ok(programs)
}

struct Suite {
    logs: PathBuf,
    filters: Vec<String>,
    queue: Mutex<VecDeque<Program>>,
    total: Mutex<Counts>,
}

impl Suite {
    fn work(&self) {
        loop {
            let next = self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return };
            let started = Instant::now();
            let counts = self.run(&program).unwrap_or_else(|error| {
                println!("cannot run {}: {error}", program.executable.display());
                Counts { failed: 1, ..Counts::default() }
            });
            let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
            total.add(counts);
            print_result(&program, counts, started.elapsed());
        }
    }

    fn run(&self, program: &Program) -> Result<Counts, Box<dyn Error>> {
        let lock = self.logs.join("lock");
        let _shared = if program.takes_lock { None } else { Some(share(&lock)?) };
        let path = self.logs.join(format!("{}.log", program.name));
        let log = File::create(&path)?;
        let mut command = Command::new(&program.executable);
        command.args(&self.filters).current_dir(&program.directory).env(LOCK_VARIABLE, &lock);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = command.status()?;
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let mut counts = Counts::of(&text);
        if !status.success() {
            // A program that was killed states no result.
            counts.failed = counts.failed.max(1);
            println!("{text}\n{}: {status}", program.name);
        }
        Ok(counts)
    }
}

fn print_result(program: &Program, counts: Counts, duration: Duration) {
    let Counts { passed, failed, skipped } = counts;
    let seconds = duration.as_secs_f64();
    println!("{:40} {passed:5} passed {failed:3} failed {skipped:3} skipped {seconds:7.1} s", program.name);
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Sums of all lines such as `test result: ok. 12 passed; 0 failed; 1 ignored; ...` in a program's
    /// output.
    fn of(output: &str) -> Self {
        let mut counts = Self::default();
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            for part in line.split([';', '.']) {
                let Some((number, word)) = part.trim().split_once(' ') else { continue };
                let Ok(number) = number.parse::<u64>() else { continue };
                match word {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.skipped += number,
                    _ => {}
                }
            }
        }
        counts
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_program_are_added() {
        let output = "running 3 tests\n\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; \
                      finished in 0.12s\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        assert_eq!(Counts::of(output), Counts { passed: 14, failed: 1, skipped: 1 });
        assert_eq!(Counts::of("Segmentation fault"), Counts::default());
    }

    #[test]
    fn only_test_programs_are_run() {
        let program = std::env::current_exe().unwrap();
        let artifact = |test: bool, kind: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/source/e2e/Cargo.toml",
                "target": {"kind": [kind], "name": "e2e"}, "profile": {"test": test}, "executable": program,
            })
            .to_string()
        };
        let library = r#"{"reason": "compiler-artifact", "profile": {"test": true}, "executable": null}"#;
        let messages = [
            artifact(true, "test"),
            artifact(false, "bin"),
            artifact(true, "bench"),
            artifact(true, "lib"),
            library.to_owned(),
        ];
        let programs = programs(&messages.join("\n")).unwrap();
        let names: Vec<_> =
            programs.iter().map(|program| (program.name.as_str(), program.takes_lock)).collect();
        assert_eq!(names, [("e2e-test-e2e", true), ("e2e-lib-e2e", false)]);
    }
}
