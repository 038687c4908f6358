//! Exit events: the ends of jobs' processes and cgroups, noticed while the cgroups still exist. A scheduler
//! removes them some milliseconds later.
//!
//! Version 2 has a file that changes when the last process of a cgroup ends. Version 1 has none: a pidfd
//! watches the first process of each of the job's cgroups, which is the leader of the step or task, and after
//! its end the next process. Without either, the removal of a step's cgroup serves, because the job's own is
//! removed after it.
//!
//! The job is read when the supervisor handles these events, which may be too late. The exit watcher notices
//! the same ends, and makes the sampler read the job at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::catalogue::Hierarchy;
use polymeter_proto::series::{Identifier, JobHandle};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::cgroup_watches::{CgroupWatches, Changes, EVENTS, Watched, WatchedPaths};
use super::exit_watcher::ExitWatcher;
use crate::cgroups::JobCgroups;

/// Most processes of one job that are watched; each takes a descriptor.
const LEADERS: usize = 16;

/// Most cgroups of version 2 of one job that the exit watcher watches; each takes a descriptor.
const URGENT: usize = 64;

/// Bytes of a list of processes that are read: only the first process is needed.
const LIST_BYTES: u64 = 64;

/// Key of inotify's events among those of the processes.
const INOTIFY: u64 = 0;

/// Most consecutive fetches of events: a user who causes more meanwhile does not delay the supervisor.
const ROUNDS: usize = 64;

#[derive(Debug)]
pub(crate) struct ExitEvents {
    epoll: OwnedFd,
    cgroups: CgroupWatches,
    exit_watcher: Arc<ExitWatcher>,
    jobs: BTreeMap<Identifier, WatchedJob>,
    leaders: BTreeMap<u64, Identifier>,
    next_leader: u64,
}

#[derive(Debug, Default)]
struct WatchedJob {
    watched: WatchedPaths,
    leaders: BTreeMap<u64, Leader>,
    /// Files of version 2 that the exit watcher watches, by their cgroups. Closing a file ends its watch.
    urgent: BTreeMap<PathBuf, File>,
}

/// A process whose end is the end of a part of a job.
#[derive(Debug)]
struct Leader {
    pid: Pid,
    /// Readable when the process has ended. Closing it ends the watch.
    _pidfd: OwnedFd,
}

impl ExitEvents {
    /// Without inotify only processes that exist at a rescan are known.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let cgroups = CgroupWatches::new();
        if let Some(inotify) = cgroups.descriptor() {
            epoll::add(&epoll, inotify, epoll::EventData::new_u64(INOTIFY), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            cgroups,
            exit_watcher: Arc::new(ExitWatcher::new()?),
            jobs: BTreeMap::new(),
            leaders: BTreeMap::new(),
            next_leader: INOTIFY + 1,
        })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Notices the same ends at once.
    pub(crate) const fn exit_watcher(&self) -> &Arc<ExitWatcher> {
        &self.exit_watcher
    }

    /// Walks through a job's cgroups, and watches what is new. Returns true if something has ended meanwhile.
    /// `handle` identifies the job to the exit watcher.
    pub(crate) fn watch(&mut self, job: &Identifier, handle: JobHandle, cgroups: &JobCgroups) -> bool {
        let mut watched_job = self.jobs.remove(job).unwrap_or_default();
        let former = std::mem::take(&mut watched_job.watched);
        if let Some(v2) = cgroups.directory(Hierarchy::V2) {
            let directories = self.cgroups.watch_tree(job, &mut watched_job.watched, v2);
            // A cgroup that was removed and created again is another one.
            watched_job.urgent.retain(|directory, file| is_of(file, directory));
            for directory in directories {
                let events = Watched::Events(directory.join(EVENTS));
                self.cgroups.watch(job, &mut watched_job.watched, events);
                self.watch_urgently(&mut watched_job, handle, directory);
            }
        }
        let mut ended = false;
        let v1 = cgroups.of_processes_v1();
        let directories = v1.map(|v1| self.cgroups.watch_tree(job, &mut watched_job.watched, v1));
        for directory in directories.unwrap_or_default() {
            if let Some(first) = first_process(&directory) {
                ended |= self.watch_process(job, handle, &mut watched_job, first) == Err(Errno::SRCH);
            }
        }
        // Watches that the walk did not confirm are removed: the kernel does not report the removal of a
        // cgroup.
        for (watched, watch) in former {
            if watched_job.watched.get(&watched) != Some(&watch) {
                self.cgroups.unwatch(watch);
            }
        }
        self.jobs.insert(job.clone(), watched_job);
        ended
    }

