//! Jobs whose cgroups carry a SLUID instead of a number, as Slurm creates them from 26.05 on, and the job ids
//! that these stand for. Pure.
//!
//! The prolog announces the SLUID with the job id before the cgroups exist. Without a prolog, the job's
//! processes have SLURM_JOB_ID in their environment. Users may change it in their own processes; therefore an
//! id from there is not accepted if a job with that id is tracked already. If no process has it after
//! `PATIENCE_NS`, the job is named by its SLUID.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::series::Identifier;

use crate::cgroups::JobCgroups;
use crate::targets::Now;

/// Longest time without a process that has the job's number: a step starts right after its cgroups.
const PATIENCE_NS: u64 = 2_000_000_000;

#[derive(Debug)]
struct UnnumberedJob {
    cgroups: JobCgroups,
    until_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SluidMeaning {
    Job(Identifier),
    Unknown,
    /// Not to be determined: the job is named by its SLUID. Returned once.
    GivenUp(Identifier),
}

#[derive(Debug, Default)]
pub(super) struct Sluids {
    known: BTreeMap<Identifier, Identifier>,
    unnumbered: BTreeMap<Identifier, UnnumberedJob>,
}

impl Sluids {
    /// Removes SLUIDs that are not among the names of existing jobs.
    pub(super) fn retain<'a>(&mut self, existing: impl Iterator<Item = &'a str>) {
        if self.known.is_empty() && self.unnumbered.is_empty() {
            return;
        }
        let existing: BTreeSet<&str> = existing.collect();
        self.known.retain(|sluid, _| existing.contains(sluid.as_str()));
        self.unnumbered.retain(|sluid, _| existing.contains(sluid.as_str()));
    }

    /// Stops the search for the number of a job that was announced by its SLUID meanwhile.
    pub(super) fn stop_search(&mut self, sluid: &str) {
        self.unnumbered.retain(|unnumbered, _| unnumbered.as_str() != sluid);
    }

    /// Keeps the job that the scheduler has announced for a SLUID, and stops the search for its number.
    pub(super) fn learn(&mut self, sluid: Identifier, job_id: Identifier) {
        self.unnumbered.remove(&sluid);
        self.known.insert(sluid, job_id);
    }

    pub(super) fn known(&self, sluid: &Identifier) -> Option<&Identifier> {
        self.known.get(sluid)
    }

    /// Meaning of a SLUID, given the `number` from its processes.
    pub(super) fn resolve(
        &mut self,
        sluid: &Identifier,
        cgroups: &JobCgroups,
        number: Option<Identifier>,
        now: Now,
    ) -> SluidMeaning {
        if let Some(job_id) = self.known.get(sluid) {
            return SluidMeaning::Job(job_id.clone());
        }
        let patience = now.monotonic_ns.saturating_add(PATIENCE_NS);
        let until_ns = self.unnumbered.get(sluid).map_or(patience, |unnumbered| unnumbered.until_ns);
        let meaning = match number {
            Some(job_id) => SluidMeaning::Job(job_id),
            None if now.monotonic_ns < until_ns => {
                let unnumbered = UnnumberedJob { cgroups: cgroups.clone(), until_ns };
                self.unnumbered.insert(sluid.clone(), unnumbered);
                return SluidMeaning::Unknown;
            }
            None => SluidMeaning::GivenUp(sluid.clone()),
        };
        self.unnumbered.remove(sluid);
        if let SluidMeaning::Job(job_id) | SluidMeaning::GivenUp(job_id) = &meaning {
            self.known.insert(sluid.clone(), job_id.clone());
        }
        meaning
    }

    /// Cgroups of the jobs whose numbers are unknown; true if the search is to be given up.
    pub(super) fn unnumbered(&self, now: Now) -> impl Iterator<Item = (&JobCgroups, bool)> {
        self.unnumbered.values().map(move |job| (&job.cgroups, now.monotonic_ns >= job.until_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Identifier {
        Identifier::try_from(text).unwrap()
    }

    #[test]
    fn the_search_for_a_number_is_limited() {
        let (mut sluids, sluid, cgroups) = (Sluids::default(), name("s5K1KKYAYG5D00"), JobCgroups::default());
        let at = |monotonic_ns| Now { monotonic_ns, realtime_us: 0 };
        assert_eq!(sluids.resolve(&sluid, &cgroups, None, at(1)), SluidMeaning::Unknown);
        assert_eq!(sluids.unnumbered(at(2)).map(|(_, is_over)| is_over).collect::<Vec<_>>(), [false]);
        assert_eq!(sluids.unnumbered(at(1 + PATIENCE_NS)).next().map(|(_, is_over)| is_over), Some(true));
        let given_up = sluids.resolve(&sluid, &cgroups, None, at(1 + PATIENCE_NS));
        assert_eq!(given_up, SluidMeaning::GivenUp(sluid.clone()));
        assert_eq!(sluids.resolve(&sluid, &cgroups, None, at(9)), SluidMeaning::Job(sluid.clone()));
        assert_eq!(sluids.unnumbered(at(9)).count(), 0);
        sluids.retain(std::iter::empty());
        let number = Some(name("42"));
        assert_eq!(sluids.resolve(&sluid, &cgroups, number, at(9)), SluidMeaning::Job(name("42")));
        assert_eq!(sluids.known(&sluid), Some(&name("42")));
    }

    #[test]
    fn the_search_for_the_number_of_an_announced_job_stops() {
        let (mut sluids, sluid, cgroups) = (Sluids::default(), name("s5K1KKYAYG5D00"), JobCgroups::default());
        let now = Now { monotonic_ns: 1, realtime_us: 0 };
        assert_eq!(sluids.resolve(&sluid, &cgroups, None, now), SluidMeaning::Unknown);
        sluids.stop_search("another");
        assert_eq!(sluids.unnumbered(now).count(), 1);
        sluids.stop_search(sluid.as_str());
        assert_eq!(sluids.unnumbered(now).count(), 0);
        assert_eq!(sluids.resolve(&sluid, &cgroups, None, now), SluidMeaning::Unknown);
        sluids.learn(sluid.clone(), name("42"));
        assert_eq!((sluids.unnumbered(now).count(), sluids.known(&sluid)), (0, Some(&name("42"))));
    }
}
