//! Sums over the targets of a server for each job, and the choice of the jobs that have series. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{COUNTS, Counts, Job};

pub(in crate::sources) const JOBS_MAX: usize = 256;

/// Bound of the jobs of one target whose counts are remembered: each takes some 100 bytes.
const ENTRIES_MAX: usize = 16_384;

/// A job of a file system, by the id as the clients send it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources) struct JobKey {
    pub(in crate::sources) file_system: String,
    pub(in crate::sources) id: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    counts: Counts,
    /// Last reading in which a target had the job.
    seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct JobSums {
    /// Counts of the last reading of each target that was ever read.
    targets: BTreeMap<String, BTreeMap<String, Counts>>,
    chosen: BTreeMap<JobKey, Sum>,
    readings: u64,
    jobs: usize,
}

/// True for an id of the form `procname.uid`, which clients send for processes that belong to no job.
fn is_process(id: &str) -> bool {
    id.rsplit_once('.')
        .is_some_and(|(_, uid)| !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// File system of a target: `scratch` of `scratch-OST0001`.
fn file_system(target: &str) -> &str {
    target.rsplit_once('-').map_or(target, |(file_system, _)| file_system)
}

impl JobSums {
    pub(super) fn chosen(&self) -> impl Iterator<Item = &JobKey> {
        self.chosen.keys()
    }

    pub(super) const fn jobs(&self) -> usize {
        self.jobs
    }

    /// Counts of a job; `None` if no target has it now: a server forgets a job that is idle for some minutes.
    pub(super) fn counts(&self, key: &JobKey) -> Option<Counts> {
        self.chosen.get(key).filter(|sum| sum.seen == self.readings).map(|sum| sum.counts)
    }

    /// Takes a reading of all targets. Returns true if a job was chosen anew.
    pub(super) fn update(&mut self, targets: BTreeMap<String, Vec<Job>>) -> bool {
        self.readings += 1;
        let mut increases: BTreeMap<JobKey, Counts> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for (target, jobs) in targets {
            let before = self.targets.remove(&target).unwrap_or_default();
            let mut now = BTreeMap::new();
            for Job { id, counts } in jobs.into_iter().take(ENTRIES_MAX) {
                let last = before.get(&id).copied().unwrap_or_default();
                let key = JobKey { file_system: file_system(&target).to_owned(), id: id.clone() };
                add(increases.entry(key).or_default(), since(last, counts));
                now.insert(id, counts);
            }
            found.insert(target, now);
        }
        // A target that could not be read continues where it was when it returns.
        self.targets.append(&mut found);
        self.jobs = increases.len();
        let new: Vec<JobKey> =
            increases.keys().filter(|key| !self.chosen.contains_key(key)).cloned().collect();
        // Jobs come before processes without a job.
        let (processes, jobs): (Vec<JobKey>, Vec<JobKey>) =
            new.into_iter().partition(|key| is_process(&key.id));
        let mut is_changed = false;
        for key in jobs.into_iter().chain(processes) {
            if self.chosen.len() >= JOBS_MAX && !self.make_room(&key, &increases) {
                break;
            }
            // What it has done before it is chosen counts, too.
            let all = self.targets.iter().filter(|(target, _)| file_system(target) == key.file_system);
            let mut counts = Counts::default();
            all.filter_map(|(_, jobs)| jobs.get(&key.id)).for_each(|of_target| add(&mut counts, *of_target));
            increases.remove(&key);
            self.chosen.insert(key, Sum { counts, seen: self.readings });
            is_changed = true;
        }
        for (key, increase) in increases {
            if let Some(sum) = self.chosen.get_mut(&key) {
                add(&mut sum.counts, increase);
                sum.seen = self.readings;
            }
        }
        is_changed
    }

    /// Takes the series from the job that no target has for the longest time, or, for a job, from a process.
    /// Returns false if there is none.
    fn make_room(&mut self, key: &JobKey, present: &BTreeMap<JobKey, Counts>) -> bool {
        let mut gone: BTreeSet<(bool, u64, &JobKey)> = BTreeSet::new();
        for (chosen, sum) in &self.chosen {
            let is_present = present.contains_key(chosen) || sum.seen == self.readings;
            if !is_present || (is_process(&chosen.id) && !is_process(&key.id)) {
                gone.insert((is_present, sum.seen, chosen));
            }
        }
        let first = gone.first().map(|(.., key)| (*key).clone());
        first.is_some_and(|key| self.chosen.remove(&key).is_some())
    }
}

fn add(sum: &mut Counts, more: Counts) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

/// Increase of counts, which begin anew when the server has forgotten the job, or its statistics were
/// cleared.
fn since(last: Counts, now: Counts) -> Counts {
    let is_anew = now.iter().zip(last).any(|(now, last)| *now < last);
    let last = if is_anew { Counts::default() } else { last };
    let mut increase = [0; COUNTS];
    for (increase, (now, last)) in increase.iter_mut().zip(now.iter().zip(last)) {
        *increase = now.saturating_sub(last);
    }
    increase
}

/// Any texts of one target, separated by zeros: sums do not decrease, and the jobs with series are bounded.
pub(in crate::sources) fn check(data: &[u8]) {
    let (mut sums, mut before) = (JobSums::default(), BTreeMap::new());
    for text in data.split(|byte| *byte == 0) {
        let mut parser = super::text::Parser::default();
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let mut jobs: Vec<Job> = lines.filter_map(|line| parser.line(line)).collect();
        jobs.extend(parser.finish());
        assert!(jobs.iter().all(|job| !job.id.is_empty()));
        sums.update([("scratch-OST0000".to_owned(), jobs)].into());
        assert!(sums.chosen().count() <= JOBS_MAX);
        let now: BTreeMap<JobKey, Counts> =
            sums.chosen().filter_map(|key| Some((key.clone(), sums.counts(key)?))).collect();
        for (key, counts) in &now {
            let earlier: &Counts = before.get(key).unwrap_or(&[0; COUNTS]);
            assert!(counts.iter().zip(earlier).all(|(now, earlier)| now >= earlier), "{key:?}");
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, bytes: u64) -> Job {
        Job { id: id.to_owned(), counts: [bytes, 1, 0, 0, 3] }
    }

    fn reading(targets: &[(&str, &[Job])]) -> BTreeMap<String, Vec<Job>> {
        targets.iter().map(|(target, jobs)| ((*target).to_owned(), jobs.to_vec())).collect()
    }

    fn bytes(sums: &JobSums, file_system: &str, id: &str) -> Option<u64> {
        let key = JobKey { file_system: file_system.to_owned(), id: id.to_owned() };
        sums.counts(&key).map(|counts| counts[0])
    }

    #[test]
    fn jobs_are_summed_over_the_targets_of_a_file_system() {
        let mut sums = JobSums::default();
        let is_changed = sums.update(reading(&[
            ("scratch-OST0000", &[job("7", 10), job("cp.0", 1)]),
            ("scratch-OST0001", &[job("7", 20)]),
            ("home-1-OST0000", &[job("7", 5)]),
        ]));
        assert!(is_changed);
        assert_eq!((bytes(&sums, "scratch", "7"), bytes(&sums, "home-1", "7")), (Some(30), Some(5)));
        assert_eq!((bytes(&sums, "scratch", "cp.0"), sums.jobs()), (Some(1), 3));
    }

    #[test]
    fn a_sum_does_not_decrease_when_a_server_forgets_the_job() {
        let mut sums = JobSums::default();
        let mut read = |first: &[Job], second: &[Job]| {
            let is_changed = sums.update(reading(&[("a-OST0", first), ("a-OST1", second)]));
            (bytes(&sums, "a", "7"), is_changed)
        };
        assert_eq!(read(&[job("7", 100)], &[job("7", 50)]), (Some(150), true));
        assert_eq!(read(&[job("7", 110)], &[]), (Some(160), false));
        // One target has forgotten it and begins anew, the other was cleared.
        assert_eq!(read(&[job("7", 4)], &[job("7", 60)]), (Some(224), false));
        assert_eq!(read(&[], &[]), (None, false));
        assert_eq!(read(&[job("7", 1)], &[]), (Some(225), false), "it is active again");
    }

    #[test]
    fn a_target_that_cannot_be_read_for_a_while_counts_once() {
        let mut sums = JobSums::default();
        sums.update(reading(&[("a-OST0", &[job("7", 100)]), ("a-OST1", &[job("7", 50)])]));
        sums.update(reading(&[("a-OST1", &[job("7", 55)])]));
        assert_eq!((bytes(&sums, "a", "7"), sums.jobs()), (Some(155), 1));
        sums.update(reading(&[("a-OST0", &[job("7", 101)]), ("a-OST1", &[job("7", 55)])]));
        assert_eq!(bytes(&sums, "a", "7"), Some(156));
        // It was mounted anew, and counts from 0.
        sums.update(reading(&[("a-OST1", &[job("7", 55)])]));
        sums.update(reading(&[("a-OST0", &[job("7", 9)]), ("a-OST1", &[job("7", 55)])]));
        assert_eq!(bytes(&sums, "a", "7"), Some(165));
    }

    #[test]
    fn a_job_takes_the_series_of_those_that_are_gone_and_of_processes() {
        let mut sums = JobSums::default();
        let ids = |sums: &JobSums| sums.chosen().map(|key| key.id.clone()).collect::<BTreeSet<_>>();
        let processes: Vec<Job> = (0..JOBS_MAX + 9).map(|number| job(&format!("p{number}.0"), 1)).collect();
        sums.update(reading(&[("a-OST0", &processes)]));
        assert_eq!((sums.chosen().count(), sums.jobs()), (JOBS_MAX, JOBS_MAX + 9));
        let with_job = [&processes[..], &[job("4711", 9), job("4712", 9)]].concat();
        assert!(sums.update(reading(&[("a-OST0", &with_job)])));
        assert!(ids(&sums).contains("4711") && ids(&sums).contains("4712"));
        assert_eq!(sums.chosen().count(), JOBS_MAX);
        assert!(!sums.update(reading(&[("a-OST0", &with_job)])), "processes do not take them back");
        let jobs: Vec<Job> = (0..JOBS_MAX).map(|number| job(&number.to_string(), 1)).collect();
        sums.update(reading(&[("a-OST0", &jobs)]));
        assert_eq!(ids(&sums), jobs.iter().map(|job| job.id.clone()).collect(), "those that are gone leave");
        assert!(!sums.update(reading(&[("a-OST0", &[&jobs[..], &[job("x", 1)]].concat())])), "no room");
    }

    #[test]
    fn ids_of_processes_end_with_a_user() {
        for (id, expected) in [
            ("cp.1000", true),
            ("python3.9.0", true),
            ("4711", false),
            ("a.b", false),
            ("x.", false),
            ("7:0:ma", false),
        ] {
            assert_eq!(is_process(id), expected, "{id}");
        }
    }
}
