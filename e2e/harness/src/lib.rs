//! A test program whose tests can be skipped at run time.
//!
//! Rust's own harness knows only two results, so that a test on a machine without a required feature would
//! pass. With this harness such a test calls [`skip`], is reported as ignored, and is listed at the end. The
//! list is also appended to the file that `POLYMETER_SKIPPED` names, from which `make test` prints the
//! skipped tests of all programs; the time of each test to the one that `POLYMETER_TEST_TIMES` names.
//! `POLYMETER_REQUIRE` lists features that the machine must have: a skip for lack of one of them is a
//! failure.
//!
//! A file of tests lists them once, with [`tests!`]; the compiler warns of a function that is missing there.
//! The test program is declared with `harness = false` and passes all lists to [`run`].
//!
//! A test that runs for longer than `POLYMETER_TEST_SECONDS` (900) has failed, and the others go on: one that
//! waits for ever would otherwise stop them all without a word.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure of a test is a panic, and its report is for the terminal"
)]
#![allow(clippy::disallowed_methods, reason = "no clock is to be replaced: only the report has times")]

pub mod certificates;
pub mod hypervisor;
pub mod servers;
pub mod snapshot;

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::fs::{FlockOperation, flock};

#[derive(Debug, Clone, Copy)]
pub struct Test {
    name: &'static str,
    function: fn(),
    exclusive: bool,
}

impl Test {
    #[must_use]
    pub const fn new(name: &'static str, function: fn()) -> Self {
        Self { name, function, exclusive: false }
    }

    /// Marks the test to run while no other test of the program is running.
    #[must_use]
    pub const fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Path without the name of the crate.
    fn short_name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, rest)| rest)
    }
}

/// Declares `TESTS`, the list of a file's test functions. A test marked `exclusive` runs while no other test
/// is running, also of other programs of the same suite.
#[macro_export]
macro_rules! tests {
    (@one exclusive $name:ident) => { $crate::tests!(@one $name).exclusive() };
    (@one $name:ident) => { $crate::Test::new(concat!(module_path!(), "::", stringify!($name)), $name) };
    ($($($word:ident)+),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::Test] = &[$($crate::tests!(@one $($word)+)),*];
    };
}

/// Reason for a skip, as the payload of the unwinding.
struct Skipped(String);

/// True if `POLYMETER_REQUIRE`, a comma-separated list, contains `need`.
#[must_use]
pub fn is_required(need: &str) -> bool {
    let required = std::env::var("POLYMETER_REQUIRE").unwrap_or_default();
    required.split(',').any(|required| required.trim() == need)
}

/// Ends the running test as skipped, or panics if `POLYMETER_REQUIRE` contains `need`. Must be called on the
/// test's own thread.
pub fn skip(need: &str, reason: &str) -> ! {
    assert!(!is_required(need), "{need} is required, but {reason}");
    // Does not call the panic hook, which would print a backtrace.
    resume_unwind(Box::new(Skipped(reason.to_owned())))
}

/// Runs the tests that the command line selects, one for each CPU at a time and the exclusive ones last, and
/// prints the skipped ones.
#[must_use]
pub fn run(lists: &[&[Test]]) -> ExitCode {
    run_side_by_side(lists, 1)
}

/// Runs tests like [`run`], several for each CPU at a time: for tests that wait more than they compute, and
/// depend on no time.
#[must_use]
pub fn run_side_by_side(lists: &[&[Test]], tests_per_cpu: usize) -> ExitCode {
    let (options, filters) = split_filters(std::env::args());
    let mut arguments = Arguments::from_iter(options);
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(tests_per_cpu * cpus);
    let is_selected = |name: &str| {
        filters.is_empty()
            || filters
                .iter()
                .any(|filter| if arguments.exact { name == filter } else { name.contains(filter) })
    };
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let trials = |exclusive| {
        let tests = lists.iter().copied().flatten();
        let tests = tests.filter(|test| test.exclusive == exclusive && is_selected(test.short_name()));
        tests.map(|test| trial(*test, &skipped)).collect::<Vec<_>>()
    };
    let exclusive: Vec<_> =
        trials(true).into_iter().filter(|trial| !arguments.is_filtered_out(trial)).collect();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(false).into_iter().chain(exclusive).collect())
            .exit_code();
    }
    let mut conclusion = libtest_mimic::run(&arguments, trials(false));
    if !exclusive.is_empty() {
        let alone = Arguments { test_threads: Some(1), ..arguments };
        let last = libtest_mimic::run(&alone, exclusive);
        conclusion.num_failed += last.num_failed;
    }
    report(&skipped.lock().unwrap_or_else(PoisonError::into_inner));
    conclusion.exit_code()
}

