//! The steps and tasks of a job: sources of their own for each, while its cgroups are there.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, Labels};

use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::cgroups::{SeenSteps, Step, StepAdmission, steps};
use crate::log;
use crate::sources::{Opened, SourceFactory, Target};

impl Manager {
    /// Follows the parts that all jobs have now, where the plan wants that.
    pub(super) async fn follow_all_parts(&mut self) {
        let with_parts = self.followed.iter().filter(|(_, followed)| followed.may_have_parts());
        let keys: Vec<TargetKey> = with_parts.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.follow_parts(&key).await;
        }
    }

    /// Follows the parts that a job has now: opens the files of those that are new, or have got another controller's
    /// directory since, and closes those of parts that are gone.
    pub(super) async fn follow_parts(&mut self, key: &TargetKey) {
        if !self.followed.get(key).is_some_and(TrackedTarget::may_have_parts) {
            return;
        }
        let Some(mut followed) = self.followed.remove(key) else { return };
        let now = match &followed.target {
            Target::Cgroups(cgroups) if followed.plan.wants_steps() => steps::find(cgroups),
            Target::Cgroups(_) | Target::Processes(_) | Target::Node(_) => BTreeMap::new(),
        };
        followed.parts.retain(|name, part| now.get(name) == Some(&**part));
        let (kept, stale): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut followed.sources).into_iter().partition(|(_, source)| {
                source.part.as_ref().is_none_or(|part| followed.parts.contains_key(&part.name))
            });
        followed.sources = kept;
        let mut opened = Vec::new();
        for (name, part) in now {
            // Without descriptors left it waits for the next look.
            let has_room = || self.capacity.spare() > 0;
            if !followed.parts.contains_key(&name) && has_room() && followed.takes_in(&name) {
                let part = Arc::new(part);
                opened.extend(self.open_part(&followed, &part));
                self.read_ended().await;
                followed.parts.insert(name, part);
            }
        }
        if !opened.is_empty() || !stale.is_empty() {
            self.replace(key, &mut followed, opened, stale, false).await;
        }
        self.followed.insert(key.clone(), followed);
        self.count();
    }

    /// Opens the files of a part that the plan wants. What a part does not have is no news: its job says what is missing.
    fn open_part(&self, followed: &TrackedTarget, part: &Arc<Step>) -> Vec<Opened> {
        if Identifier::try_from(part.name.as_str()).is_err() || Labels::new(part.labels.clone()).is_err() {
            return Vec::new();
        }
        let opener = SourceFactory {
            perf_descriptors: 0,
            first_perf_group: 0,
            step: Some(part),
            ..self.source_factory(followed)
        };
        let target = Target::Cgroups(part.cgroups.clone());
        opener.open(&target, &followed.plan.step_definitions(part.kind)).0
    }
}

impl TrackedTarget {
    /// Whether its parts have to be looked at: some are wanted, or some are open.
    fn may_have_parts(&self) -> bool {
        self.plan.wants_steps() || self.sources.values().any(|source| source.part.is_some())
    }

    /// Whether a part may be followed: a job has a bounded number of them.
    fn takes_in(&mut self, part: &str) -> bool {
        let admission = self.seen_steps.admit(part);
        if admission == StepAdmission::Last {
            let job = self.job.as_ref().map_or("", |job| job.descriptor.job_id.as_str());
            let places = SeenSteps::LIMIT;
            log::warning(&format!("job {job} has had {places} steps and tasks; of more there are no series"));
        }
        admission != StepAdmission::Refused
    }
}
