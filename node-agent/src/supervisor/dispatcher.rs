//! The dispatcher: passes events to the state machines, and applies their effects at the edge.

use std::collections::{BTreeMap, VecDeque};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, Event};
use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::Rule;
use tracing::{info, warn};

use super::edge::Edge;
use super::owner_lookups::{JobPurpose, LookedUp};
use crate::admission::{Admission, ChangedPlan, released};
use crate::config::Limits;
use crate::lanes::{Command, EventRecord};
use crate::lifecycle::{Lifecycle, LifecycleEffect, Walk, look_up_owners, reopen};
use crate::plan::Plan;
use crate::principal::Principal;
use crate::targets::{SourceChanges, TargetKey, Targets, describe};

#[derive(Debug)]
pub(crate) struct Dispatcher<E> {
    pub(crate) targets: Targets,
    pub(crate) admission: Admission,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) edge: E,
}

impl<E: Edge> Dispatcher<E> {
    pub(crate) async fn start(&mut self) {
        let mut effects = Vec::new();
        self.lifecycle.start(&mut self.targets, &mut effects);
        self.apply(effects).await;
    }

    pub(crate) async fn walked(&mut self, walk: Walk) {
        let mut effects = Vec::new();
        self.lifecycle.walked(&mut self.targets, walk, self.edge.now(), &mut effects);
        self.apply(effects).await;
    }

    pub(crate) async fn files_changed(&mut self, key: &TargetKey) {
        let mut effects = Vec::new();
        reopen(&mut self.targets, key, &mut effects);
        self.apply(effects).await;
    }

    pub(crate) async fn owners_wanted(&mut self) {
        let mut effects = Vec::new();
        look_up_owners(&mut self.targets, self.edge.now(), &mut effects);
        self.apply(effects).await;
    }

    pub(crate) async fn job_looked_up(&mut self, looked_up: LookedUp<JobPurpose>) {
        let effects = self.looked_up(looked_up);
        self.apply(effects).await;
    }

    fn looked_up(&mut self, LookedUp { purpose, uid, name }: LookedUp<JobPurpose>) -> Vec<LifecycleEffect> {
        let (targets, mut effects) = (&mut self.targets, Vec::new());
        match purpose {
            JobPurpose::Discover(found, number) => {
                self.lifecycle.identified(targets, found, number, uid, self.edge.now(), &mut effects);
            }
            JobPurpose::Complete(key, job) => {
                self.lifecycle.owner_looked_up(targets, &key, job, uid, name, &mut effects);
            }
        }
        effects
    }

    /// Applies effects in order. Those that result from one precede those that wait.
    pub(super) async fn apply(&mut self, effects: Vec<LifecycleEffect>) {
        let mut waiting = VecDeque::from(effects);
        while let Some(effect) = waiting.pop_front() {
            for next in self.apply_one(effect).await.into_iter().rev() {
                waiting.push_front(next);
            }
        }
        self.edge.keep_triggers(&self.targets);
        self.edge.count(&self.targets);
    }

    async fn apply_one(&mut self, effect: LifecycleEffect) -> Vec<LifecycleEffect> {
        match effect {
            LifecycleEffect::OpenSources(key) => {
                self.open_sources(&key, true).await;
                self.record_plan(&key, None).await;
            }
            LifecycleEffect::Rescan(key) => self.rescan(&key).await,
            LifecycleEffect::HandleExits => self.handle_exits().await,
            LifecycleEffect::Identify { found, needs_number, owner } => {
                let identified = self.edge.identify(found, needs_number, owner);
                return identified.map(|looked_up| self.looked_up(looked_up)).unwrap_or_default();
            }
            LifecycleEffect::LookUpOwner(key, hint) => {
                let Some(target) = self.targets.get(&key) else { return Vec::new() };
                let found = self.edge.look_up_owner(key, target, hint);
                return found.map(|looked_up| self.looked_up(looked_up)).unwrap_or_default();
            }
            LifecycleEffect::RequestLease(job_id, request) => {
                return self.request_lease(&job_id, request).await.1;
            }
            LifecycleEffect::AddTrigger(job_id, rule, owner) => {
                return self.add_submitted_trigger(&job_id, &rule, owner);
            }
            LifecycleEffect::ReadJob(job) => self.edge.command(Command::ReadJob(job)).await,
            LifecycleEffect::End(job_id, target, at_us) => {
                self.edge.unwatch_exits(&job_id);
                let Some(job) = target.job.clone() else { return Vec::new() };
                self.edge.command(Command::ReadJob(job.handle)).await;
                for command in target.sources.close() {
                    self.edge.command(command).await;
                }
                let event = Event::JobEnded { job: job.handle, at_us };
                self.record(EventRecord { job: Some(job), event }).await;
            }
            LifecycleEffect::Record(record) => self.record(record).await,
            LifecycleEffect::SendRecords => self.edge.command(Command::FlushForWatch).await,
            LifecycleEffect::ReportLeftOut(jobs, descriptors) => self.edge.count_left_out(jobs, descriptors),
            LifecycleEffect::LogInfo(message) => info!("{message}"),
            LifecycleEffect::LogWarning(message) => warn!("{message}"),
        }
        Vec::new()
    }

