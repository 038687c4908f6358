//! Jobs whose cgroups carry a SLUID instead of a number, as Slurm makes them from 26.05 on: which job that is. Pure.
//!
//! The prolog says it, before the cgroups are there. Where there is no prolog, the job's processes have SLURM_JOB_ID in their
//! environment; a user may change that of her own, so that it is believed for no job that is tracked under its own name. Where no
//! process says it within a moment, the job is called by its SLUID.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::series::Identifier;

use crate::cgroups::JobCgroups;
use crate::targets::Now;

/// How long a job may be without a process that says its number, in nanoseconds: a step comes right after its cgroups.
const PATIENCE_NS: u64 = 2_000_000_000;

/// A job whose number is not known yet.
#[derive(Debug)]
struct UnnumberedJob {
    cgroups: JobCgroups,
    until_ns: u64,
}

/// The answer to which job a SLUID stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SluidMeaning {
    /// This job.
    Job(Identifier),
    /// It may still come to be known.
    Unknown,
    /// It will not be known: the job is called by its SLUID. Said once.
    GivenUp(Identifier),
}

/// The SLUIDs that exist.
#[derive(Debug, Default)]
pub(super) struct Sluids {
    known: BTreeMap<Identifier, Identifier>,
    unnumbered: BTreeMap<Identifier, UnnumberedJob>,
}

impl Sluids {
    /// Forgets those that are not among the names of existing jobs.
    pub(super) fn retain<'a>(&mut self, existing: impl Iterator<Item = &'a str>) {
        if self.known.is_empty() && self.unnumbered.is_empty() {
            return;
        }
        let existing: BTreeSet<&str> = existing.collect();
        self.known.retain(|sluid, _| existing.contains(sluid.as_str()));
        self.unnumbered.retain(|sluid, _| existing.contains(sluid.as_str()));
    }

    /// The job that a SLUID is known to stand for.
    pub(super) fn known(&self, sluid: &Identifier) -> Option<&Identifier> {
        self.known.get(sluid)
    }

    /// The job that a SLUID stands for, where its processes say `number`.
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

    /// The cgroups of the jobs whose numbers are not known yet, and whether it is time to give up.
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
    fn a_job_waits_for_its_number_and_not_for_ever() {
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
}
