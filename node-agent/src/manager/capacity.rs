//! How many jobs are followed: as many as there is room for in the table and as there are file descriptors for. Jobs that are left
//! out are counted, shown in `status`, and told of in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::Manager;
use crate::admission::share::{Candidate, left_out};
use crate::kernel;
use crate::lifecycle::discovery::{self, Found};
use crate::log;

/// Descriptors that jobs do not get: of the socket to the collector, which libzmq opens anew, of users' connections, and of files
/// that are open for a moment.
const RESERVED: usize = 64;

/// With fewer descriptors the agent does not start.
pub(crate) const FEWEST: usize = 2 * RESERVED;

/// Descriptors that a job takes at least: its files, and what watches its ends.
const OF_JOB: usize = 32;

/// Places of the table for jobs that are registered, which discovery does not fill.
const REGISTERED: usize = 256;

/// Places of those that one ordinary user's jobs may take.
pub(super) const REGISTERED_OF_USER: usize = REGISTERED / 4;

/// How often is said again that jobs are left out.
const AGAIN: Duration = Duration::from_secs(60);

/// What is known of the room for jobs.
#[derive(Debug)]
pub(super) struct Capacity {
    limit: usize,
    /// Descriptors that were open without any job.
    base: usize,
    told_at: Option<Instant>,
}

impl Capacity {
    pub(super) fn new() -> Self {
        Self { limit: kernel::descriptor_limit(), base: 0, told_at: None }
    }

    /// Notes how many descriptors are open before the first job.
    pub(super) fn begin(&mut self) {
        self.base = kernel::open_descriptors();
    }

    /// Descriptors that jobs may still open.
    pub(super) fn spare(&self) -> usize {
        self.limit.saturating_sub(RESERVED + kernel::open_descriptors())
    }

    /// How many jobs there are descriptors for, beside `followed` that have theirs.
    fn more(&self, followed: usize) -> usize {
        let open = kernel::open_descriptors();
        let of_each = open.saturating_sub(self.base).checked_div(followed).unwrap_or_default().max(OF_JOB);
        self.limit.saturating_sub(RESERVED + open) / of_each
    }
}

/// Whose a job is, as far as its cgroup tells.
type Owner = (Option<u32>, Option<String>);

impl Manager {
    /// Takes those out of the jobs that were found for which there is no room, and tells of them.
    pub(super) fn make_fit(&mut self, found: &mut BTreeMap<PathBuf, Found>) {
        let of_discovery = self.followed.values().filter(|followed| followed.found_at.is_some());
        let followed: Vec<&PathBuf> =
            of_discovery.filter_map(|followed| followed.found_at.as_ref()).collect();
        let more = self.capacity.more(self.followed.len().saturating_sub(1));
        let room = (followed.len() + more).min(discovery::JOBS);
        let fits = found.len() <= room;
        let gone = if fits {
            Vec::new()
        } else {
            let followed: BTreeSet<&PathBuf> = followed.into_iter().collect();
            let candidate = |(path, job): (&PathBuf, &Found)| Candidate {
                is_new: !followed.contains(path),
                job: path.clone(),
                owner: owner(job),
            };
            left_out(found.iter().map(candidate).collect(), room)
        };
        gone.iter().for_each(|path| drop(found.remove(path)));
        self.tell_left_out(gone.len() + self.discovery.passed_over(), room);
    }

    fn tell_left_out(&mut self, jobs: usize, room: usize) {
        self.counters.jobs_left_out.store(jobs as u64, Relaxed);
        self.counters.descriptors.store(kernel::open_descriptors() as u64, Relaxed);
        self.counters.descriptor_limit.store(self.capacity.limit as u64, Relaxed);
        let told_at = self.capacity.told_at;
        if jobs == 0 {
            if told_at.is_some() {
                self.capacity.told_at = None;
                log::info("all jobs are followed again");
            }
            return;
        }
        if told_at.is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        self.capacity.told_at = Some(Instant::now());
        let all = jobs + room;
        let cause = if room >= discovery::JOBS {
            format!("the table of jobs has {room} places; each user has the same share of them")
        } else {
            format!(
                "{} file descriptors are not enough; raise LimitNOFILE or follow fewer metrics",
                self.capacity.limit
            )
        };
        log::warning(&format!("cannot follow {jobs} of {all} jobs: {cause}"));
    }

    /// Whether one more job may be registered, as far as there is room.
    pub(super) fn has_room_for(&self, owner_uid: Option<u32>) -> bool {
        let registered = || self.followed.values().filter(|followed| followed.found_at.is_none());
        let of_user = |uid: u32| registered().filter(|followed| followed.owner_uid == Some(uid)).count();
        let discovered = self.followed.len() - registered().count();
        // The node is one of them.
        registered().count() <= REGISTERED.max(discovery::JOBS.saturating_sub(discovered))
            && owner_uid.filter(|uid| *uid != 0).is_none_or(|uid| of_user(uid) < REGISTERED_OF_USER)
            && self.capacity.spare() >= OF_JOB
    }
}

/// As its path says, else as its directory does: who may make cgroups owns them.
fn owner(found: &Found) -> Owner {
    let captured = &found.captured;
    if captured.uid.is_some() || captured.user.is_some() {
        return (captured.uid, captured.user.clone());
    }
    let directories = found.cgroups.directories();
    let of_directory = directories.first().and_then(|directory| fs::metadata(directory).ok());
    (of_directory.map(|metadata| metadata.uid()), None)
}
