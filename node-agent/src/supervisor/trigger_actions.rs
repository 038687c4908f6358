//! Requests about triggers, and what is done when one fires.

use std::sync::Arc;

use polymeter_proto::ledger::{Event, Firing, JobFacts, Mark, MarkKind};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::text::{Text, abridged_list};
use polymeter_proto::trigger::{self, JOB_XID_METRIC, JobEvent, Rule, XID_METRIC};
use polymeter_proto::units;
use polymeter_service::time_text;
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::warn;

use super::dispatcher::Dispatcher;
use super::edge::{Edge, NodeEdge};
use crate::delivery::ring::{AHEAD_US, HeldSpan, NotKept, Wanted};
use crate::in_force::InForce;
use crate::lanes::{Command, EventRecord};
use crate::principal::Principal;
use crate::request::{
    AccessError, KeepSpec, KeptPart, LeaseError, LeaseGrant, LeaseRequest, TriggerError, TriggerSpec,
    TriggersView,
};
use crate::targets::{Access, TrackedTarget};
use crate::triggers::Fired;

/// Metrics that are named.
const NAMED: usize = 4;

/// Leases of a site's rules are those of an administrator.
const SITE: Principal = Principal { uid: 0, administrator: true };

impl Dispatcher<NodeEdge> {
    /// Adds a trigger to a job. Returns what prevents it from working.
    pub(super) fn add_trigger(&mut self, spec: TriggerSpec) -> Result<Vec<String>, TriggerError> {
        let TriggerSpec { principal, job_id, rule } = spec;
        let target = self.targets.access(principal, &Some(job_id), Access::Change)?;
        let job = target.job.clone().ok_or(AccessError::Unknown)?;
        let has_ring = target.plan.has_ring();
        let of_node = self.targets.get(&None).map(TrackedTarget::plan_in_force).unwrap_or_default();
        let notes = notes(target, &of_node, &rule, has_ring);
        self.edge.shared.triggers.change(|evaluator| evaluator.add(&job, rule, principal))?;
        self.edge.keep_triggers(&self.targets);
        Ok(notes)
    }

    pub(super) fn remove_trigger(
        &mut self,
        principal: Principal,
        job_id: Identifier,
        name: Identifier,
    ) -> Result<(), TriggerError> {
        let target = self.targets.access(principal, &Some(job_id), Access::Change)?;
        let job = target.handle().ok_or(AccessError::Unknown)?;
        let is_removed = self.edge.shared.triggers.change(|evaluator| evaluator.remove(job, &name));
        self.edge.keep_triggers(&self.targets);
        if is_removed { Ok(()) } else { Err(TriggerError::Unknown(name)) }
    }

    pub(super) fn triggers(
        &self,
        principal: Principal,
        job_id: Identifier,
    ) -> Result<TriggersView, AccessError> {
        let target = self.targets.access(principal, &Some(job_id), Access::Change)?;
        let job = target.handle().ok_or(AccessError::Unknown)?;
        let (triggers, fired) = self.edge.shared.triggers.change(|evaluator| evaluator.list(job));
        Ok(TriggersView { triggers, fired })
    }

    /// Keeps an interval of the ring of a job. The node on which a trigger fired keeps that interval already.
    pub(super) fn keep_interval(&self, spec: KeepSpec) -> Result<KeptPart, TriggerError> {
        let KeepSpec { principal, job_id, owner_uid, begin_us, end_us, trigger, reason } = spec;
        let shared = &self.edge.shared;
        let jobs = self.jobs_with_rings((principal, owner_uid), &job_id, (begin_us, end_us))?;
        let longest_us = shared.ring_requests.longest_us();
        if end_us.saturating_sub(begin_us) > longest_us {
            return Err(TriggerError::TooLong { longest_s: longest_us / 1_000_000 });
        }
        if end_us > self.edge.now().realtime_us.saturating_add(AHEAD_US) {
            return Err(TriggerError::Ahead);
        }
        let mut kept = Vec::new();
        for (job, is_filled) in jobs {
            let wanted = Wanted { job, begin_us, end_us, trigger, reason: reason.clone() };
            let is_kept = shared.triggers.change(|evaluator| evaluator.has_kept(job, trigger));
            kept.push(if is_kept { self.part_of(&wanted, is_filled) } else { self.want(wanted, is_filled) });
        }
        kept.into_iter().reduce(joined).unwrap_or(Err(TriggerError::NoRing))
    }

