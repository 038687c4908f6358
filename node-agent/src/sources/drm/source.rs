//! The source of the GPU clients of one job, and what is known of them while the job runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_proto::period::Period;
use rustix::io::Errno;

use super::accounts::{Accounts, Key};
use super::descriptors::Descriptors;
use super::text;
use crate::clock;
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::process_files::read_whole;
use crate::sources::process_list::ProcessList;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;

/// The shortest time between two readings that is useful: a driver walks through the memory of each client.
const SHORTEST: Period = Period::HUNDRED_MILLISECONDS;

/// The longest time between two readings while the job has no series, in nanoseconds. The thread reads at half of it.
const LONGEST_GAP_NS: u64 = 10_000_000_000;

/// The clients of a job, as they are known while the job runs.
#[derive(Debug, Default)]
pub struct GpuClients {
    state: Mutex<State>,
    /// The number of changes of the values that are known.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    processes: Option<ProcessList>,
    descriptors: Descriptors,
    accounts: Accounts,
}

impl GpuClients {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the list of the job's processes. That of a tree stays: it has processes that a new one would not find.
    pub(super) fn begin(&self, processes: ProcessList) {
        let mut state = self.lock();
        if state.processes.is_none() || matches!(processes, ProcessList::Cgroup(_)) {
            state.processes = Some(processes);
        }
    }

    /// Returns the values that were ever found.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().accounts.keys().iter().cloned().collect()
    }

    /// Returns the number of changes of the known values so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Reads all clients. The texts are read without the lock: a driver may take its time.
    fn read(&self, proc: &Path, now_ns: u64) -> Result<BTreeMap<Key, u64>, Outcome> {
        let texts = {
            let State { processes, descriptors, .. } = &mut *self.lock();
            let pids = processes.as_mut().and_then(|processes| processes.list(proc)).ok_or(Outcome::Gone)?;
            let of_io = |error: std::io::Error| {
                Outcome::Retry(error.raw_os_error().map_or(Errno::ACCESS, Errno::from_raw_os_error))
            };
            descriptors.search(proc, &pids, now_ns).map_err(of_io)?;
            descriptors.texts(proc)
        };
        // A descriptor that was closed meanwhile has no text, or that of another file.
        let clients =
            texts.iter().filter_map(|path| text::parse(&read_whole(path).ok()?)).collect::<Vec<_>>();
        let mut state = self.lock();
        let before = state.accounts.keys().len();
        let values = state.accounts.update(clients);
        if state.accounts.keys().len() > before {
            self.changes.fetch_add(1, Release);
        }
        Ok(values)
    }
}

/// The clients of one job.
#[derive(Debug)]
pub(super) struct ClientsSource {
    proc: PathBuf,
    clients: Arc<GpuClients>,
    slots: Vec<Slot>,
    keys: Vec<Key>,
}

impl ClientsSource {
    pub(super) fn new(proc: &Path, clients: &Arc<GpuClients>, slots: Vec<(Slot, Key)>) -> Self {
        let (slots, keys) = slots.into_iter().unzip();
        Self { proc: proc.to_owned(), clients: Arc::clone(clients), slots, keys }
    }

    /// Reads at `now_ns`.
    pub(super) fn read_at(&self, now_ns: u64, reading: &mut Reading) -> Outcome {
        reading.clear();
        let values = match self.clients.read(&self.proc, now_ns) {
            Ok(values) => values,
            Err(outcome) => return outcome,
        };
        for (slot, key) in (0..).zip(&self.keys) {
            if let Some(value) = values.get(key) {
                reading.set(slot, *value);
            }
        }
        Outcome::Read
    }
}

impl CustomSource for ClientsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.read_at(clock::monotonic_ns(), reading)
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(SHORTEST)
    }

    /// Looks for the first clients where the job uses GPUs already.
    fn prepare(&mut self) {
        if self.slots.is_empty() {
            self.read(&mut Reading::default());
        }
    }

    /// Without series no deadline has it read, and its thread looks for clients by itself.
    fn longest_gap_ns(&self) -> Option<u64> {
        self.slots.is_empty().then_some(LONGEST_GAP_NS)
    }
}

/// A source without slots that reports when values were found for the first time.
#[derive(Debug)]
pub(super) struct ClientsWatch {
    clients: Arc<GpuClients>,
    seen: u64,
}

impl ClientsWatch {
    /// Creates a watch of changes behind the first `seen`.
    pub(super) fn new(clients: &Arc<GpuClients>, seen: u64) -> Self {
        Self { clients: Arc::clone(clients), seen }
    }
}

impl CustomSource for ClientsWatch {
    fn slots(&self) -> &[Slot] {
        &[]
    }

    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        let changes = self.clients.changes();
        if std::mem::replace(&mut self.seen, changes) == changes { Outcome::Read } else { Outcome::Changed }
    }
}
