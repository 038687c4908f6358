//! The exit watcher: notices at once that a process or a cgroup of a job has ended, on a thread with the
//! sampler's priority, and makes the sampler read the job.
//!
//! Slurm removes a job's cgroups half a millisecond after its last process, in a daemon that the kernel wakes
//! on the same CPU at the same moment. Of two ordinary threads either may run first, regardless of their nice
//! values: under autogroups a nice value counts among the threads of one session, sched(7).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use polymeter_proto::series::JobHandle;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, pread};

use crate::clock;
use crate::event_fd::EventFd;
use polymeter_service::token_bucket::TokenBucket;

/// Limit of reads that it requests, over all jobs: per second in the long run, and in a burst. Ends in
/// between share a read. All jobs of a node may end at once, and a user who may create cgroups of version 2
/// may empty them at will.
const READS: (u32, u32) = (200, 1000);

const EVENTS: usize = 64;

/// Key of the event that stops the watcher. Jobs' handles have 32 bits, so it differs from them.
const STOP: u64 = u64::MAX;

/// Waits for ends in one thread, and takes descriptors from others.
#[derive(Debug)]
pub(crate) struct ExitWatcher {
    epoll: OwnedFd,
    stop_event: EventFd,
}

impl ExitWatcher {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop_event = EventFd::new()?;
        epoll::add(&epoll, &stop_event, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        Ok(Self { epoll, stop_event })
    }

    /// Watches until the pidfd is closed.
    pub(crate) fn add_process(&self, pidfd: impl AsFd, job: JobHandle) -> Result<(), Errno> {
        // Once: the kernel reports the end, and reports it again when the parent has waited for the process.
        self.add(pidfd, job, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)
    }

    /// Waits for changes of a cgroup's `cgroup.events`, until the file is closed: the cgroup becomes
    /// populated or empty, or is removed (cgroup-v2.rst).
    pub(crate) fn add_events(&self, file: impl AsFd, job: JobHandle) -> Result<(), Errno> {
        // To the kernel, a file that was never read has changed (kernfs_generic_poll, fs/kernfs/file.c).
        pread(&file, &mut [0_u8; 64], 0)?;
        // Edge-triggered: each change is reported once, although the file is not read.
        self.add(file, job, epoll::EventFlags::PRI | epoll::EventFlags::ET)
    }

    fn add(&self, file: impl AsFd, job: JobHandle, of: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(job.0.into()), of)
    }

    /// Calls `ended` for each job of which something has ended, until [`Self::stop`].
    pub(crate) fn run(&self, mut ended: impl FnMut(JobHandle)) {
        let mut bucket = TokenBucket::new(READS.0.into(), READS.1.into());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let forever = None::<&Timespec>;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), forever) {
                Ok(_) | Err(Errno::INTR) => {}
                // An open descriptor has no other error; if one occurs, the loop must not spin.
                Err(_) => return,
            }
            // Several parts of a job usually end together.
            events.sort_unstable_by_key(|event| event.data.u64());
            events.dedup_by_key(|event| event.data.u64());
            let now_ns = clock::monotonic_ns();
            for event in &events {
                let Ok(job) = u32::try_from(event.data.u64()) else { return };
                ended(JobHandle(job));
                bucket.charge(1.0, now_ns);
            }
            let owed = Duration::from_nanos(bucket.debt_ns(now_ns));
            if !owed.is_zero() {
                clock::sleep(owed);
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.stop_event.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::sync::mpsc;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn end_of_a_process_is_reported_once_with_its_job() {
        let watcher = ExitWatcher::new().unwrap();
        let mut sleepers = [1, 2].map(|job| {
            let process = Command::new("sleep").arg("600").spawn().unwrap();
            let pid = Pid::from_raw(process.id().try_into().unwrap()).unwrap();
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            watcher.add_process(&pidfd, JobHandle(job)).unwrap();
            (process, pidfd)
        });
        let (ended, seen) = mpsc::sync_channel(8);
        let seen_ends: Vec<JobHandle> = std::thread::scope(|scope| {
            scope.spawn(|| watcher.run(|job| ended.send(job).unwrap()));
            let mut seen_ends = Vec::new();
            for (process, _pidfd) in &mut sleepers {
                process.kill().unwrap();
                seen_ends.extend(seen.recv());
                process.wait().unwrap();
            }
            watcher.stop();
            seen_ends
        });
        assert_eq!(seen_ends, [JobHandle(1), JobHandle(2)]);
        assert!(seen.try_recv().is_err(), "an end was reported that there was not");
    }

    #[test]
    fn ends_at_once_are_one_reading_of_each_job() {
        let watcher = ExitWatcher::new().unwrap();
        let ended = [7, 3, 7, 5, 3].map(|job| {
            let descriptor = EventFd::new().unwrap();
            descriptor.notify();
            watcher.add_process(&descriptor, JobHandle(job)).unwrap();
            descriptor
        });
        watcher.stop();
        let mut seen_ends = Vec::new();
        watcher.run(|job| seen_ends.push(job.0));
        assert_eq!(seen_ends, [3, 5, 7]);
        drop(ended);
    }

    #[test]
    fn ordinary_files_cannot_be_watched() {
        let watcher = ExitWatcher::new().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(watcher.add_events(&file, JobHandle(1)), Err(Errno::PERM));
    }
}