    /// Asks the sender to keep an interval. `is_filled` is true if the ring gets further samples.
    fn want(&self, wanted: Wanted, is_filled: bool) -> Result<KeptPart, TriggerError> {
        let shared = &self.edge.shared;
        let part = self.part_of(&wanted, is_filled)?;
        shared.ring_requests.keep(wanted).map_err(|not_kept| match not_kept {
            NotKept::NoRing => TriggerError::NoRing,
            NotKept::Busy => TriggerError::Busy,
        })?;
        shared.channels.full_event().notify();
        Ok(part)
    }

    /// What the ring has of an interval, or will have.
    fn part_of(&self, wanted: &Wanted, is_filled: bool) -> Result<KeptPart, TriggerError> {
        let &Wanted { job, begin_us, end_us, .. } = wanted;
        let Some(held) = self.edge.shared.ring_requests.held(job) else {
            return Err(if is_filled { TriggerError::NotYet } else { TriggerError::NoRing });
        };
        let part = held.part(begin_us, end_us);
        match (part, held.ends_us()) {
            (Some(part), _) => {
                let last_us = if is_filled { end_us } else { part.last_us };
                Ok(KeptPart { begin_us, end_us, part: Some(HeldSpan { last_us, ..part }) })
            }
            (None, None) if is_filled => Err(TriggerError::NotYet),
            (None, None) => Err(TriggerError::Empty),
            // They are still to come.
            (None, Some((_, last_us))) if is_filled && last_us < begin_us => {
                Ok(KeptPart { begin_us, end_us, part: None })
            }
            (None, Some((first_us, last_us))) => Err(TriggerError::Outside {
                from: time_text::to_the_second(first_us),
                until: time_text::to_the_second(last_us),
            }),
        }
    }

    /// Finds the jobs of an owner, whom the principal may command, whose rings have samples of an interval:
    /// the id may have returned, and the ring of an earlier job is still held. Each is true if its ring gets
    /// further samples. If there are none, the newest job.
    fn jobs_with_rings(
        &self,
        (principal, owner_uid): (Principal, Option<u32>),
        job_id: &Identifier,
        (begin_us, end_us): (i64, i64),
    ) -> Result<Vec<(JobHandle, bool)>, AccessError> {
        let requests = &self.edge.shared.ring_requests;
        let is_meant = |of: Option<u32>| owner_uid.is_none() || of.is_none() || of == owner_uid;
        let tracked = self.targets.access(principal, &Some(job_id.clone()), Access::Change);
        let tracked = match tracked {
            Ok(target) if !is_meant(target.owner_uid) => Err(AccessError::Unknown),
            tracked => tracked,
        };
        let running = self.targets.job(job_id).and_then(TrackedTarget::handle);
        let mut ended = requests.of_id(job_id);
        ended.retain(|(job, of)| Some(*job) != running && principal.can_access(*of) && is_meant(*of));
        // Another user may have had a job of this id: nothing about one is told in the data of the other.
        let owner_uid = tracked.as_ref().ok().map(|target| target.owner_uid);
        let owner_uid = owner_uid.or_else(|| ended.first().map(|(_, owner_uid)| *owner_uid));
        ended.retain(|(_, owner)| Some(*owner) == owner_uid);
        let tracked = tracked
            .and_then(|target| Ok((target.handle().ok_or(AccessError::Unknown)?, target.plan.has_ring())));
        let mut jobs: Vec<(JobHandle, bool)> = tracked.iter().copied().collect();
        jobs.extend(ended.into_iter().map(|(job, _)| (job, false)));
        let Some(newest) = jobs.first().copied() else { return tracked.map(|job| vec![job]) };
        jobs.retain(|(job, _)| requests.held(*job).is_some_and(|held| held.part(begin_us, end_us).is_some()));
        Ok(if jobs.is_empty() { vec![newest] } else { jobs })
    }