/// Separates the filters from the options of a command line: Rust's own harness accepts any number of
/// filters, libtest-mimic one.
fn split_filters(arguments: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    const WITH_VALUE: [&str; 5] = ["--test-threads", "--skip", "--logfile", "--format", "--color"];
    let (mut options, mut filters) = (Vec::new(), Vec::new());
    let mut arguments = arguments;
    options.extend(arguments.next());
    while let Some(argument) = arguments.next() {
        if !argument.starts_with('-') {
            filters.push(argument);
            continue;
        }
        let has_value = WITH_VALUE.contains(&argument.as_str());
        options.push(argument);
        if has_value {
            options.extend(arguments.next());
        }
    }
    (options, filters)
}

fn trial(test: Test, skipped: &Arc<Mutex<Vec<String>>>) -> Trial {
    let skipped = Arc::clone(skipped);
    Trial::ignorable_test(test.short_name(), move || {
        let _turn = turn(test.exclusive)?;
        let started = Instant::now();
        let outcome = outcome(test, longest());
        append("POLYMETER_TEST_TIMES", &format!("{:7.1} {}\n", started.elapsed().as_secs_f64(), test.name));
        match outcome {
            Ok(None) => Ok(Completion::Completed),
            Ok(Some(reason)) => {
                let line = format!("{}: {reason}", test.name);
                skipped.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                Ok(Completion::ignored_with(reason))
            }
            Err(failure) => Err(Failed::from(failure)),
        }
    })
}

/// Environment variable that names the lock of a suite whose programs run side by side. Each test holds it
/// together with others, an exclusive one alone.
pub const LOCK_VARIABLE: &str = "POLYMETER_TEST_LOCK";

/// Waits for a test's turn. Outside of a suite there is nothing to wait for.
fn turn(exclusive: bool) -> io::Result<Turn> {
    let Some(path) = std::env::var_os(LOCK_VARIABLE) else { return Ok(Turn::default()) };
    let path = Path::new(&path);
    if !exclusive {
        return Ok(Turn { _place: place(path)?, _lock: Some(share(path)?) });
    }
    let lock = File::create(path)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(Turn { _place: None, _lock: Some(lock) })
}

/// A test's turn in its suite, which lasts until the files are closed.
#[derive(Default)]
struct Turn {
    _place: Option<File>,
    _lock: Option<File>,
}

/// A further test begins once threads waited for a CPU in less than this share of [`OBSERVED`].
const BUSY: f64 = 0.6;
const OBSERVED: Duration = Duration::from_millis(250);

/// Waits until the suite runs fewer tests than there are CPUs, or the CPUs have time for another test. A
/// machine that is slow, or has other work, so runs fewer tests at a time: beside many, processes of a test
/// would get no time for seconds. Returns the place of a test that is one of the few.
fn place(lock: &Path) -> io::Result<Option<File>> {
    let gate = File::create(lock.with_extension("gate"))?;
    flock(&gate, FlockOperation::LockExclusive)?;
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    loop {
        for number in 0..cpus {
            let place = File::create(lock.with_extension(format!("place-{number}")))?;
            if flock(&place, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Some(place));
            }
        }
        let before = waited();
        thread::sleep(OBSERVED);
        if waited().saturating_sub(before).as_secs_f64() < BUSY * OBSERVED.as_secs_f64() {
            return Ok(None);
        }
    }
}

/// Time in which any thread of the machine waited for a CPU; zero if the kernel does not measure it.
fn waited() -> Duration {
    waited_in(&fs::read_to_string("/proc/pressure/cpu").unwrap_or_default())
}

fn waited_in(pressure: &str) -> Duration {
    let total = pressure.lines().next().and_then(|some| some.rsplit_once("total="));
    Duration::from_micros(total.and_then(|(_, total)| total.parse().ok()).unwrap_or(0))
}

