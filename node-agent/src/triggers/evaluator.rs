//! Evaluates the rules of all jobs. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Job, Shape};
use polymeter_proto::ledger::Firing;
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::trigger::{JobEvent, Rule};
use polymeter_service::fair_budget::FairBudget;
use polymeter_service::turns::Turns;

use super::gpu_errors::{GpuError, GpuErrors};
use super::job_triggers::{Chosen, Due, JobTriggers, Voice};
use super::rule_state::{RuleState, Sample};
use crate::principal::{Principal, Sharer};

/// Rules that the owner of a job, and administrators, can add.
const RULES_OF_JOB: usize = 16;

/// Jobs with rules, those that have ended a while ago included.
const JOBS: usize = 4096;

/// Time after the end of a job for which its exit status can still fire a rule.
const AFTER_END_US: i64 = 300_000_000;

/// Jobs that began this soon after the agent may be older than it.
const START_US: i64 = 2_000_000;

/// Firings of all jobs by rules of users, and by those of the site: per second in the long run, and at once.
/// The owners of the jobs share them.
const FIRINGS: (f64, f64) = (10.0, 200.0);

/// Metrics of the node, which conditions of all its jobs may be about.
const NODE_METRICS: &str = "node.";

/// Firings that wait for the supervisor. The owners of the jobs share them, too.
const WAITING: usize = 512;

#[derive(Debug, Clone)]
pub(crate) struct Fired {
    pub(crate) job: Arc<Job>,
    pub(crate) rule: Arc<Rule>,
    /// Requester of the rule; none for one of the site.
    pub(crate) by: Option<Principal>,
    /// Microseconds since the epoch.
    pub(crate) at_us: i64,
    pub(crate) why: String,
    /// Firings of the rule that were held back since the one before.
    pub(crate) held_back: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    #[error(
        "the job has reached the limit of {RULES_OF_JOB} triggers; remove some with `polymeter trigger remove`"
    )]
    TooMany,
    #[error("`{0}` is a trigger of the site; choose another name")]
    OfSite(Identifier),
}

/// A rule of a job, for lists.
#[derive(Debug, Clone)]
pub struct Listed {
    pub rule: Arc<Rule>,
    pub by: Option<Principal>,
    /// Firings that the hold-off or a budget has prevented.
    pub held_back: u64,
}

#[derive(Debug)]
pub(crate) struct Evaluator {
    started_us: i64,
    site: Vec<Arc<Rule>>,
    jobs: BTreeMap<JobHandle, JobTriggers>,
    gpu_errors: GpuErrors,
    budget_of_site: FairBudget<Sharer>,
    /// Rules of users hold back none of the site.
    budget_of_users: FairBudget<Sharer>,
    fired: Turns<(bool, Sharer), Fired>,
    /// Owners of running jobs that were found later than the job.
    owners: BTreeMap<JobHandle, u32>,
    /// How often the rules of jobs changed.
    changes: u64,
    /// None after a change of the rules.
    about: Option<About>,
}

/// Whether any rule is about metrics of the node, or about errors of GPUs.
#[derive(Debug, Clone, Copy)]
struct About {
    node_metrics: bool,
    gpu_errors: bool,
}

impl Evaluator {
    pub(super) fn new(started_us: i64) -> Self {
        Self {
            started_us,
            site: Vec::new(),
            jobs: BTreeMap::new(),
            gpu_errors: GpuErrors::default(),
            budget_of_site: FairBudget::new(FIRINGS.0, FIRINGS.1),
            budget_of_users: FairBudget::new(FIRINGS.0, FIRINGS.1),
            fired: Turns::new(WAITING),
            owners: BTreeMap::new(),
            changes: 0,
            about: None,
        }
    }

    pub(super) fn has_rules(&self) -> bool {
        !self.site.is_empty() || !self.jobs.is_empty()
    }

    pub(super) fn has_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// Takes what has fired. The owners of the jobs take turns.
    pub(crate) fn take_fired(&mut self) -> Vec<Fired> {
        std::iter::from_fn(|| self.fired.take()).collect()
    }

    /// Puts the rules of the site in force. Those that stay the same keep their state.
    pub(crate) fn set_site(&mut self, rules: Vec<Rule>) {
        if self.site.iter().map(AsRef::as_ref).eq(&rules) {
            return;
        }
        self.site = rules.into_iter().map(Arc::new).collect();
        self.about = None;
        for job in self.jobs.values_mut() {
            let mut before = std::mem::take(&mut job.rules);
            for rule in &self.site {
                let known = before.iter().position(|one| one.by.is_none() && one.rule == *rule);
                let state = known.map(|place| before.swap_remove(place));
                job.rules.push(state.unwrap_or_else(|| RuleState::new(Arc::clone(rule), None)));
            }
            job.rules.extend(before.into_iter().filter(|state| state.by.is_some()));
            job.rules_changed();
        }
    }