    /// Passes the end of a job, as the scheduler states it, to its triggers.
    pub(super) fn trigger_end(&self, job_id: &Identifier, facts: &JobFacts) {
        let tracked = self.targets.job(job_id).and_then(TrackedTarget::handle);
        let now_us = self.edge.now().realtime_us;
        self.edge.shared.triggers.change(|evaluator| {
            let Some(job) = tracked.or_else(|| evaluator.handle_of(job_id)) else { return };
            for (event, why) in events_of(facts) {
                evaluator.event(job, event, now_us, &why);
            }
        });
    }

    pub(super) async fn act_on_triggers(&mut self) {
        let fired = self.edge.shared.triggers.change(|evaluator| evaluator.take_fired());
        let any = !fired.is_empty();
        for fired in fired {
            self.act(fired).await;
        }
        if any {
            self.edge.command(Command::FlushForWatch).await;
        }
    }

    /// Does what a rule says, and records that it has fired.
    async fn act(&mut self, fired: Fired) {
        let Fired { job, rule, by, at_us, why, held_back } = fired;
        let job_id = job.descriptor.job_id.clone();
        let is_running = self.targets.job(&job_id).and_then(TrackedTarget::handle) == Some(job.handle);
        let trigger = trigger_number(job.handle, at_us);
        // Other nodes refuse a longer interval than rings hold.
        let longest_us = self.edge.shared.ring_requests.longest_us();
        let keeps_us = rule.keep_us.map(|keep_us| {
            let end_us = at_us.saturating_add(rule.after_us);
            (at_us.saturating_sub(keep_us).max(end_us.saturating_sub(longest_us)), end_us)
        });
        let mut actions = Vec::new();
        if let Some((begin_us, end_us)) = keeps_us {
            let is_filled =
                is_running && self.targets.job(&job_id).is_some_and(|target| target.plan.has_ring());
            let reason = Text::of(&format!("{}: {why}", rule.name));
            let wanted = Wanted { job: job.handle, begin_us, end_us, trigger, reason };
            actions.push(kept_text(&self.want(wanted, is_filled)));
        }
        if !rule.raise.is_empty() {
            actions.push(if is_running {
                let request = LeaseRequest {
                    principal: by.unwrap_or(SITE),
                    job_id: Some(job_id.clone()),
                    level: None,
                    is_ring: false,
                    metrics: raised(&rule),
                    since_us: None,
                    duration_us: Some(rule.raise_for_us),
                    demanded_by: None,
                };
                raised_text(&self.set(request).await)
            } else {
                "cannot raise periods: the job has ended".to_owned()
            });
        }
        let by = by.and_then(Principal::name);
        if rule.mark {
            let (name, by) = (rule.name.clone(), by.clone());
            let mark = Mark { at_us, job: Some(job.handle), name, kind: MarkKind::Instant, by };
            self.record(EventRecord { job: Some(Arc::clone(&job)), event: Event::Mark(mark) }).await;
            actions.push("marked".to_owned());
        }
        if held_back > 0 {
            actions.push(format!("{} held back before", units::counted(held_back, "firing")));
        }
        let actions = if actions.is_empty() { "noticed".to_owned() } else { actions.join("; ") };
        if rule.notice {
            warn!(job = %job_id, trigger = %rule.name, "trigger fired: {why}; {actions}");
        }
        let firing = Firing {
            job: job.handle,
            trigger,
            rule: rule.name.clone(),
            by,
            at_us,
            keeps_us,
            notice: rule.notice,
            why: Text::of(&why),
            actions: Text::of(&actions),
        };
        self.edge.shared.triggers.change(|evaluator| evaluator.note(firing.clone()));
        self.record(EventRecord { job: Some(job), event: Event::Fired(firing) }).await;
    }
}

/// What two jobs of one id keep.
fn joined(
    one: Result<KeptPart, TriggerError>,
    other: Result<KeptPart, TriggerError>,
) -> Result<KeptPart, TriggerError> {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let part = one.part.into_iter().chain(other.part).reduce(HeldSpan::joined);
            Ok(KeptPart { part, ..one })
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(error), Err(_)) => Err(error),
    }
}

