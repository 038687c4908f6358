//! Jobs of ended threads: a record names the thread, its process and its parent, but no cgroup. Pure.
//!
//! When a record is read, the process may still be there, waiting for its parent, and show its cgroup of
//! version 2. Cgroups of version 1 have left it already. Then the parent's cgroup counts, or the list of
//! processes of each job that is read from time to time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::record::{PEAK, QUANTITIES, Record};
use crate::cgroups::{JobCgroups, Mounts};

/// Use of the ended threads of one job. The sampler reads it without a lock.
#[derive(Debug, Default)]
pub(in crate::sources) struct Sums {
    pub(in crate::sources) threads: AtomicU64,
    pub(in crate::sources) processes: AtomicU64,
    pub(in crate::sources) values: [AtomicU64; QUANTITIES.len()],
}

impl Sums {
    fn add(&self, record: &Record) {
        self.threads.fetch_add(1, Relaxed);
        self.processes.fetch_add(u64::from(record.is_last == Some(true)), Relaxed);
        for ((sum, value), quantity) in self.values.iter().zip(record.values).zip(QUANTITIES) {
            let value = value.unwrap_or(0);
            if quantity.field == PEAK {
                sum.fetch_max(value, Relaxed);
            } else {
                sum.fetch_add(value, Relaxed);
            }
        }
    }
}

/// A job whose ended threads are counted.
#[derive(Debug)]
pub(in crate::sources) struct Job {
    /// Paths of its cgroups below the roots of their hierarchies, with the controller, which is empty for
    /// version 2.
    places: Vec<(String, PathBuf)>,
    /// Cgroup that lists its processes.
    pub(super) top: Option<PathBuf>,
    /// Its processes when they were listed last.
    pub(in crate::sources) processes: BTreeSet<u32>,
    pub(in crate::sources) sums: Arc<Sums>,
}

impl Job {
    pub(in crate::sources) fn new(cgroups: &JobCgroups, mounts: &Mounts) -> Self {
        let below = |directory: &Path, root: &Path| directory.strip_prefix(root).ok().map(Path::to_owned);
        let of_v2 = cgroups.v2.as_deref().zip(mounts.v2.as_deref());
        let of_v2 = of_v2.and_then(|(directory, root)| Some((String::new(), below(directory, root)?)));
        let of_v1 = cgroups.v1.iter().filter_map(|(controller, directory)| {
            Some((controller.clone(), below(directory, mounts.v1.get(controller)?)?))
        });
        let places = of_v2.into_iter().chain(of_v1);
        // The root of a hierarchy has the processes of other jobs.
        Self {
            places: places.filter(|(_, place)| place.components().next().is_some()).collect(),
            top: cgroups.of_processes().map(Path::to_owned),
            processes: BTreeSet::new(),
            sums: Arc::default(),
        }
    }

    /// True if the text of `/proc/PID/cgroup` names one of its cgroups, or one below it.
    fn contains(&self, cgroup: &str) -> bool {
        let lines = cgroup.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        });
        let mut entries =
            lines.flat_map(|(controllers, path)| controllers.split(',').map(move |one| (one, path)));
        entries.any(|(controller, path)| {
            let path = Path::new(path.trim_start_matches('/'));
            self.places.iter().any(|(of, place)| of == controller && path.starts_with(place))
        })
    }
}

/// Jobs whose ended threads are counted, by a number.
#[derive(Debug, Default)]
pub(in crate::sources) struct Jobs {
    pub(in crate::sources) by_number: BTreeMap<u64, Job>,
    next: u64,
}

impl Jobs {
    /// Returns the number of the job.
    pub(in crate::sources) fn add(&mut self, job: Job) -> u64 {
        self.next += 1;
        self.by_number.insert(self.next, job);
        self.next
    }

    /// Adds the record of an ended thread to its job, which has two entries if its delays are counted, too.
    /// `cgroup_of` reads `/proc/PID/cgroup`.
    pub(super) fn count(&self, record: &Record, cgroup_of: impl Fn(u32) -> Option<String>) {
        for pid in [record.pid.unwrap_or(record.tid), record.parent] {
            if self.add_where(record, |job| job.processes.contains(&pid)) {
                return;
            }
            if let Some(cgroup) = cgroup_of(pid)
                && self.add_where(record, |job| job.contains(&cgroup))
            {
                return;
            }
        }
    }

    fn add_where(&self, record: &Record, is_of: impl Fn(&Job) -> bool) -> bool {
        let mut is_any = false;
        for job in self.by_number.values().filter(|job| is_of(job)) {
            job.sums.add(record);
            is_any = true;
        }
        is_any
    }
}

/// Any messages of the kernel: each ended thread is counted for one job at most. The cgroup of every process
/// has the text behind the last zero.
pub(in crate::sources) fn check(data: &[u8]) {
    let cgroup = data.rsplit(|byte| *byte == 0).next().unwrap_or_default();
    let cgroup = String::from_utf8_lossy(cgroup).into_owned();
    let sums = Arc::<Sums>::default();
    let place = |controller: &str| (controller.to_owned(), PathBuf::from("slurm/job_1"));
    let job = Job {
        places: vec![place(""), place("memory")],
        top: None,
        processes: BTreeSet::new(),
        sums: Arc::clone(&sums),
    };
    let is_its = job.contains(&cgroup);
    assert!(!is_its || cgroup.contains("slurm/job_1"));
    let mut jobs = Jobs::default();
    jobs.add(job);
    let mut ended = 0;
    for answer in super::netlink::answers(data) {
        if let super::netlink::Answer::Ended(record) = answer {
            jobs.count(&record, |_| Some(cgroup.clone()));
            ended += u64::from(is_its);
        }
    }
    assert_eq!(sums.threads.load(Relaxed), ended);
    assert!(sums.processes.load(Relaxed) <= ended);
}
