//! Number of jobs that are tracked, bounded by the size of the table and by the file descriptors.

use polymeter_proto::units::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::share::{Candidate, left_out};
use crate::targets::{Now, Targets};

pub(crate) const JOBS: usize = 4096;

/// Descriptors that are reserved for other uses: the socket to the collector, which libzmq reopens, clients'
/// connections, and files that are open briefly.
const RESERVED: usize = 64;

/// Descriptors below which the agent does not start.
pub(crate) const MIN_DESCRIPTORS: usize = 2 * RESERVED;

/// Fewest descriptors of a job: its files, and those for exit events.
const OF_JOB: usize = 32;

/// Table entries for registered jobs, which discovery does not use.
const REGISTERED: usize = 256;

/// Most of these entries for one ordinary user's jobs.
const REGISTERED_OF_USER: usize = REGISTERED / 4;

const REPEAT_NS: u64 = 60_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) limit: usize,
    pub(crate) open: usize,
}

impl Descriptors {
    pub(crate) const fn spare(self) -> usize {
        self.limit.saturating_sub(RESERVED + self.open)
    }
}

/// Owner of a job as its cgroup states it: numeric id and name.
pub(crate) type CgroupOwner = (Option<u32>, Option<String>);

#[derive(Debug)]
pub(crate) struct Capacity {
    /// Descriptors that are open without any job.
    base: usize,
    reported_ns: Option<u64>,
}

impl Capacity {
    pub(crate) const fn new(base: usize) -> Self {
        Self { base, reported_ns: None }
    }

    /// Further jobs that descriptors allow, beside the `tracked` ones.
    fn more(&self, tracked: usize, descriptors: Descriptors) -> usize {
        let of_jobs = descriptors.open.saturating_sub(self.base);
        let of_each = of_jobs.checked_div(tracked).unwrap_or_default().max(OF_JOB);
        descriptors.spare() / of_each
    }

    pub(crate) fn room(&self, targets: &Targets, descriptors: Descriptors) -> usize {
        let discovered = targets.iter().filter(|(_, target)| target.found_at.is_some()).count();
        (discovered + self.more(targets.job_count(), descriptors)).min(JOBS)
    }

    /// Found jobs for which there is no room, of those given with their owners; every owner has the same
    /// share.
    pub(crate) fn left_out(
        targets: &Targets,
        found: BTreeMap<PathBuf, CgroupOwner>,
        room: usize,
    ) -> Vec<PathBuf> {
        let tracked: BTreeSet<&PathBuf> =
            targets.iter().filter_map(|(_, target)| target.found_at.as_ref()).collect();
        let candidates =
            found.into_iter().map(|(job, owner)| Candidate { is_new: !tracked.contains(&job), job, owner });
        left_out(candidates.collect(), room)
    }

    /// Message about jobs that are left out: at first, at intervals, and when there are none any more. True
    /// for a warning.
    pub(crate) fn report(
        &mut self,
        jobs: usize,
        room: usize,
        descriptors: Descriptors,
        now: Now,
    ) -> Option<(String, bool)> {
        if jobs == 0 {
            return self.reported_ns.take().map(|_| ("all jobs are tracked again".to_owned(), false));
        }
        if self.reported_ns.is_some_and(|at_ns| now.monotonic_ns.saturating_sub(at_ns) < REPEAT_NS) {
            return None;
        }
        self.reported_ns = Some(now.monotonic_ns);
        let cause = if room >= JOBS {
            format!("the limit of {room} jobs is reached; each user may have an equal share of them")
        } else {
            format!(
                "{} file descriptors are too few; raise LimitNOFILE or sample fewer metrics",
                descriptors.limit
            )
        };
        Some((format!("cannot track {jobs} of {}: {cause}", counted(jobs + room, "job")), true))
    }

    pub(crate) fn has_room_for(targets: &Targets, owner_uid: Option<u32>, descriptors: Descriptors) -> bool {
        let jobs = || targets.iter().filter(|(key, _)| key.is_some());
        let registered = || jobs().filter(|(_, target)| target.found_at.is_none());
        let discovered = jobs().count() - registered().count();
        registered().count() < REGISTERED.max(JOBS.saturating_sub(discovered))
            && owner_uid.filter(|uid| *uid != 0).is_none_or(|uid| {
                let of_user = registered().filter(|(_, target)| target.owner_uid == Some(uid));
                of_user.count() < REGISTERED_OF_USER
            })
            && descriptors.spare() >= OF_JOB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Now {
        Now { monotonic_ns: seconds * SECOND_NS, realtime_us: 0 }
    }

    #[test]
    fn descriptors_bound_the_number_of_jobs() {
        let targets = Targets::default();
        let capacity = Capacity::new(20);
        let room = |limit, open| capacity.room(&targets, Descriptors { limit, open });
        assert_eq!(room(1_024, 20), (1_024 - 64 - 20) / 32);
        assert_eq!(room(100, 90), 0);
        assert_eq!(room(10_000_000, 20), JOBS);
        assert!(Capacity::has_room_for(&targets, Some(7), Descriptors { limit: 1_024, open: 20 }));
        assert!(!Capacity::has_room_for(&targets, Some(7), Descriptors { limit: 120, open: 40 }));
    }

    #[test]
    fn jobs_that_are_left_out_are_reported_now_and_then() {
        let mut capacity = Capacity::new(20);
        let descriptors = Descriptors { limit: 256, open: 200 };
        let first = capacity.report(3, 5, descriptors, at(1)).unwrap();
        assert!(
            first.0.starts_with("cannot track 3 of 8 jobs: 256 file descriptors") && first.1,
            "{first:?}"
        );
        assert_eq!(capacity.report(4, 5, descriptors, at(2)), None);
        assert!(capacity.report(4, JOBS, descriptors, at(62)).unwrap().0.contains("equal share"));
        assert_eq!(capacity.report(0, 5, descriptors, at(63)).map(|(_, is_warning)| is_warning), Some(false));
        assert_eq!(capacity.report(0, 5, descriptors, at(64)), None);
    }
}