/// What a firing says of the interval that it keeps on its node.
fn kept_text(kept: &Result<KeptPart, TriggerError>) -> String {
    match kept {
        Ok(KeptPart { begin_us, end_us, part }) => {
            let wanted_s = end_us.saturating_sub(*begin_us) / 1_000_000;
            let part_us = part.map(|part| part.last_us.saturating_sub(part.first_us));
            match part_us.map(|part_us| part_us / 1_000_000).filter(|part_s| *part_s < wanted_s) {
                Some(part_s) => format!("keeps {part_s} s of {wanted_s} s: the ring holds no more"),
                None => format!("keeps {wanted_s} s"),
            }
        }
        Err(TriggerError::NoRing) => "nothing kept: the job has no ring".to_owned(),
        Err(TriggerError::Busy) => "nothing kept: too many intervals wait".to_owned(),
        Err(TriggerError::NotYet) => "nothing kept: the ring has no samples yet".to_owned(),
        Err(TriggerError::Empty) => "nothing kept: the ring is empty".to_owned(),
        Err(TriggerError::Outside { from, until }) => {
            format!("nothing kept: the ring has samples from {from} to {until} UTC")
        }
        Err(error) => format!("nothing kept: {error}"),
    }
}

fn raised(rule: &Rule) -> Vec<(Selector, Sampling)> {
    rule.raise.iter().map(|(selector, period)| (selector.clone(), Sampling::raw(*period))).collect()
}

/// What prevents a rule from working.
fn notes(target: &TrackedTarget, of_node: &[(String, InForce)], rule: &Rule, has_ring: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let plan = target.plan_in_force();
    let has = |plan: &[(String, InForce)], metric: &str| plan.iter().any(|(name, _)| name == metric);
    for metric in rule.when.metrics() {
        if metric.starts_with("node.") {
            let is_of_job = metric == XID_METRIC && has(&plan, JOB_XID_METRIC);
            if !is_of_job && !has(of_node, metric) {
                notes.push(format!(
                    "{metric} is not sampled on this node, so that the trigger cannot fire; an administrator can write it to the baseline"
                ));
            }
            continue;
        }
        let is_sampled = has(&plan, metric) || target.plan.ring_sampling(metric).is_some();
        if !metric.starts_with("user.") && !is_sampled {
            notes.push(format!(
                "{metric} is not sampled for this job, so that the trigger cannot fire; `polymeter set '{metric}=1s'` samples it"
            ));
        }
    }
    if rule.keep_us.is_some() && !has_ring {
        notes.push(
            "the job has no ring, so that nothing can be kept; `polymeter set --ring 'cpu.*=10ms'` gives it one"
                .to_owned(),
        );
    }
    notes
}

fn events_of(facts: &JobFacts) -> Vec<(JobEvent, String)> {
    let mut events = Vec::new();
    let state = facts.state.as_ref().map_or("", Identifier::as_str);
    if state.starts_with("OUT_OF_ME") {
        events.push((JobEvent::Oom, trigger::OUT_OF_MEMORY.to_owned()));
    }
    if state.starts_with("TIMEOUT") {
        events.push((JobEvent::TimeLimit, trigger::AT_TIME_LIMIT.to_owned()));
    }
    if let Some(code) = facts.exit_code.filter(|code| *code != 0) {
        events.push((JobEvent::ExitStatus, trigger::exit_status(code)));
    }
    if let Some(signal) = facts.exit_signal.filter(|signal| *signal != 0) {
        events.push((JobEvent::Signal, trigger::signal(signal)));
    }
    events
}

fn raised_text(result: &Result<LeaseGrant, LeaseError>) -> String {
    match result {
        Ok(grant) => {
            let metrics: Vec<String> =
                grant.metrics.iter().map(|(metric, period)| format!("{metric}={period}")).collect();
            let cost = grant.cost.cpu_percent;
            format!("samples {} for {cost:.2} % of a CPU", abridged_list(&metrics, NAMED))
        }
        Err(error) => format!("cannot raise periods: {error}"),
    }
}

/// Number of a firing that no other has, and that a store can hold as a signed number.
fn trigger_number(job: JobHandle, at_us: i64) -> u64 {
    let mut bytes = [0; 8];
    if getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {
        return at_us.unsigned_abs().rotate_left(8) ^ u64::from(job.0);
    }
    u64::from_ne_bytes(bytes) >> 1
}