/// Waits until no exclusive test is running. None begins until the returned file is closed.
pub fn share(lock: &Path) -> io::Result<File> {
    let file = File::create(lock)?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(file)
}

/// A test that takes longer has failed, unless `POLYMETER_TEST_SECONDS` states another time.
const LONGEST: Duration = Duration::from_secs(900);

/// Reads `POLYMETER_TEST_SECONDS`. Panics if it is no number.
fn longest() -> Duration {
    std::env::var("POLYMETER_TEST_SECONDS").map_or(LONGEST, |seconds| match seconds.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(error) => panic!("POLYMETER_TEST_SECONDS={seconds}: {error}"),
    })
}

/// Runs a test on a thread with the test's name, which panic messages show. Returns the reason if the test
/// was skipped. A test that takes longer than `longest` has failed; its thread goes on until the program
/// ends.
fn outcome(test: Test, longest: Duration) -> Result<Option<String>, String> {
    // The channel closes when the thread ends, also by a panic.
    let (running, ended) = sync_channel::<()>(0);
    let thread = thread::Builder::new().name(test.short_name().to_owned()).spawn(move || {
        let _running = running;
        (test.function)();
    });
    let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    if ended.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
        return Err(format!("still running after {} s", longest.as_secs()));
    }
    match thread.join() {
        Ok(()) => Ok(None),
        Err(payload) => match payload.downcast::<Skipped>() {
            Ok(skipped) => Ok(Some(skipped.0)),
            Err(payload) => Err(message(payload.as_ref())),
        },
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// Prints the skipped tests and appends them to the file that `POLYMETER_SKIPPED` names.
fn report(skipped: &[String]) {
    if skipped.is_empty() {
        return;
    }
    println!("{} skipped:", skipped.len());
    skipped.iter().for_each(|line| println!("    {line}"));
    println!();
    append("POLYMETER_SKIPPED", &skipped.iter().map(|line| format!("{line}\n")).collect::<String>());
}

/// Appends lines to the file that an environment variable names, if it is set.
fn append(variable: &str, lines: &str) {
    let Some(path) = std::env::var_os(variable) else { return };
    let written = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = written.and_then(|mut file| file.write_all(lines.as_bytes())) {
        panic!("cannot write {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes() {}

    fn skips() {
        skip("something", "it is missing");
    }

    fn fails() {
        panic!("{} is wrong", "this");
    }

    fn waits_for_ever() {
        loop {
            thread::park();
        }
    }

    #[test]
    fn skipped_is_neither_passed_nor_failed() {
        let outcome = |name, function| outcome(Test::new(name, function), LONGEST);
        assert_eq!(outcome("harness::passes", passes), Ok(None));
        assert_eq!(outcome("harness::skips", skips), Ok(Some("it is missing".to_owned())));
        assert_eq!(outcome("harness::fails", fails), Err("this is wrong".to_owned()));
    }

    #[test]
    fn a_test_that_does_not_end_has_failed() {
        let test = Test::new("harness::waits_for_ever", waits_for_ever);
        assert_eq!(outcome(test, Duration::from_secs(1)), Err("still running after 1 s".to_owned()));
    }

    #[test]
    fn as_many_tests_as_there_are_cpus_begin_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let mut places: Vec<Option<File>> = (0..cpus).map(|_| place(&lock).unwrap()).collect();
        assert!(places.iter().all(Option::is_some), "{places:?}");
        places.pop();
        assert!(place(&lock).unwrap().is_some(), "the place of a test that has ended");
    }

    #[test]
    fn the_time_of_waits_is_that_of_any_thread() {
        let text = "some avg10=1.98 avg60=8.90 avg300=38.50 total=8558579258\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waited_in(text), Duration::from_micros(8_558_579_258));
        assert_eq!(waited_in(""), Duration::ZERO);
    }

    #[test]
    fn any_number_of_filters() {
        let arguments = ["program", "a::", "--test-threads", "1", "--exact", "b::"].map(str::to_owned);
        let (options, filters) = split_filters(arguments.into_iter());
        assert_eq!(options, ["program", "--test-threads", "1", "--exact"]);
        assert_eq!(filters, ["a::", "b::"]);
    }
}
