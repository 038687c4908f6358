//! Jobs whose cgroups carry a SLUID instead of a number, as Slurm makes them from 26.05 on: which job that is.
//!
//! The prolog says it, before the cgroups are there. Where there is no prolog, the job's processes have SLURM_JOB_ID in their
//! environment; a user may change that of her own, so that it is believed for no job that is followed under its own name. Where no
//! process says it within a moment, the job is called by its SLUID.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use polymeter_proto::series::Identifier;
use tokio::time::Instant;

use super::Manager;
use crate::cgroups::JobCgroups;
use crate::clock;
use crate::lifecycle::discovery::Found;
use crate::log;
use crate::sources::process_sum::listed;

/// How long a job may be without a process that says its number: a step comes right after its cgroups.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often is looked for that process, in nanoseconds.
const AGAIN_NS: u64 = 20_000_000;

/// Processes of one job that are looked at: the first has it, if any.
const PROCESSES: usize = 16;

/// Bytes of an environment that are looked through.
const ENVIRONMENT_BYTES: u64 = 128 * 1024;

/// The variable with the job's number, and how many digits that may have.
const VARIABLE: &[u8] = b"SLURM_JOB_ID=";
const DIGITS: usize = 10;

/// A job whose number is not known yet.
#[derive(Debug)]
struct Unnamed {
    cgroups: JobCgroups,
    until: Instant,
}

/// The SLUIDs that are there.
#[derive(Debug, Default)]
pub(super) struct Sluids {
    known: BTreeMap<Identifier, Identifier>,
    unnamed: BTreeMap<Identifier, Unnamed>,
}

impl Sluids {
    /// Forgets those whose cgroups are gone.
    pub(super) fn retain<'a>(&mut self, found: impl Iterator<Item = &'a Found>) {
        if self.known.is_empty() && self.unnamed.is_empty() {
            return;
        }
        let there: BTreeSet<&str> = found.filter_map(|found| found.captured.job.as_deref()).collect();
        self.known.retain(|sluid, _| there.contains(sluid.as_str()));
        self.unnamed.retain(|sluid, _| there.contains(sluid.as_str()));
    }

    /// The job that a SLUID stands for; none as long as that may still come to be known.
    fn job(
        &mut self,
        sluid: &Identifier,
        cgroups: &JobCgroups,
        proc: &Path,
        is_taken: impl Fn(&Identifier) -> bool,
        now: Instant,
    ) -> Option<Identifier> {
        if let Some(job_id) = self.known.get(sluid) {
            return Some(job_id.clone());
        }
        let until = self.unnamed.get(sluid).map_or(now + PATIENCE, |unnamed| unnamed.until);
        let job_id = match number_in_environment(proc, cgroups).filter(|job_id| !is_taken(job_id)) {
            Some(job_id) => job_id,
            None if now < until => {
                self.unnamed.insert(sluid.clone(), Unnamed { cgroups: cgroups.clone(), until });
                return None;
            }
            None => {
                log::warning(&format!(
                    "cannot find the number of job {sluid}: no process of it has SLURM_JOB_ID; it is called by its SLUID; \
                     set up the prolog, or CgroupJobIdPaths=yes in cgroup.conf"
                ));
                sluid.clone()
            }
        };
        self.unnamed.remove(sluid);
        self.known.insert(sluid.clone(), job_id.clone());
        Some(job_id)
    }

    /// When to look again for numbers that are not known yet, in nanoseconds of the monotonic clock.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (!self.unnamed.is_empty()).then(|| clock::monotonic_ns() + AGAIN_NS)
    }

    /// Whether the number of some job has come to be known, or will not be.
    fn are_due(&self, proc: &Path) -> bool {
        let now = Instant::now();
        let is_due = |unnamed: &Unnamed| {
            now >= unnamed.until || number_in_environment(proc, &unnamed.cgroups).is_some()
        };
        self.unnamed.values().any(is_due)
    }
}