    fn job(&mut self, job: &Arc<Job>) -> Option<&mut JobTriggers> {
        let has_room = self.jobs.len() < JOBS;
        let (site, started_us) = (&self.site, self.started_us);
        match self.jobs.entry(job.handle) {
            std::collections::btree_map::Entry::Occupied(known) => Some(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => has_room.then(|| {
                let rules = site.iter().map(|rule| RuleState::new(Arc::clone(rule), None)).collect();
                let is_older = job.descriptor.started_us <= started_us.saturating_add(START_US);
                place.insert(JobTriggers::new(Arc::clone(job), rules, is_older))
            }),
        }
    }

    /// Adds a rule to a job, or replaces the one of that name.
    pub(crate) fn add(&mut self, job: &Arc<Job>, rule: Rule, by: Principal) -> Result<(), AddError> {
        let triggers = self.job(job).ok_or(AddError::TooMany)?;
        let of_site = triggers.rules.iter().filter(|state| state.by.is_none());
        if of_site.clone().any(|state| state.rule.name == rule.name) {
            return Err(AddError::OfSite(rule.name));
        }
        let own = triggers.rules.len() - of_site.count();
        let known = triggers.rules.iter().position(|state| state.rule.name == rule.name);
        match known.and_then(|place| triggers.rules.get_mut(place)) {
            // The same request may come twice, and must not give the rule another budget.
            Some(state) if *state.rule == rule => state.by = Some(by),
            Some(state) => *state = RuleState::new(Arc::new(rule), Some(by)),
            None if own >= RULES_OF_JOB => return Err(AddError::TooMany),
            None => triggers.rules.push(RuleState::new(Arc::new(rule), Some(by))),
        }
        triggers.rules_changed();
        self.changes += 1;
        self.about = None;
        // Only the owner of a job, and administrators, add rules.
        if !by.administrator {
            self.owners.insert(job.handle, by.uid);
        }
        Ok(())
    }

    /// Removes a rule that was added to a job. False if there is none of that name.
    pub(crate) fn remove(&mut self, job: JobHandle, name: &Identifier) -> bool {
        let Some(triggers) = self.jobs.get_mut(&job) else { return false };
        let before = triggers.rules.len();
        triggers.rules.retain(|state| state.by.is_none() || state.rule.name != *name);
        triggers.rules_changed();
        let is_removed = triggers.rules.len() < before;
        self.changes += u64::from(is_removed);
        self.about = None;
        is_removed
    }

    /// How often the rules that were added to jobs changed.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Rules that were added to running jobs, and their requesters.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&Job, &Rule, Principal)> {
        let running = self.jobs.values().filter(|triggers| triggers.ended_us.is_none());
        running.flat_map(|triggers| {
            let added = triggers.rules.iter().filter_map(|state| Some((state.rule.as_ref(), state.by?)));
            added.map(|(rule, by)| (triggers.job.as_ref(), rule, by))
        })
    }

    /// Rules of a job, and its latest firings.
    pub(crate) fn list(&self, job: JobHandle) -> (Vec<Listed>, Vec<Firing>) {
        let Some(triggers) = self.jobs.get(&job) else {
            let of_site = |rule: &Arc<Rule>| Listed { rule: Arc::clone(rule), by: None, held_back: 0 };
            return (self.site.iter().map(of_site).collect(), Vec::new());
        };
        let listed = triggers.rules.iter().map(|state| Listed {
            rule: Arc::clone(&state.rule),
            by: state.by,
            held_back: state.held_back,
        });
        (listed.collect(), triggers.fired.iter().cloned().collect())
    }

