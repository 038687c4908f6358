//! Source of the GPU clients of one job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::period::Period;

use crate::clock;
use crate::sources::custom_source::CustomSource;
use crate::sources::gpu_clients::{GpuClients, Key};
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::unknown_lines::UnknownLines;

/// Shortest useful time between two readings: a driver walks through the memory of each client.
const SHORTEST: Period = Period::HUNDRED_MILLISECONDS;

/// Longest time between two readings while the job has no series. The thread reads at half of it.
const LONGEST_GAP_NS: u64 = 10_000_000_000;

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

    fn unknown_lines(&self) -> UnknownLines {
        self.clients.unknown_lines()
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

    /// Without series no deadline has it read, so its thread looks for clients by itself.
    fn longest_gap_ns(&self) -> Option<u64> {
        self.slots.is_empty().then_some(LONGEST_GAP_NS)
    }
}

/// Reports that values were found for the first time: a source without slots.
#[derive(Debug)]
pub(super) struct ClientsWatch {
    clients: Arc<GpuClients>,
    seen: u64,
}

impl ClientsWatch {
    /// Watches changes after the first `seen`.
    pub(super) fn new(clients: &Arc<GpuClients>, seen: u64) -> Self {
        Self { clients: Arc::clone(clients), seen }
    }
}

impl CustomSource for ClientsWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        let changes = self.clients.changes();
        if std::mem::replace(&mut self.seen, changes) == changes { Outcome::Read } else { Outcome::Changed }
    }
}
