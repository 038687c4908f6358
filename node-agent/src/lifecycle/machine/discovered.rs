//! The begin and the end of the jobs that discovery finds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::ledger::JobDetails;
use polymeter_proto::series::{Identifier, JobDescriptor};

use super::{Effects, Lifecycle, reopen};
use crate::lifecycle::effect::LifecycleEffect;
use crate::lifecycle::found_job::FoundJob;
use crate::lifecycle::{job_ids, submissions};
use crate::sources::Target;
use crate::targets::{Now, TargetKey, Targets};

impl Lifecycle {
    /// Ends the jobs that are not found any more, and continues with the others.
    pub(super) fn compare(
        &mut self,
        targets: &mut Targets,
        found: BTreeMap<PathBuf, FoundJob>,
        vanished: &[TargetKey],
        now: Now,
        out: &mut Effects,
    ) {
        self.sluids.retain(found.values().filter_map(|found| found.captured.job.as_deref()));
        let gone = targets
            .keys_where(|target| target.found_at.as_ref().is_some_and(|path| !found.contains_key(path)));
        for key in gone.iter().chain(vanished) {
            self.end(targets, key, now, out);
        }
        for found in found.into_values() {
            let job_id = job_ids::known(&self.announced, &self.sluids, &found);
            if let Some(sluid) = found.captured.job.as_deref().filter(|_| job_id.is_some()) {
                self.sluids.stop_search(sluid);
            }
            if let Some(job_id) = job_id.as_ref().filter(|job_id| targets.job(job_id).is_some()) {
                self.found_again(targets, job_id, found, now, out);
            } else if found.name().is_some() {
                job_id.iter().for_each(|job_id| self.announced.note_found(job_id));
                let metadata = job_id.as_ref().and_then(|job_id| self.announced.get(job_id));
                let metadata = metadata.map(|announced| &announced.metadata);
                let uid = found.captured.uid.or(metadata.and_then(|metadata| metadata.owner_uid));
                let owner = metadata.and_then(|metadata| metadata.owner.clone()).or(named_owner(&found));
                let owner = owner.filter(|_| uid.is_none());
                out.push(LifecycleEffect::Identify { found, needs_number: job_id.is_none(), owner });
            }
        }
    }

    /// Continues with a tracked job that was found again, perhaps with other cgroups.
    fn found_again(
        &mut self,
        targets: &mut Targets,
        job_id: &Identifier,
        found: FoundJob,
        now: Now,
        out: &mut Effects,
    ) {
        let key = Some(job_id.clone());
        let Some(target) = targets.get_mut(&key) else { return };
        if target.found_at.as_ref() != Some(&found.relative) {
            return;
        }
        let Target::Cgroups(cgroups) = &mut target.target else { return };
        if found.cgroups.replaces(cgroups) {
            // Its cgroups were removed and created again between two walks, as when a job is requeued.
            self.end(targets, &key, now, out);
            let (is_sluid, owner) = (found.captured.is_sluid, named_owner(&found));
            let needs_number = is_sluid && job_ids::known(&self.announced, &self.sluids, &found).is_none();
            out.push(LifecycleEffect::Identify { found, needs_number, owner });
        } else if *cgroups != found.cgroups {
            // The scheduler creates and removes the cgroups of the controllers one after the other. A removal
            // needs no reopening.
            let has_grown = found.cgroups.directories().len() > cgroups.directories().len();
            cgroups.go_on_with(found.cgroups);
            if has_grown {
                reopen(targets, &key, out);
                out.push(LifecycleEffect::Rescan(key));
                submissions::request_leases(&self.announced, targets, job_id, out);
                out.push(LifecycleEffect::HandleExits);
            }
        }
    }

    /// Tracks a job that was found and identified: by its number in the environment of its processes, and by
    /// its owner's numeric id from the name service, if these were needed and found.
    pub(crate) fn identified(
        &mut self,
        targets: &mut Targets,
        found: FoundJob,
        number: Option<Identifier>,
        owner_uid: Option<u32>,
        now: Now,
        out: &mut Effects,
    ) {
        let job_id = job_ids::resolve(&self.announced, &mut self.sluids, targets, &found, number, now, out);
        let Some(job_id) = job_id else { return };
        if targets.job(&job_id).is_some() {
            // The job was already found at another path.
            self.found_again(targets, &job_id, found, now, out);
            return;
        }
        if found.captured.is_sluid {
            // The job was tracked by its SLUID; now its id is known.
            for key in targets.keys_where(|target| target.found_at.as_ref() == Some(&found.relative)) {
                self.end(targets, &key, now, out);
            }
        }
        let metadata = self.announced.cgroups_came(&job_id);
        let metadata = metadata.as_ref();
        // The path of the cgroup is from the scheduler, too, and the kernel acts on it; therefore it takes
        // precedence.
        let known_uid = found.captured.uid.or(metadata.and_then(|metadata| metadata.owner_uid));
        let descriptor = JobDescriptor {
            job_id: job_id.clone(),
            cluster: metadata.and_then(|metadata| metadata.cluster.clone()).or(self.cluster.clone()),
            owner_uid: known_uid.or(owner_uid),
            owner: metadata.and_then(|metadata| metadata.owner.clone()).or(named_owner(&found)),
            started_us: metadata.map_or(now.realtime_us, |metadata| metadata.since_us),
        };
        let is_named = metadata.is_some_and(|metadata| metadata.details.scheduler.is_some());
        let scheduler = found.scheduler().filter(|_| !is_named);
        let target = Target::Cgroups(found.cgroups);
        self.track(targets, descriptor, target, self.standing.clone(), Some(found.relative), out);
        if let Some(job) = targets.job(&job_id).and_then(|target| target.job.clone()) {
            submissions::record_details(job, JobDetails { scheduler, ..JobDetails::default() }, out);
        }
        submissions::record_facts(&mut self.announced, targets, &job_id, now, out);
        submissions::request_leases(&self.announced, targets, &job_id, out);
        submissions::add_triggers(&mut self.announced, targets, &job_id, out);
        out.push(LifecycleEffect::HandleExits);
    }
}

fn named_owner(found: &FoundJob) -> Option<Identifier> {
    found.captured.user.as_deref().and_then(|user| Identifier::escaped(user.as_bytes()))
}
