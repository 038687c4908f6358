//! perf events of all processes of a job without a cgroup for perf: events of each process, inherited by what
//! it starts.
//!
//! The supervisor looks for processes and opens their events; the sampler only reads. A process that lives
//! for less than the time between two searches is counted if its parent was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_queue::ArrayQueue;
use polymeter_proto::catalogue::Definition;
use polymeter_service::clock;

use super::event_config::{Config, EventPlaces};
use super::events::{config, meaning};
use super::families::{Families, Listed, Opening};
use super::fork_log::ForkLog;
use super::forks::Forks;
use super::open::{Group, Opener, PerfTarget};
use super::values::{GROUP_WORDS, add, set, slots};
use crate::sources::cgroup_processes::{PROCESSES_MAX, listed};
use crate::sources::custom_source::CustomSource;
use crate::sources::kernel_text;
use crate::sources::outcome::Outcome;
use crate::sources::process_files::threads;
use crate::sources::process_files::{StatLine, TICK_NS};
use crate::sources::reading::Reading;
use crate::sources::slot::{Slot, Unavailable};
use crate::sources::summed_file::ScanResult;

/// Bound of the ancestors of a process outside of the job that are looked up.
const ANCESTORS_MAX: usize = 32;

/// Bound of the processes that wait for the sampler. The next search opens more.
const WAITING_MAX: usize = 32;

/// Bound of the processes of a source with events of their own, with ended ones until the sampler has given
/// them back. There is room for all from the beginning, so that the sampler need not allocate to take one
/// over.
const MEMBERS_MAX: usize = PROCESSES_MAX;

#[derive(Debug)]
struct Member {
    pid: u32,
    groups: Vec<Group>,
}

/// Processes on their way to the sampler, and back to be closed.
#[derive(Debug)]
struct Exchange {
    came: ArrayQueue<Box<Member>>,
    ended: ArrayQueue<u32>,
    left: ArrayQueue<Box<Member>>,
    /// Number of processes on either side and on the way.
    members: AtomicUsize,
    descriptors: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct FollowedSource {
    #[expect(clippy::vec_box, reason = "boxes travel to the supervisor and back without allocation")]
    members: Vec<Box<Member>>,
    slots: Vec<Slot>,
    configs: Vec<Config>,
    gone: Vec<u64>,
    sums: Vec<u64>,
    exchange: Arc<Exchange>,
}

/// Finds new processes of a job, and hands their events over to be read.
#[derive(Debug)]
pub struct ProcessFollower {
    proc: PathBuf,
    cgroup: PathBuf,
    events: Vec<(Definition, Config)>,
    user_only: bool,
    families: Families,
    /// Log of forks, which began before the first events; `None` without the right to it.
    fork_log: Option<Arc<ForkLog>>,
    /// Ended processes that the sampler must be told of.
    ended: Vec<u32>,
    exchange: Arc<Exchange>,
    /// Processes without room for their events, each with the number of descriptors that it needs.
    without_room: BTreeMap<u32, usize>,
    is_full: bool,
    failure: Option<String>,
}

impl FollowedSource {
    /// Opens `wanted` for the processes in a cgroup and below it, with at most `room` descriptors, and the
    /// log of forks on `cpus`. Events that cannot be counted are left out and returned with the reasons.
    pub(crate) fn open(
        places: &EventPlaces,
        cgroup: &Path,
        wanted: &[Definition],
        cpus: &[usize],
        room: usize,
        target_labels: &[(String, String)],
    ) -> (Option<(Self, ProcessFollower)>, Vec<Unavailable>) {
        let mut unavailable = Vec::new();
        let mut events = Vec::new();
        // Whether the machine has an event shows at the agent's own process.
        let target = PerfTarget::Process(std::process::id());
        let mut opener = Opener { target: &target, cgroup: None, user_only: false };
        for definition in wanted {
            let probed = config(definition, places).map_err(|error| error.to_string()).and_then(|config| {
                opener.probe(config, &[]).map(|()| config).map_err(|error| meaning(&error))
            });
            match probed {
                Ok(config) => events.push((config.measured(definition), config)),
                Err(reason) => unavailable.push(Unavailable::for_good(definition.clone(), reason)),
            }
        }
        if events.is_empty() {
            return (None, unavailable);
        }
        let definitions: Vec<Definition> = events.iter().map(|(definition, _)| definition.clone()).collect();
        let exchange = Arc::new(Exchange {
            came: ArrayQueue::new(WAITING_MAX),
            ended: ArrayQueue::new(WAITING_MAX),
            left: ArrayQueue::new(WAITING_MAX),
            members: AtomicUsize::new(0),
            descriptors: AtomicUsize::new(0),
        });
        let words = GROUP_WORDS + definitions.len();
        let mut source = Self {
            members: Vec::with_capacity(MEMBERS_MAX),
            slots: slots(&definitions, opener.user_only, target_labels),
            configs: events.iter().map(|(_, config)| *config).collect(),
            gone: vec![0; words],
            sums: vec![0; words],
            exchange: Arc::clone(&exchange),
        };
        let mut follower = ProcessFollower {
            proc: places.proc.clone(),
            cgroup: cgroup.to_owned(),
            events,
            user_only: opener.user_only,
            families: Families::default(),
            fork_log: ForkLog::of(cpus),
            ended: Vec::new(),
            exchange,
            without_room: BTreeMap::new(),
            is_full: false,
            failure: None,
        };
        follower.find(room, |member| {
            source.members.push(member);
            true
        });
        if let (true, Some(reason)) = (source.members.is_empty(), &follower.failure) {
            unavailable.extend(
                definitions.into_iter().map(|definition| Unavailable::for_good(definition, reason.clone())),
            );
            return (None, unavailable);
        }
        (Some((source, follower)), unavailable)
    }