    /// Returns true if a trigger of this number fired here.
    pub(crate) fn has_kept(&self, job: JobHandle, trigger: u64) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.fired.iter().any(|firing| firing.trigger == trigger))
    }

    /// Remembers a firing for lists.
    pub(crate) fn note(&mut self, firing: Firing) {
        if let Some(triggers) = self.jobs.get_mut(&firing.job) {
            triggers.note(firing);
        }
    }

    pub(super) fn samples(&mut self, batch: &Batch, voice: Voice) {
        let has_node_tests = self.about().node_metrics;
        let shapes = batch.shapes().iter();
        let chosen: Vec<Vec<(JobHandle, Chosen)>> =
            shapes.map(|shape| self.choose(shape, voice, has_node_tests)).collect();
        if chosen.iter().all(Vec::is_empty) {
            return;
        }
        for row in batch.recorded() {
            let (shape, columns) = (batch.shapes().get(row.shape), chosen.get(row.shape));
            let Some((shape, columns)) = shape.zip(columns) else { continue };
            for (job, column) in columns {
                let Some(bits) = row.value(column.column) else { continue };
                let Some(series) = shape.columns.get(column.column) else { continue };
                let sample = Sample {
                    series: series.series,
                    kind: series.metric.1.kind,
                    unit: series.metric.1.unit,
                    period_us: i64::try_from(shape.window.unwrap_or(shape.period).as_micros())
                        .unwrap_or(i64::MAX),
                    time_us: row.time_us,
                    value: series.metric.1.number.to_f64(bits),
                };
                let Some(triggers) = self.jobs.get_mut(job) else { continue };
                let due = triggers.sample(*column, sample);
                self.fire(*job, due);
            }
        }
    }

    /// Columns of a shape that rules are about: of its job, or those of the node for all running jobs.
    fn choose(&mut self, shape: &Shape, voice: Voice, has_node_tests: bool) -> Vec<(JobHandle, Chosen)> {
        let mut chosen = Vec::new();
        let mut add = |triggers: &mut JobTriggers| {
            let columns = triggers.choose(shape, voice);
            chosen.extend(columns.iter().map(|column| (triggers.job.handle, *column)));
        };
        match &shape.job {
            None if has_node_tests => {
                self.jobs.values_mut().filter(|triggers| triggers.ended_us.is_none()).for_each(add);
            }
            Some(job) if !self.site.is_empty() || self.jobs.contains_key(&job.handle) => {
                if let Some(triggers) = self.job(job) {
                    add(triggers);
                }
            }
            None | Some(_) => {}
        }
        chosen
    }

    /// Searches the rules once after each change: among thousands the search takes longer than the samples of
    /// a batch.
    fn about(&mut self) -> About {
        if let Some(about) = self.about {
            return about;
        }
        let tests = || self.rules().flat_map(|rule| rule.when.metric_tests());
        let about = About {
            node_metrics: tests().any(|test| test.metric.starts_with(NODE_METRICS)),
            gpu_errors: self.rules().any(|rule| rule.when.event() == Some(JobEvent::Xid)),
        };
        self.about = Some(about);
        about
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let of_jobs =
            self.jobs.values().flat_map(|triggers| &triggers.rules).filter(|state| state.by.is_some());
        self.site.iter().map(AsRef::as_ref).chain(of_jobs.map(|state| state.rule.as_ref()))
    }

    /// Fires the rules about errors of GPUs for the jobs that these concern. Costs nothing without such
    /// rules.
    pub(super) fn gpu_errors(&mut self, batch: &Batch) {
        if !self.about().gpu_errors {
            self.gpu_errors.forget_all();
            return;
        }
        for GpuError { job, at_us, why } in self.gpu_errors.take(batch) {
            self.event(job, JobEvent::Xid, at_us, &why);
        }
    }

    /// Takes an event of a job, by its handle.
    pub(crate) fn event(&mut self, job: JobHandle, event: JobEvent, at_us: i64, why: &str) {
        let Some(triggers) = self.jobs.get(&job) else { return };
        let due = triggers.event(event, at_us, why);
        self.fire(job, due);
    }

    /// Latest job of an id, also if it has ended.
    pub(crate) fn handle_of(&self, job_id: &Identifier) -> Option<JobHandle> {
        let of_id = self.jobs.values().filter(|triggers| triggers.job.descriptor.job_id == *job_id);
        of_id.map(|triggers| triggers.job.handle).max()
    }

    fn fire(&mut self, job: JobHandle, due: Vec<Due>) {
        for (number, at_us, why) in due {
            let Some(triggers) = self.jobs.get_mut(&job) else { return };
            let Some(state) = triggers.rules.get_mut(number) else { continue };
            let now_ns = u64::try_from(at_us).unwrap_or_default().saturating_mul(1000);
            let found_later = self.owners.get(&job).copied();
            let sharer = Sharer::of(job, found_later.or(triggers.job.descriptor.owner_uid));
            let budget =
                if state.by.is_some() { &mut self.budget_of_users } else { &mut self.budget_of_site };
            let turn = (state.by.is_some(), sharer);
            // What the budget of all jobs holds back costs a rule nothing.
            let fires =
                state.may_fire(at_us) && self.fired.has_place(&turn) && budget.try_take(sharer, now_ns);
            if !fires {
                state.hold_back();
                continue;
            }
            state.fired(at_us);
            let (rule, by, held_back) = (Arc::clone(&state.rule), state.by, state.take_held_back());
            let fired = Fired { job: Arc::clone(&triggers.job), rule, by, at_us, why, held_back };
            // It has a place.
            self.fired.offer(turn, fired).ok();
        }
    }

    pub(super) fn ended(&mut self, job: JobHandle, at_us: i64, now_us: i64) {
        self.gpu_errors.ended(job, at_us);
        match self.jobs.get_mut(&job) {
            Some(triggers) => {
                triggers.ended_us = Some(now_us);
                self.changes += 1;
            }
            None => drop(self.owners.remove(&job)),
        }
    }

    /// Takes the owner of a job.
    pub(super) fn learn_owner(&mut self, job: JobHandle, owner_uid: u32) {
        self.owners.insert(job, owner_uid);
    }

    pub(super) fn forget_ended(&mut self, now_us: i64) {
        self.gpu_errors.forget(now_us.saturating_sub(AFTER_END_US));
        let (owners, known) = (&mut self.owners, self.jobs.len());
        self.jobs.retain(|job, triggers| {
            let is_known =
                triggers.ended_us.is_none_or(|ended_us| now_us < ended_us.saturating_add(AFTER_END_US));
            if !is_known {
                owners.remove(job);
            }
            is_known
        });
        if self.jobs.len() < known {
            self.about = None;
        }
    }
}

#[cfg(test)]
mod tests;
