//! Sums over a job's processes that use amdkfd. What ended processes have used stays part of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;

use super::files::{DIRECTORY, number};
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::process_files::StatLine;
use crate::sources::process_list::ProcessList;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;

pub(super) const KIND: &str = "kfd";

/// A quantity that the driver states for each process and GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantity {
    pub(super) field: &'static str,
    is_counter: bool,
    /// Factor to the unit of the catalogue.
    factor: u64,
    file: fn(u32) -> String,
}

pub(super) const QUANTITIES: [Quantity; 4] = [
    Quantity { field: "memory", is_counter: false, factor: 1, file: |gpu| format!("vram_{gpu}") },
    // In microseconds.
    Quantity { field: "sdma", is_counter: true, factor: 1_000, file: |gpu| format!("sdma_{gpu}") },
    Quantity {
        field: "evicted",
        is_counter: true,
        factor: 1_000_000,
        file: |gpu| format!("stats_{gpu}/evicted_ms"),
    },
    Quantity {
        field: "occupancy",
        is_counter: false,
        factor: 1,
        file: |gpu| format!("stats_{gpu}/cu_occupancy"),
    },
];

/// A process: its number belongs to others later, its time of start does not.
type ProcessId = (u32, u64);

#[derive(Debug)]
struct Value {
    quantity: Quantity,
    gpu: u32,
    known: BTreeMap<ProcessId, u64>,
    /// Sum of the counts of those that have ended; `None` before there were any.
    ended: Option<u64>,
}

#[derive(Debug)]
pub(super) struct KfdSource {
    /// Has a directory for each process that uses the driver.
    directory: PathBuf,
    proc: PathBuf,
    processes: ProcessList,
    slots: Vec<Slot>,
    values: Vec<Value>,
}

impl KfdSource {
    pub(super) fn new(
        sys: &Path,
        proc: &Path,
        processes: ProcessList,
        wanted: &[Definition],
        gpus: &[(u32, Labels)],
    ) -> Self {
        let known = wanted.iter().filter_map(|definition| {
            let field = definition.metric.field_of(KIND)?;
            Some((definition, QUANTITIES.into_iter().find(|quantity| quantity.field == field)?))
        });
        let of_gpus = known.flat_map(|(definition, quantity)| {
            gpus.iter().map(move |(gpu, labels)| {
                let slot = Slot { definition: definition.clone(), labels: labels.clone() };
                (slot, Value { quantity, gpu: *gpu, known: BTreeMap::new(), ended: None })
            })
        });
        let (slots, values) = of_gpus.unzip();
        Self { directory: sys.join(DIRECTORY).join("proc"), proc: proc.to_owned(), processes, slots, values }
    }
}

impl Value {
    /// Reads the processes that use the driver, and returns their sum; `None` if a process with a value could
    /// not be read, or if none ever had one.
    fn read(&mut self, directory: &Path, processes: &BTreeSet<ProcessId>) -> Option<u64> {
        let mut is_failed = false;
        let mut found = BTreeMap::new();
        for process in processes {
            let path = directory.join(process.0.to_string()).join((self.quantity.file)(self.gpu));
            match number(&path) {
                Ok(Some(value)) => {
                    found.insert(*process, value.saturating_mul(self.quantity.factor));
                }
                Ok(None) => {}
                Err(_) => is_failed = true,
            }
        }
        if !self.quantity.is_counter {
            let sum = found.values().fold(0_u64, |sum, value| sum.saturating_add(*value));
            return (!is_failed && !found.is_empty()).then_some(sum);
        }
        for (process, value) in found {
            let known = self.known.entry(process).or_default();
            // A queue that is removed during the reading of the driver is not in this value.
            *known = value.max(*known);
        }
        let ended = &mut self.ended;
        self.known.retain(|process, value| {
            let is_there = processes.contains(process);
            if !is_there {
                *ended = Some(ended.unwrap_or(0).saturating_add(*value));
            }
            is_there
        });
        let is_any = self.ended.is_some() || !self.known.is_empty();
        is_any.then(|| {
            self.known.values().fold(self.ended.unwrap_or(0), |sum, value| sum.saturating_add(*value))
        })
    }
}

impl CustomSource for KfdSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let Some(pids) = self.processes.list(&self.proc) else { return Outcome::Gone };
        // A process has not ended because a file of it cannot be read for a moment.
        let known: BTreeMap<u32, u64> =
            self.values.iter().flat_map(|value| value.known.keys().copied()).collect();
        let processes: BTreeSet<ProcessId> = pids
            .into_iter()
            .filter(|pid| known.contains_key(pid) || self.directory.join(pid.to_string()).exists())
            .filter_map(|pid| {
                let stat = StatLine::read(&self.proc.join(pid.to_string()));
                Some((pid, stat.map(|stat| stat.started()).or_else(|| known.get(&pid).copied())?))
            })
            .collect();
        for (slot, value) in (0..).zip(&mut self.values) {
            match value.read(&self.directory, &processes) {
                Some(bits) => reading.set(slot, bits),
                None => reading.set_lacking(slot),
            }
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::HUNDRED_MILLISECONDS)
    }
}