    /// Takes over the processes that the supervisor has found, and gives back the ended ones.
    fn exchange(&mut self) {
        while let Some(member) = self.exchange.came.pop() {
            self.members.push(member);
        }
        while !self.exchange.left.is_full()
            && let Some(pid) = self.exchange.ended.pop()
        {
            // A process that has just ended may have the number of an earlier one: that one is further ahead.
            if let Some(place) = self.members.iter().position(|member| member.pid == pid) {
                let member = self.members.remove(place);
                member.add_to(&mut self.gone);
                drop(self.exchange.left.push(member));
            }
        }
    }
}

impl CustomSource for FollowedSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.exchange();
        self.sums.copy_from_slice(&self.gone);
        for member in &self.members {
            member.add_to(&mut self.sums);
        }
        set(&self.sums, &self.configs, 0..self.slots.len(), reading);
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

impl Member {
    /// Adds the counts of its events. An event that cannot be read counts nothing any more.
    fn add_to(&self, sums: &mut [u64]) {
        for group in &self.groups {
            let (Some(event), Some([value, enabled, running])) = (group.single, group.read_single()) else {
                continue;
            };
            add(sums, GROUP_WORDS + event, value);
            if event == 0 {
                add(sums, 1, enabled);
                add(sums, 2, running);
            }
        }
    }
}

impl ProcessFollower {
    /// Finds new processes, for whose events `room` descriptors are left, and those that have ended.
    pub fn scan(&mut self, room: usize) -> ScanResult {
        while let Some(member) = self.exchange.left.pop() {
            self.exchange.descriptors.fetch_sub(member.groups.len(), Relaxed);
            self.exchange.members.fetch_sub(1, Relaxed);
        }
        let exchange = Arc::clone(&self.exchange);
        let found = self.find(room, |member| exchange.came.push(member).is_ok());
        let is_news = found == ScanResult::TooMany && !self.is_full;
        self.is_full = !self.without_room.is_empty();
        if found == ScanResult::TooMany && !is_news { ScanResult::All } else { found }
    }

    pub fn descriptors(&self) -> usize {
        self.exchange.descriptors.load(Relaxed)
    }