    /// Adds a trigger that the owner of a job requested at submission. Returns the effects of a refusal.
    fn add_submitted_trigger(
        &mut self,
        job_id: &Identifier,
        rule: &Rule,
        owner: Principal,
    ) -> Vec<LifecycleEffect> {
        let (now, mut effects) = (self.edge.now(), Vec::new());
        let Some(job) = self.targets.job(job_id).and_then(|target| target.job.clone()) else {
            return effects;
        };
        if let Err(error) = self.edge.add_trigger(&job, rule.clone(), owner) {
            let targets = &mut self.targets;
            Lifecycle::trigger_refused(targets, job_id, rule, &error.to_string(), now, &mut effects);
        }
        effects
    }

    /// Records an event in the data, behind the samples so far.
    pub(super) async fn record(&mut self, record: EventRecord) {
        self.edge.command(Command::RecordEvent(Box::new(record))).await;
    }

    /// Reads the jobs of which a part has ended, and rescans them.
    pub(crate) async fn handle_exits(&mut self) {
        loop {
            self.read_exits().await;
            let Some((key, is_unread)) = self.lifecycle.next_rescan() else { return };
            let job = self.targets.get(&key).filter(|_| is_unread).and_then(|target| target.handle());
            if let Some(job) = job {
                self.edge.command(Command::ReadJob(job)).await;
            }
            self.rescan(&key).await;
        }
    }

    /// Rescans the jobs that exceeded their rescan budget.
    pub(crate) async fn rescan_missed(&mut self) {
        let targets = self.targets.iter_mut();
        let missed = targets.filter_map(|(key, target)| target.rescans.take_missed().then(|| key.clone()));
        for key in missed.collect::<Vec<_>>() {
            self.rescan(&key).await;
        }
    }

    /// Watches the current processes and cgroups of a job, and samples its current cgroups, steps and tasks.
    async fn rescan(&mut self, key: &TargetKey) {
        let Some(target) = self.targets.get_mut(key) else { return };
        let is_missed = self.edge.watch_exits(key, target);
        target.owner_search.note_event();
        if let Some(job) = target.handle().filter(|_| is_missed) {
            self.edge.command(Command::ReadJob(job)).await;
        }
        if self.edge.scan_cgroups(key, target) {
            target.rescans.note_missed();
        }
        self.find_steps(key).await;
    }

    /// Makes the sampler read the jobs of which a part has ended, and leaves the rest for later. Opening one
    /// job's files takes about as long as a scheduler takes to remove another's cgroups; therefore this is
    /// called wherever files were opened.
    pub(super) async fn read_exits(&mut self) {
        let exits = self.edge.exits();
        if exits.is_empty() {
            return;
        }
        for job in self.lifecycle.exits_seen(&mut self.targets, exits, self.edge.now()) {
            self.edge.command(Command::ReadJob(job)).await;
        }
    }

    /// Puts another cluster's name, other limits and another standing plan in force.
    pub(crate) async fn reload(&mut self, cluster: Option<Identifier>, limits: Limits, standing: Plan) {
        let changed = self.admission.reload(&mut self.targets, limits, &standing);
        self.lifecycle.reload(cluster, standing);
        self.follow_plans(changed).await;
    }

    /// Compares the CPU time of sampling, in percent of a CPU, with the budgets, and slows leases or restores
    /// their speed.
    pub(crate) async fn govern(&mut self, used_percent: f64) {
        let read_times = self.edge.read_times();
        if let Some((changed, message)) = self.admission.govern(&mut self.targets, used_percent, &read_times)
        {
            info!("{message}");
            self.follow_plans([changed]).await;
        }
    }

    pub(crate) async fn expire(&mut self) {
        let expired = Admission::expire(&mut self.targets, self.edge.now());
        self.follow_plans(expired).await;
        let resumed = Admission::expire_releases(&mut self.targets, self.edge.now());
        self.follow_releases(resumed).await;
    }