    pub(crate) fn forget(&mut self, job: &Identifier) {
        let Some(watched_job) = self.jobs.remove(job) else { return };
        watched_job.watched.into_values().for_each(|watch| self.cgroups.unwatch(watch));
        watched_job.leaders.keys().for_each(|id| drop(self.leaders.remove(id)));
    }

    /// Jobs in which something has happened since the last call; true if a part of the job has ended. All of
    /// them should be rescanned.
    pub(crate) fn drain(&mut self) -> BTreeMap<Identifier, bool> {
        let mut happened: BTreeMap<Identifier, bool> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let ready = self.ready();
            if ready.is_empty() {
                break;
            }
            for id in ready {
                if id == INOTIFY {
                    let Changes { happened: changed, ended } = self.cgroups.changes();
                    for (job, ended) in changed {
                        *happened.entry(job).or_default() |= ended;
                    }
                    for (job, watched) in ended {
                        self.jobs.get_mut(&job).and_then(|watched_job| watched_job.watched.remove(&watched));
                    }
                } else if let Some(job) = self.leaders.remove(&id) {
                    self.jobs.get_mut(&job).and_then(|watched_job| watched_job.leaders.remove(&id));
                    happened.insert(job, true);
                }
            }
        }
        happened
    }

    /// Keys of the ready descriptors, without waiting; descriptors that were not returned stay ready.
    fn ready(&self) -> Vec<u64> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call is repeated later, because the descriptor stays readable.
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now)).ok();
        events.into_iter().map(|event| event.data.u64()).collect()
    }

    /// Lets the exit watcher watch a cgroup of version 2, unless it does already or the job has too many.
    fn watch_urgently(&self, watched_job: &mut WatchedJob, handle: JobHandle, directory: PathBuf) {
        if watched_job.urgent.contains_key(&directory) || watched_job.urgent.len() >= URGENT {
            return;
        }
        // Without the exit watcher, inotify reports the end.
        if let Ok(events) = File::open(directory.join(EVENTS))
            && self.exit_watcher.add_events(&events, handle).is_ok()
        {
            watched_job.urgent.insert(directory, events);
        }
    }

    /// Watches a process of a job, unless that is done already or the job has too many.
    fn watch_process(
        &mut self,
        job: &Identifier,
        handle: JobHandle,
        watched_job: &mut WatchedJob,
        pid: Pid,
    ) -> Result<(), Errno> {
        let is_known = watched_job.leaders.values().any(|leader| leader.pid == pid);
        if is_known || watched_job.leaders.len() >= LEADERS {
            return Ok(());
        }
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let id = self.next_leader;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        self.exit_watcher.add_process(&pidfd, handle)?;
        self.next_leader += 1;
        self.leaders.insert(id, job.clone());
        watched_job.leaders.insert(id, Leader { pid, _pidfd: pidfd });
        Ok(())
    }
}

/// True if a file of `cgroup.events` belongs to the cgroup that has this directory now.
fn is_of(file: &File, directory: &Path) -> bool {
    let now = std::fs::metadata(directory.join(EVENTS)).map(|now| now.ino());
    now.is_ok_and(|now| file.metadata().is_ok_and(|file| file.ino() == now))
}

