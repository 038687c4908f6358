//! GPU clients of a job, as they are known while the job runs: open files of GPUs that its processes have.

mod accounts;
mod descriptors;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::lock::lock;
use super::outcome::Outcome;
use super::process_files::read_whole;
use super::process_list::ProcessList;
use super::unknown_lines::UnknownLines;
use accounts::Accounts;
use descriptors::Descriptors;

pub(super) use accounts::Key;
pub(super) use accounts::check;
pub(super) use text::Quantity;

#[derive(Debug, Default)]
pub struct GpuClients {
    state: Mutex<State>,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    processes: Option<ProcessList>,
    descriptors: Descriptors,
    accounts: Accounts,
    /// True if no process could be searched at the last reading.
    is_refused: bool,
    unknown: UnknownLines,
}

impl GpuClients {
    /// Takes the list of the job's processes. That of a tree stays: it has processes that a new one would not
    /// find.
    pub(super) fn begin(&self, processes: ProcessList) {
        let mut state = lock(&self.state);
        if state.processes.is_none() || matches!(processes, ProcessList::Cgroup(_)) {
            state.processes = Some(processes);
        }
    }

    /// Takes the PCI addresses of the GPUs that the scheduler gives to the job: their clients are counted
    /// before there are any.
    pub(super) fn grant(&self, devices: impl IntoIterator<Item = String>) {
        let accounts = &mut lock(&self.state).accounts;
        devices.into_iter().for_each(|device| accounts.grant(device));
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        lock(&self.state).accounts.keys().iter().cloned().collect()
    }

    pub(super) fn is_refused(&self) -> bool {
        lock(&self.state).is_refused
    }

    pub(super) fn unknown_lines(&self) -> UnknownLines {
        lock(&self.state).unknown.clone()
    }

    fn set_refused(&self, is_refused: bool) {
        if std::mem::replace(&mut lock(&self.state).is_refused, is_refused) != is_refused {
            self.changes.fetch_add(1, Release);
        }
    }

    /// How often the known values changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Reads all clients. The texts are read without the lock: a driver may take its time.
    pub(super) fn read(&self, proc: &Path, now_ns: u64) -> Result<BTreeMap<Key, u64>, Outcome> {
        let texts = {
            let State { processes, descriptors, .. } = &mut *lock(&self.state);
            let pids = processes.as_mut().and_then(|processes| processes.list(proc)).ok_or(Outcome::Gone)?;
            descriptors.search(proc, &pids, now_ns).map(|()| descriptors.texts(proc)).map_err(Outcome::Retry)
        };
        self.set_refused(texts.is_err());
        let texts = texts?;
        // A descriptor that was closed meanwhile has no text, or that of another file.
        let mut unknown = UnknownLines::default();
        let clients = texts
            .iter()
            .filter_map(|path| text::parse(&read_whole(path).ok()?, &mut unknown))
            .collect::<Vec<_>>();
        let mut state = lock(&self.state);
        state.unknown = unknown;
        let before = state.accounts.keys().len();
        let values = state.accounts.update(clients);
        if state.accounts.keys().len() > before {
            self.changes.fetch_add(1, Release);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_change_once() {
        let clients = GpuClients::default();
        let changes = [true, true, false, false].map(|is_refused| {
            clients.set_refused(is_refused);
            (clients.changes(), clients.is_refused())
        });
        assert_eq!(changes, [(1, true), (1, true), (2, false), (2, false)]);
    }
}
