//! Source of one job: its threads are moved into its monitoring group, whose counters are read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tracing::warn;

use super::group::Group;
use super::text::{self, Event};
use crate::clock;
use crate::sources::custom_source::CustomSource;
use crate::sources::kernel_text;
use crate::sources::outcome::Outcome;
use crate::sources::process_files::threads;
use crate::sources::process_list::ProcessList;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::unknown_lines::UnknownLines;

/// Bound of the threads of a job that are moved into its group at a scan; each takes some 10 microseconds.
const THREADS_MAX: usize = 16_384;

/// Shortest time between two searches for threads that are not in the group.
const SCAN_EVERY_NS: u64 = 1_000_000_000;

/// Longest time without a search: twice the time between two searches. Processes that a scheduler's daemon
/// starts, for example for another step, do not inherit the group.
const LONGEST_GAP_NS: u64 = 4_000_000_000;

/// Lists of threads at a scan: a thread that is not in the group yet may start others meanwhile.
const PASSES: usize = 3;

pub(super) type Value = (u32, Event);

#[derive(Debug)]
pub(super) struct Monitored {
    pub(super) mount: PathBuf,
    pub(super) proc: PathBuf,
    pub(super) job: String,
    pub(super) processes: ProcessList,
    pub(super) slots: Vec<Slot>,
    pub(super) values: Vec<Value>,
    pub(super) domains: BTreeSet<u32>,
    /// Features of the processor that have no series.
    pub(super) unknown_features: UnknownLines,
}

#[derive(Debug)]
pub(super) struct ResctrlSource {
    monitored: Monitored,
    group: Group,
    /// Time and result of the last search for threads.
    scanned: Option<(u64, Membership)>,
    has_warned: bool,
    unknown: UnknownLines,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Membership {
    inside: usize,
    /// Number of threads that the kernel did not move into it, and its last reason.
    outside: usize,
    refusal: Option<Errno>,
}

impl ResctrlSource {
    pub(super) fn new(monitored: Monitored, group: Group) -> Self {
        let unknown = monitored.unknown_features.clone();
        Self { monitored, group, scanned: None, has_warned: false, unknown }
    }

    /// True if it has reported threads that it does not monitor.
    #[cfg(test)]
    pub(super) const fn has_warned(&self) -> bool {
        self.has_warned
    }

    pub(super) fn read_at(&mut self, now_ns: u64, reading: &mut Reading) -> Outcome {
        let membership = match self.scanned {
            Some((at_ns, membership)) if now_ns.saturating_sub(at_ns) < SCAN_EVERY_NS => membership,
            Some(_) | None => {
                if let Err(error) = self.group.ensure() {
                    return Outcome::Retry(errno_of(&error));
                }
                let membership = self.scan();
                self.scanned = Some((now_ns, membership));
                membership
            }
        };
        if let Some(refusal) = membership.refusal {
            self.warn_of(membership, refusal);
            // The values would be those of nothing.
            if membership.inside == 0 {
                return Outcome::Retry(refusal);
            }
        }
        self.unknown = self.monitored.unknown_features.clone();
        for (slot, (domain, event)) in (0..).zip(&self.monitored.values) {
            // The directory of a domain whose CPUs are offline does not exist.
            let path = self.group.path().join(format!("mon_data/mon_L3_{domain:02}/{}", event.name()));
            let Ok(text) = kernel_text::text(&path) else { continue };
            if text::is_unknown(&text) {
                self.unknown.add(text.as_bytes());
            }
            let Some(raw) = text::value(&text) else { continue };
            let value = if event.is_counter() { self.group.count(*domain, *event, raw) } else { raw };
            reading.set(slot, value);
        }
        let has_more = !domains(&self.monitored.mount).is_subset(&self.monitored.domains);
        if has_more { Outcome::Changed } else { Outcome::Read }
    }

    /// Moves the threads of the job into the group that are not in it. When all have ended there is none.
    fn scan(&mut self) -> Membership {
        let mut membership = Membership::default();
        for _ in 0..PASSES {
            let tasks = kernel_text::text(&self.group.path().join("tasks")).unwrap_or_default();
            let inside = text::tasks(&tasks);
            let threads = self.threads();
            membership = Membership::default();
            let mut is_any_new = false;
            for thread in threads {
                let moved = if inside.contains(&thread) { Ok(()) } else { self.group.add_task(thread) };
                match moved.map_err(|error| errno_of(&error)) {
                    Ok(()) => {
                        membership.inside += 1;
                        is_any_new |= !inside.contains(&thread);
                    }
                    // It has ended meanwhile.
                    Err(Errno::SRCH) => {}
                    Err(errno) => {
                        membership.outside += 1;
                        membership.refusal = Some(errno);
                    }
                }
            }
            if !is_any_new {
                break;
            }
        }
        membership
    }

    fn threads(&mut self) -> Vec<u32> {
        let Monitored { processes, proc, .. } = &mut self.monitored;
        let pids = processes.list(proc).unwrap_or_default();
        pids.iter().flat_map(|pid| threads(proc, *pid)).take(THREADS_MAX).collect()
    }

    /// Reports once that the values are not those of the whole job.
    fn warn_of(&mut self, membership: Membership, refusal: Errno) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let reason = match refusal {
                Errno::INVAL => {
                    "they belong to another control group of resctrl; remove them from it".to_owned()
                }
                Errno::PERM | Errno::ACCESS => format!("{refusal}; run the agent as root"),
                other => other.to_string(),
            };
            warn!(
                "cannot monitor {} of {} threads of job {} with resctrl: {reason}",
                membership.outside,
                membership.outside + membership.inside,
                self.monitored.job
            );
        }
    }
}

impl CustomSource for ResctrlSource {
    fn slots(&self) -> &[Slot] {
        &self.monitored.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.read_at(clock::monotonic_ns(), reading)
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        Some(LONGEST_GAP_NS)
    }
}

pub(super) fn domains(mount: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(mount.join("mon_data")).into_iter().flatten().flatten();
    entries.filter_map(|entry| text::domain(entry.file_name().to_str()?)).collect()
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