/// First process in the cgroup itself.
fn first_process(directory: &Path) -> Option<Pid> {
    let mut text = String::new();
    // A truncated text may end within a number, but never within the first.
    File::open(directory.join("cgroup.procs")).ok()?.take(LIST_BYTES).read_to_string(&mut text).ok()?;
    text.lines().next().and_then(|line| Pid::from_raw(line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::super::cgroup_watches::DIRECTORIES;
    use super::*;

    fn job() -> Identifier {
        Identifier::try_from("42").unwrap()
    }

    /// Waits until something happens, with the time limit of tests.
    fn drained(exits: &mut ExitEvents) -> BTreeMap<Identifier, bool> {
        let long = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&exits.descriptor(), PollFlags::IN)], Some(&long)), Ok(1));
        exits.drain()
    }

    fn ends_after(exits: &mut ExitEvents, mut process: Child) {
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(drained(exits), BTreeMap::from([(job(), true)]));
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn first_process_of_a_version_1_cgroup_is_watched_and_then_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let step = directory.path().join("step_0");
        let cgroups = JobCgroups {
            v1: [("cpuacct".to_owned(), directory.path().to_owned())].into(),
            ..JobCgroups::default()
        };
        let mut exits = ExitEvents::new().unwrap();
        assert!(!exits.watch(&job(), JobHandle(1), &cgroups));
        fs::create_dir(&step).unwrap();
        assert_eq!(drained(&mut exits), BTreeMap::from([(job(), false)]), "a step came");
        exits.watch(&job(), JobHandle(1), &cgroups);
        let (first, second) = (sleeper(), sleeper());
        fs::write(step.join("memory.limit_in_bytes"), "1000000\n").unwrap();
        fs::write(step.join("cgroup.procs"), format!("{}\n{}\n", first.id(), second.id())).unwrap();
        assert_eq!(drained(&mut exits), BTreeMap::from([(job(), false)]), "processes entered");
        assert!(!exits.watch(&job(), JobHandle(1), &cgroups));
        ends_after(&mut exits, first);
        fs::write(step.join("cgroup.procs"), format!("{}\n", second.id())).unwrap();
        drained(&mut exits);
        exits.watch(&job(), JobHandle(1), &cgroups);
        ends_after(&mut exits, second);
        assert!(exits.watch(&job(), JobHandle(1), &cgroups), "its list names a process that has ended");
        fs::remove_dir_all(&step).unwrap();
        assert_eq!(drained(&mut exits), BTreeMap::from([(job(), true)]), "the step's cgroup went");
        exits.forget(&job());
        assert!(exits.cgroups.is_empty() && exits.leaders.is_empty() && exits.jobs.is_empty());
    }

    #[test]
    fn end_of_a_version_2_cgroup_is_seen_by_its_events_file() {
        let directory = tempfile::tempdir().unwrap();
        let events = directory.path().join("cgroup.events");
        fs::write(&events, "populated 1\nfrozen 0\n").unwrap();
        let cgroups = JobCgroups { v2: Some(directory.path().to_owned()), ..JobCgroups::default() };
        let mut exits = ExitEvents::new().unwrap();
        exits.watch(&job(), JobHandle(1), &cgroups);
        fs::write(&events, "populated 0\nfrozen 0\n").unwrap();
        assert_eq!(drained(&mut exits), BTreeMap::from([(job(), true)]));
        assert!(exits.drain().is_empty());
    }

    #[test]
    fn recreated_cgroup_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let events = directory.path().join(EVENTS);
        fs::write(&events, "populated 1\n").unwrap();
        let file = File::open(&events).unwrap();
        assert!(is_of(&file, directory.path()));
        fs::remove_file(&events).unwrap();
        assert!(!is_of(&file, directory.path()));
        fs::write(&events, "populated 1\n").unwrap();
        assert!(!is_of(&file, directory.path()));
    }

    #[test]
    fn watches_of_one_job_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for step in 0..DIRECTORIES + 50 {
            fs::create_dir(directory.path().join(step.to_string())).unwrap();
        }
        let cgroups = JobCgroups { v2: Some(directory.path().to_owned()), ..JobCgroups::default() };
        let mut exits = ExitEvents::new().unwrap();
        exits.watch(&job(), JobHandle(1), &cgroups);
        assert_eq!(exits.jobs[&job()].watched.len(), DIRECTORIES);
    }
}
