//! Programs under test, unique names and time.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use polymeter_collector::clock::Clock;
use rustix::thread::{Gid, Uid};

/// A longer wait fails the test.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds, for at most `DEADLINE`.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(DEADLINE, what, condition);
}

pub fn wait_within(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !condition() {
        assert!(clock.now().since_start < deadline, "timeout while waiting until {what}");
        pause(10);
    }
}

/// No assertion may depend on the exact time.
pub fn pause(ms: u64) {
    let clock = Clock::start();
    let wanted = Duration::from_millis(ms);
    while let Some(left) = wanted.checked_sub(clock.now().since_start).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Copies a program so that every user can run it. Another process writes the copy: a child that another test
/// starts meanwhile would inherit the open file, and the kernel does not start a program that is open for
/// writing.
pub fn install(program: impl AsRef<OsStr>, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(program.as_ref()).arg(to).status();
    assert!(status.unwrap().success(), "cannot copy {}", program.as_ref().display());
}

pub fn now_us() -> i64 {
    Clock::start().now().wall_us
}

/// Converts the output of a program, which must be UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A name that no other test of this or another run uses.
pub fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("polymeter-e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Runs `act` on a thread with another user's credentials, which its connections present. The kernel keeps
/// credentials per thread; only the C library applies a change to the whole process.
pub fn as_user<T: Send>((uid, gid): (u32, u32), act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

/// Finds a program of this workspace in the target directory of this test. Panics if it is not built or older
/// than one of its sources.
pub fn program(name: &str) -> Command {
    static CHECKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let own = std::env::current_exe().unwrap();
    let directory = own.parent().unwrap();
    // Test programs are in `deps`, the workspace's programs in the directory above it.
    let directory = if directory.ends_with("deps") { directory.parent().unwrap() } else { directory };
    let path = directory.join(name);
    let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if !checked.contains(name) {
        assert!(path.is_file(), "{} is missing: run `cargo build --workspace` first", path.display());
        if let Some(source) = newer_source(&path) {
            panic!("{} is older than {source}: run `cargo build --workspace` first", path.display());
        }
        checked.insert(name.to_owned());
    }
    let mut command = Command::new(path);
    command.env_remove("JOURNAL_STREAM");
    command
}

/// Finds a source that is newer than its program, in the dependency file that Cargo writes beside the
/// program.
fn newer_source(program: &Path) -> Option<String> {
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let built = fs::metadata(program).ok()?.modified().ok()?;
    list.split_once(": ")?
        .1
        .split_whitespace()
        .find(|source| {
            fs::metadata(source)
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|modified| modified > built)
        })
        .map(str::to_owned)
}

/// Appends `command`, its arguments and its environment changes to `outer`.
pub(crate) fn wrap(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}