    /// Closes or opens the hardware events of targets whose releases have changed; those of all targets if
    /// that is the node.
    pub(super) async fn follow_releases(&mut self, changed: impl IntoIterator<Item = ChangedPlan>) {
        for change in changed {
            let keys = match &change.key {
                None => self.targets.keys_where(|_| true),
                Some(_) => vec![change.key],
            };
            for key in &keys {
                if let Some(target) = self.targets.get_mut(key) {
                    target.findings.forget();
                }
            }
            self.follow_plans(keys.iter().map(released)).await;
        }
    }

    pub(super) fn spread_release(&mut self, key: &TargetKey) {
        let node = self.targets.get(&None);
        let of_node = node.and_then(|node| node.plan.releases.iter().max_by_key(|release| release.ends_ns));
        let of_node = of_node.copied();
        if let Some(target) = self.targets.get_mut(key) {
            target.node_release = of_node;
        }
    }

    /// Takes over the refresh intervals that the hardware of sources has stated since these were opened.
    pub(crate) async fn take_intervals(&mut self) {
        let keys = self.targets.keys_where(|target| target.sources.has_new_intervals());
        self.follow_plans(keys.into_iter().map(|key| ChangedPlan { key, has_steps: false, cause: None }))
            .await;
    }

    /// Makes the sources of targets and the data follow their plans.
    pub(crate) async fn follow_plans(&mut self, changed: impl IntoIterator<Item = ChangedPlan>) {
        for ChangedPlan { key, has_steps, cause } in changed {
            self.update_sources(&key, has_steps).await;
            self.record_plan(&key, cause).await;
        }
    }

    /// Opens, regroups and closes the sources of a target for its plan; with `has_steps` those of its steps
    /// and tasks, too.
    pub(super) async fn update_sources(&mut self, key: &TargetKey, has_steps: bool) {
        if has_steps {
            self.update_steps(key).await;
        }
        self.open_sources(key, false).await;
    }

    /// Updates the sources of a target to its plan. A job's new sources are read at once: the first reading
    /// waits for no deadline, even if the cgroups appear one after the other.
    async fn open_sources(&mut self, key: &TargetKey, is_anew: bool) {
        self.spread_release(key);
        let Some(target) = self.targets.get_mut(key) else { return };
        let changes = self.edge.open_sources(key, target, is_anew);
        warn_of_missing(key, &changes.missing);
        self.tell_sampler(changes).await;
    }

    /// Opens the files of a target anew if some have appeared or changed since the last rescan, or if wanted
    /// metrics are missing that another attempt may find.
    pub(super) async fn refresh_files(&mut self, key: &TargetKey, wanted: &[Definition]) {
        let Some(target) = self.targets.get_mut(key) else { return };
        if self.edge.has_other_files(target, wanted) {
            target.sources.cancel_reopen();
            target.findings.forget();
            self.open_sources(key, true).await;
            self.record_plan(key, None).await;
        }
    }

    pub(super) async fn tell_sampler(&mut self, changes: SourceChanges) {
        self.read_exits().await;
        for command in changes.commands {
            self.edge.command(command).await;
        }
        self.read_exits().await;
        if !changes.first_reading.is_empty() {
            self.edge.command(Command::ReadNow(changes.first_reading)).await;
        }
        self.edge.count(&self.targets);
    }

    pub(super) async fn record_plan(&mut self, key: &TargetKey, cause: Option<Cause>) {
        let Some(target) = self.targets.get_mut(key) else { return };
        let now = self.edge.now();
        let (changes, job) = (target.plan_changes(cause, now), target.job.clone());
        let of_leases = changes
            .iter()
            .filter(|change| matches!(change.cause, Cause::Lease | Cause::LeaseEnd | Cause::Governor));
        let count = u32::try_from(of_leases.count()).unwrap_or(u32::MAX);
        target.user_events.charge_plan_changes(count, now.monotonic_ns);
        for change in changes {
            self.record(EventRecord { job: job.clone(), event: Event::PlanChange(change) }).await;
        }
    }
}

/// Logs the metrics of a target that are no longer sampled, or in part only: each reason once.
pub(super) fn warn_of_missing(key: &TargetKey, missing: &[(String, String)]) {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (metric, reason) in missing {
        by_reason.entry(reason).or_default().push(metric);
    }
    for (reason, metrics) in by_reason {
        let metrics = metrics.join(", ");
        warn!("cannot sample {metrics} of {}: {reason}", describe(key));
    }
}
