//! Table of the jobs that are counted, by the ids of their cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::super::cgroup::{Cgroup, Programs};
use super::super::map::{Sizes, create_array, create_hash, delete, update};
use super::super::map_counters::Counters;
use super::super::mapping::Mapping;
use super::super::reason::{EbpfError, Step};
use super::super::system_call::operand;
use super::level::level;
use crate::sources::kernel_text::FileError;
use crate::sources::lock::lock;

/// Bound of the different levels of cgroups that are counted at a time: jobs, steps and tasks of a scheduler,
/// and one more. A program looks one cgroup up for each.
pub(super) const LEVELS: usize = 4;

const JOBS_MAX: u32 = 1024;

/// Bound of the memory for counters. It limits the number of cgroups on nodes with many CPUs.
const MEMORY_MAX_BYTES: u32 = 16 << 20;

#[derive(Debug, Clone, Copy)]
pub(in super::super) struct TableMaps {
    /// Map from the id of a cgroup to one more than its first line of counters.
    pub(super) jobs: i32,
    /// Levels of the cgroups, ended by the first 0.
    pub(super) levels: i32,
    /// Lines of counters for each cgroup.
    pub(super) counters: i32,
}

#[derive(Debug)]
pub(in super::super) struct JobTable {
    jobs: OwnedFd,
    levels: OwnedFd,
    counters: OwnedFd,
    line_bytes: u32,
    /// Lines of counters of one cgroup.
    used_lines: u32,
    /// Lines of one cgroup as they are laid out: whole pages, so that they can be mapped by themselves.
    lines: u32,
    capacity: u32,
    taken: Mutex<BTreeMap<u32, Taken>>,
}

#[derive(Debug, Clone, Copy)]
struct Taken {
    id: u64,
    level: u32,
    users: u32,
}

impl JobTable {
    /// Has `used_lines` lines of `line_bytes`, a power of two, for each cgroup.
    pub(in super::super) fn create(used_lines: u32, line_bytes: u32) -> io::Result<Arc<Self>> {
        let page_bytes = u32::try_from(rustix::param::page_size()).map_err(io::Error::other)?;
        let job_bytes = used_lines.saturating_mul(line_bytes).max(1).next_multiple_of(page_bytes);
        let capacity = (MEMORY_MAX_BYTES / job_bytes).clamp(1, JOBS_MAX);
        let lines = job_bytes / line_bytes;
        let level_bytes = u32::try_from(size_of::<[u32; LEVELS]>()).map_err(io::Error::other)?;
        let jobs = Sizes { key_bytes: 8, value_bytes: 4, entries: capacity };
        Ok(Arc::new(Self {
            jobs: create_hash(c"polymeter_jobs", jobs)?,
            levels: create_array(c"polymeter_levels", level_bytes, 1)?,
            counters: create_array(c"polymeter_lines", line_bytes, lines.saturating_mul(capacity))?,
            line_bytes,
            used_lines,
            lines,
            capacity,
            taken: Mutex::default(),
        }))
    }

    pub(in super::super) fn maps(&self) -> TableMaps {
        let [jobs, levels, counters] =
            [&self.jobs, &self.levels, &self.counters].map(|map| operand(map.as_fd()));
        TableMaps { jobs, levels, counters }
    }

    pub(in super::super) fn register(self: &Arc<Self>, path: &Path) -> Result<Registration, EbpfError> {
        let id = fs::metadata(path).map_err(FileError::of(path))?.ino();
        let level = level(path).map_err(FileError::of(path))?;
        let mut taken = lock(&self.taken);
        let shared = taken.iter_mut().find(|(_, other)| other.id == id);
        let place = match shared {
            Some((place, other)) => {
                other.users += 1;
                *place
            }
            None => {
                let place = (0..self.capacity).find(|place| !taken.contains_key(place));
                let place = place.ok_or(EbpfError::TooManyJobs(self.capacity))?;
                self.enter(&mut taken, place, Taken { id, level, users: 1 })?;
                place
            }
        };
        Ok(Registration { table: Arc::clone(self), place, path: path.to_owned() })
    }

    /// Enters a cgroup at a place, in exchange for the one that is there.
    fn enter(&self, taken: &mut BTreeMap<u32, Taken>, place: u32, new: Taken) -> Result<(), EbpfError> {
        let fault = |error| Step::Load.refused(error);
        let others = taken.iter().filter(|(other, _)| **other != place).map(|(_, taken)| taken.level);
        let levels: BTreeSet<u32> = others.chain([new.level]).collect();
        if new.level == 0 {
            return Err(EbpfError::RootCgroup);
        }
        if levels.len() > LEVELS {
            return Err(EbpfError::TooManyLevels(LEVELS));
        }
        update(self.jobs.as_fd(), &new.id, &(place * self.lines + 1)).map_err(fault)?;
        if let Some(old) = taken.insert(place, new) {
            self.forget(old);
        }
        self.write_levels(&levels).map_err(fault)
    }

    fn write_levels(&self, levels: &BTreeSet<u32>) -> io::Result<()> {
        let mut words = [0_u32; LEVELS];
        words.iter_mut().zip(levels).for_each(|(word, level)| *word = *level);
        update(self.levels.as_fd(), &0_u32, &words)
    }

    /// Removes the key of a cgroup. It can be missing only if it could not be entered.
    fn forget(&self, old: Taken) {
        if let Err(error) = delete(self.jobs.as_fd(), &old.id) {
            tracing::debug!("cannot remove a cgroup from the table of an eBPF program: {error}");
        }
    }

    fn release(&self, place: u32) {
        let mut taken = lock(&self.taken);
        let Some(entry) = taken.get_mut(&place) else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        if let Some(old) = taken.remove(&place) {
            self.forget(old);
        }
        let levels = taken.values().map(|taken| taken.level).collect();
        if let Err(error) = self.write_levels(&levels) {
            tracing::debug!("cannot remove a level from the table of an eBPF program: {error}");
        }
    }
}

/// A cgroup in a table, which is removed with the last registration of it.
#[derive(Debug)]
pub(in super::super) struct Registration {
    table: Arc<JobTable>,
    place: u32,
    path: PathBuf,
}

impl Registration {
    /// Counters of the cgroup. They begin anywhere, since places are used again.
    pub(in super::super) fn counters(&self) -> Result<Counters, EbpfError> {
        let table = &self.table;
        let words_per_line = table.line_bytes as usize / size_of::<u64>();
        let start = self.place as usize * table.lines as usize * table.line_bytes as usize;
        let words = table.used_lines as usize * words_per_line;
        let memory = Mapping::of_array(table.counters.as_fd(), start, words);
        let memory = memory.map_err(|error| Step::Load.refused(error))?;
        Ok(Counters::new(memory, words_per_line))
    }
}

impl Programs for Registration {
    fn attach(&mut self, cgroup: &Cgroup) -> Result<(), EbpfError> {
        let mut taken = lock(&self.table.taken);
        let old = taken.get(&self.place).copied().ok_or(EbpfError::NotRegistered)?;
        if old.id == cgroup.id {
            return Ok(());
        }
        if taken.values().any(|other| other.id == cgroup.id) {
            return Err(EbpfError::CountedAnew);
        }
        let level = level(&self.path).map_err(FileError::of(&self.path))?;
        self.table.enter(&mut taken, self.place, Taken { id: cgroup.id, level, ..old })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.release(self.place);
    }
}