    /// Passes the events of new processes to `take`, until it accepts no more.
    fn find(&mut self, room: usize, mut take: impl FnMut(Box<Member>) -> bool) -> ScanResult {
        let all: BTreeSet<u32> = listed(&self.cgroup).unwrap_or_default();
        self.retry_within(room, &all);
        let new = all.iter().filter(|pid| !self.families.knows(**pid)).filter_map(|pid| {
            let stat = StatLine::read(&self.proc.join(pid.to_string()))?;
            let (parent, started, leaders) = (stat.parent(), stat.started(), stat.leaders());
            Some((*pid, Listed { parent, started, leaders }))
        });
        let new: BTreeMap<u32, Listed> = new.collect();
        self.follow_orphans(&all);
        let families = &mut self.families;
        let changes = match &self.fork_log {
            // The forks of all that are listed are in it by now.
            Some(log) => log.with(|forks| families.update(&all, &new, forks)),
            None => families.update(&all, &new, &Forks::default()),
        };
        self.ended.extend(changes.close);
        self.ended.retain(|pid| self.exchange.ended.push(*pid).is_err());
        let (mut room, mut result) = (room, ScanResult::All);
        let mut is_accepting = true;
        for pid in changes.open {
            if !is_accepting {
                self.families.forget(pid);
                continue;
            }
            let threads: Vec<u32> = threads(&self.proc, pid).collect();
            let needed = threads.len() * self.events.len();
            if needed > room || self.exchange.members.load(Relaxed) >= MEMBERS_MAX {
                self.without_room.insert(pid, needed);
                result = ScanResult::TooMany;
                continue;
            }
            let Some((groups, opening)) = self.open_process(&threads) else { continue };
            room -= groups.len();
            self.exchange.descriptors.fetch_add(groups.len(), Relaxed);
            let opened = groups.len();
            self.exchange.members.fetch_add(1, Relaxed);
            if take(Box::new(Member { pid, groups })) {
                self.families.opened(pid, opening);
                if let Some(listed) = new.get(&pid).filter(|listed| !all.contains(&listed.parent)) {
                    self.learn_launcher(listed.parent);
                }
            } else {
                self.exchange.members.fetch_sub(1, Relaxed);
                self.exchange.descriptors.fetch_sub(opened, Relaxed);
                self.families.forget(pid);
                (is_accepting, result) = (false, ScanResult::Some);
            }
        }
        result
    }

    /// Finds out who has adopted the known processes whose parents have ended.
    fn follow_orphans(&mut self, all: &BTreeSet<u32>) {
        for pid in self.families.orphans(all) {
            if let Some(stat) = StatLine::read(&self.proc.join(pid.to_string())) {
                self.families.adopted(pid, stat.parent(), all);
            }
        }
    }

    /// Records a process outside of the job that started one of it, and its ancestors.
    fn learn_launcher(&mut self, launcher: u32) {
        if self.families.knows_launcher(launcher) {
            return;
        }
        let mut ancestors = Vec::new();
        let mut pid = launcher;
        while ancestors.len() < ANCESTORS_MAX {
            let Some(stat) = StatLine::read(&self.proc.join(pid.to_string())) else { break };
            pid = stat.parent();
            if pid == 0 {
                break;
            }
            ancestors.push(pid);
        }
        self.families.launched_by(launcher, ancestors);
    }

    /// Forgets the processes for which there is room now, so that they are tried again, and those that have
    /// ended.
    fn retry_within(&mut self, mut room: usize, all: &BTreeSet<u32>) {
        let families = &mut self.families;
        self.without_room.retain(|pid, needed| {
            let fits = all.contains(pid) && *needed <= room;
            if fits {
                room -= *needed;
                families.forget(*pid);
            }
            all.contains(pid) && !fits
        });
    }

    /// Opens all events of the threads of a process; `None` if it has ended, or may not be counted.
    fn open_process(&mut self, threads: &[u32]) -> Option<(Vec<Group>, Opening)> {
        let before = ticks();
        let mut groups = Vec::new();
        for thread in threads {
            let target = PerfTarget::Process(*thread);
            let opener = Opener { target: &target, cgroup: None, user_only: self.user_only };
            match opener.open_all(&self.events, &[]) {
                Ok(opened) => groups.extend(opened),
                // A thread that has ended meanwhile counts nothing.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => self.failure = Some(meaning(&error)),
            }
        }
        let last_pid = last_pid(&kernel_text::text(&self.proc.join("loadavg")).ok()?)?;
        (!groups.is_empty()).then_some((groups, Opening { ticks: (before, ticks()), last_pid }))
    }
}

fn ticks() -> u64 {
    clock::boottime_ns() / TICK_NS
}

/// Number of the newest process or thread: the last field of `/proc/loadavg`.
fn last_pid(loadavg: &str) -> Option<u32> {
    loadavg.split_ascii_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests;