impl Manager {
    /// Looks for jobs anew when the number of one has come to be known.
    pub(super) async fn look_for_numbers(&mut self) {
        if self.sluids.are_due(&self.mounts.proc) {
            self.look_for_jobs().await;
        }
    }

    /// The id of a job that discovery has found; none while it is not known.
    pub(super) fn id_of(&mut self, found: &Found) -> Option<Identifier> {
        let name = Identifier::try_from(found.captured.job.as_deref()?).ok()?;
        let told = self.started.id_of(name.clone());
        if !found.captured.is_sluid || told != name {
            return Some(told);
        }
        let followed = &self.followed;
        let is_taken = |job_id: &Identifier| followed.contains_key(&Some(job_id.clone()));
        self.sluids.job(&name, &found.cgroups, &self.mounts.proc, is_taken, Instant::now())
    }
}

/// The job's number in the environment of one of its processes.
fn number_in_environment(proc: &Path, cgroups: &JobCgroups) -> Option<Identifier> {
    let processes = listed(cgroups.of_processes()?)?;
    processes.into_iter().take(PROCESSES).find_map(|pid| {
        let mut environment = Vec::new();
        let file = File::open(proc.join(pid.to_string()).join("environ")).ok()?;
        file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment).ok()?;
        number(&environment)
    })
}

fn number(environment: &[u8]) -> Option<Identifier> {
    let value = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(VARIABLE))?;
    let is_number = (1..=DIGITS).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| Identifier::try_from(text).ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn name(text: &str) -> Identifier {
        Identifier::try_from(text).unwrap()
    }

    #[test]
    fn a_number_is_a_number_and_nothing_else() {
        assert_eq!(number(b"PATH=/bin\0SLURM_JOB_ID=42\0X=1\0"), Some(name("42")));
        for other in [
            &b"PATH=/bin\0"[..],
            b"SLURM_JOB_ID=\0",
            b"SLURM_JOB_ID=4x\0",
            b"SLURM_JOB_ID=12345678901\0",
            b"NOT_SLURM_JOB_ID=7\0",
        ] {
            assert_eq!(number(other), None);
        }
    }

    #[test]
    fn a_job_waits_for_its_number_and_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("s5K1KKYAYG5D00"));
        let step = job.join("step_0/user/task_0");
        fs::create_dir_all(&step).unwrap();
        for cgroup in [&job, &job.join("step_0"), &job.join("step_0/user"), &step] {
            fs::write(cgroup.join("cgroup.procs"), "").unwrap();
        }
        let cgroups = JobCgroups { v2: Some(job), ..JobCgroups::default() };
        let (mut sluids, now, sluid) = (Sluids::default(), Instant::now(), name("s5K1KKYAYG5D00"));
        let nobody = |_: &Identifier| false;
        assert_eq!(sluids.job(&sluid, &cgroups, &proc, nobody, now), None);
        assert!(sluids.next_ns().is_some() && !sluids.are_due(&proc));
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(proc.join("7/environ"), "SLURM_JOB_ID=42\0").unwrap();
        fs::write(step.join("cgroup.procs"), "7\n").unwrap();
        assert!(sluids.are_due(&proc));
        let is_taken = |job_id: &Identifier| job_id.as_str() == "42";
        assert_eq!(sluids.job(&sluid, &cgroups, &proc, is_taken, now), None, "42 is another's");
        assert_eq!(sluids.job(&sluid, &cgroups, &proc, is_taken, now + PATIENCE), Some(sluid.clone()));
        assert_eq!(sluids.next_ns(), None);
        sluids.retain([].iter());
        assert_eq!(sluids.job(&sluid, &cgroups, &proc, nobody, now), Some(name("42")));
        assert_eq!(sluids.job(&sluid, &cgroups, Path::new("/nowhere"), nobody, now), Some(name("42")));
    }
}
