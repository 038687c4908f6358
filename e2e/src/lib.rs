//! What the end-to-end tests share: the real programs, real cgroups, jobs that do what they are told, and a reader of
//! kernel files that knows nothing of the agent's.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_debug_implementations,
    missing_docs,
    reason = "a fault of a test is a failed test"
)]

pub mod cgroup;
pub mod daemons;
pub mod disk;
pub mod munge;
pub mod network;
pub mod oar;
pub mod random;
pub mod reference;
pub mod scene;
#[path = "../../collector/tests/common/server.rs"]
pub mod server;
pub mod slurm;
pub mod spooled;
pub mod stored;
pub mod workload;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use polymeter_collector::clock::Clock;
use polymeter_store::reader::Reader;
pub use polymeter_test_harness::{Test, is_required, run, skip, tests};
use tempfile::TempDir;

use self::server::Server;

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !condition() {
        assert!(clock.now().since_start < DEADLINE, "waited in vain until {what}");
        pause(10);
    }
}

/// Lets some time pass. Nothing that a test asserts may depend on how much.
pub fn pause(ms: u64) {
    let clock = Clock::start();
    let wanted = Duration::from_millis(ms);
    while let Some(left) = wanted.checked_sub(clock.now().since_start).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Microseconds since the epoch.
pub fn now_us() -> i64 {
    Clock::start().now().wall_us
}

/// A name that no other test, of this run or of another, uses.
pub fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("polymeter-e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A program of this workspace, from the target directory that this test was built in.
///
/// # Panics
/// If it is not built, or if one of its sources is newer than it.
pub fn program(name: &str) -> Command {
    static CHECKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let own = std::env::current_exe().unwrap();
    let directory = own.parent().unwrap();
    // Tests lie in `deps`, programs above it.
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

/// A source of a program that is newer than it, according to the list that cargo leaves beside it.
fn newer_source(program: &Path) -> Option<String> {
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let built = fs::metadata(program).ok()?.modified().ok()?;
    let is_newer = |source: &&str| {
        fs::metadata(source).and_then(|metadata| metadata.modified()).is_ok_and(|modified| modified > built)
    };
    list.split_once(": ")?.1.split_whitespace().find(is_newer).map(str::to_owned)
}

/// What becomes `command` through `outer`, with the changes to its environment.
fn wrap(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Something of the machine that a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    Cgroup1,
    Cgroup2,
    Blkio,
    Perf,
    Mounts,
    Network,
    Munge,
    Oar,
    Slurm,
    SlurmExperiment,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Cgroup1 => "cgroup1",
            Self::Cgroup2 => "cgroup2",
            Self::Blkio => "blkio",
            Self::Perf => "perf",
            Self::Mounts => "mounts",
            Self::Network => "network",
            Self::Munge => "munge",
            Self::Oar => "oar",
            Self::Slurm => "slurm",
            Self::SlurmExperiment => "slurm-experiment",
        }
    }

    fn missing(self) -> Option<String> {
        let root = rustix::process::geteuid().is_root();
        match self {
            Self::Root => (!root).then(|| "this is not root".to_owned()),
            Self::Cgroup1 => cgroup::V1.iter().find_map(|controller| cgroup::cannot_make(controller)),
            Self::Cgroup2 => cgroup::cannot_make(cgroup::V2),
            Self::Blkio => cgroup::cannot_make("blkio"),
            Self::Mounts => disk::cannot_have(),
            Self::Network => network::Network::make().err(),
            Self::Munge => munge::missing(),
            Self::Oar => oar::missing(),
            // A cluster takes minutes, and its jobs need an idle machine: only on request.
            Self::Slurm if !is_required(self.name()) => Some("`make test-slurm` runs it".to_owned()),
            Self::Slurm => slurm::missing(),
            // Its result is a table to read. Nothing is asserted of it.
            Self::SlurmExperiment => {
                (!is_required(self.name())).then(|| "`make slurm-experiment` runs it".to_owned())
            }
            Self::Perf => {
                let implicit = cgroup::root("perf_event").is_none() && cgroup::root(cgroup::V2).is_some();
                let kernel = Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
                (!(implicit && kernel && root))
                    .then(|| "perf events do not follow cgroups of version 2".to_owned())
            }
        }
    }
}

/// Skips the running test where the machine lacks one of `needs`.
pub fn require(needs: &[Need]) {
    for need in needs {
        if let Some(reason) = need.missing() {
            skip(need.name(), &reason);
        }
    }
}

/// A directory for sockets, configurations and logs, and a store.
pub struct TestEnvironment {
    directory: TempDir,
    pub node: String,
    server: Option<Server>,
}

impl TestEnvironment {
    /// With SQLite.
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), node: unique(), server: None }
    }

    /// With its own PostgreSQL server. Skips the test where PostgreSQL is not installed.
    pub fn postgres() -> Self {
        Self::with_server(Server::start(false))
    }

    /// With its own PostgreSQL server, and TimescaleDB where it is installed.
    pub fn best_postgres() -> Self {
        Self::with_server(Server::best())
    }

    fn with_server(server: Result<Server, String>) -> Self {
        let server = server.unwrap_or_else(|reason| skip("postgres", &reason));
        Self { server: Some(server), ..Self::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn store(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("sqlite:{}", self.path("store.db").display()),
        }
    }

    /// Its PostgreSQL server.
    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().unwrap()
    }

    pub fn reader(&self) -> Reader {
        Reader::open(&self.store().parse().unwrap()).unwrap()
    }

    /// Where agents of this machine reach the collector.
    pub fn endpoint(&self) -> String {
        format!("ipc://{}", self.path("collector").display())
    }
}
