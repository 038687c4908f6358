//! The state machine of admission.
//!
//! A lease is granted in steps, because only the sources know what can be sampled and what a read costs: trial reads of
//! metrics that are not sampled yet, the check of the budgets, the opening of the sources. One request is served at a
//! time; others wait.

use std::collections::VecDeque;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::Cause;

use super::availability::metrics_of;
use super::event::{AdmissionEffect, AdmissionEvent, LeaseOrigin, OpenReason, ReadTimes};
use super::governor::{Budgets, Load, Step};
use super::leases::{self, Granting};
use super::pricing::{Pricing, budget};
use crate::config::Limits;
use crate::plan::Plan;
use crate::principal::Principal;
use crate::request::{AccessError, LeaseError, LeaseRequest, MetricsReply};
use crate::targets::{Access, Now, TargetKey, Targets, describe};

/// A request that is being served or waits.
#[derive(Debug)]
enum Served {
    Lease(LeaseRequest, LeaseOrigin),
    Metrics(Principal, TargetKey, MetricsReply),
}

/// The state of the request that is being served.
#[derive(Debug)]
enum Stage {
    Probing(Served),
    Opening(Granting, LeaseOrigin),
    Revoking(LeaseOrigin, LeaseError),
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Admission {
    pricing: Pricing,
    stage: Option<(TargetKey, Stage)>,
    waiting: VecDeque<(Served, ReadTimes)>,
}

impl Admission {
    /// Creates a machine without leases.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { pricing: Pricing::new(limits), stage: None, waiting: VecDeque::new() }
    }

    /// Returns the predicted cost of sampling a target by a plan.
    #[cfg(test)]
    pub(crate) fn predicted(
        &self,
        target: &crate::targets::TrackedTarget,
        plan: &Plan,
    ) -> crate::request::Cost {
        self.pricing.cost(target, plan)
    }

    /// Returns the time at which the next lease ends, on the monotonic clock.
    pub(crate) fn next_expiry_ns(targets: &Targets) -> Option<u64> {
        targets.iter().flat_map(|(_, target)| &target.plan.leases).map(|lease| lease.ends_ns).min()
    }

    /// Handles an event, and appends the resulting effects to `out`, in order.
    pub(crate) fn handle(
        &mut self,
        targets: &mut Targets,
        event: AdmissionEvent,
        now: Now,
        out: &mut Vec<AdmissionEffect>,
    ) {
        match event {
            AdmissionEvent::LeaseRequested(request, origin, read_times) => {
                self.waiting.push_back((Served::Lease(request, origin), read_times));
                self.serve_next(targets, now, out);
            }
            AdmissionEvent::MetricsRequested(principal, key, reply, read_times) => {
                self.waiting.push_back((Served::Metrics(principal, key, reply), read_times));
                self.serve_next(targets, now, out);
            }
            AdmissionEvent::LeasesReset(principal, key, level, reply) => {
                let answer = leases::reset(targets, principal, &key, level, out);
                out.push(AdmissionEffect::AnswerReset(reply, answer));
            }
            AdmissionEvent::LeasesExpired => leases::expire(targets, now, out),
            AdmissionEvent::Probed(key, found, step_counts) => {
                if let Some(target) = targets.get_mut(&key) {
                    step_counts.into_iter().for_each(|counts| target.findings.set_step_counts(counts));
                    target.findings.add(found, now.monotonic_ns);
                }
                self.probed(targets, &key, now, out);
            }
            AdmissionEvent::SourcesOpened(key, reason) => self.opened(targets, &key, reason, now, out),
            AdmissionEvent::StepsUpdated(key) => record_changes(targets, &key, None, now, out),
            AdmissionEvent::IntervalsStated(key) => {
                out.push(AdmissionEffect::OpenSources(key, OpenReason::Plan(None)));
            }
            AdmissionEvent::CpuMeasured(used_percent, read_times) => {
                let former = std::mem::replace(&mut self.pricing.read_times, read_times);
                self.govern(targets, used_percent, out);
                self.pricing.read_times = former;
            }
            AdmissionEvent::Calibrated(times) => self.pricing.calibration.add(times),
            AdmissionEvent::ConfigReloaded(limits, standing) => {
                self.pricing.limits = limits;
                reload(targets, &standing, out);
            }
        }
    }

    /// Serves the next request that waits, unless one is being served.
    fn serve_next(&mut self, targets: &mut Targets, now: Now, out: &mut Vec<AdmissionEffect>) {
        while self.stage.is_none() {
            let Some((served, read_times)) = self.waiting.pop_front() else {
                // Only a request needs the read times, and they are large.
                self.pricing.read_times = ReadTimes::new();
                return;
            };
            self.pricing.read_times = read_times;
            let (key, wanted, counts_steps) = match served {
                Served::Lease(request, origin) => {
                    match leases::check(&self.pricing.limits, targets, &request, now) {
                        Ok(wanted) => {
                            let (key, is_of_steps) = (request.job_id.clone(), request.level.is_some());
                            self.stage = Some((key.clone(), Stage::Probing(Served::Lease(request, origin))));
                            (key, wanted, is_of_steps)
                        }
                        Err(error) => {
                            out.push(AdmissionEffect::AnswerLease(origin, Err(error)));
                            continue;
                        }
                    }
                }
                Served::Metrics(principal, key, reply) => {
                    let chosen = targets.access(principal, &key, Access::See).map(|target| {
                        "*".parse().map_or_else(|_invalid| Vec::new(), |all| target.choose(None, &all))
                    });
                    match chosen {
                        Ok(wanted) => {
                            let served = Served::Metrics(principal, key.clone(), reply);
                            self.stage = Some((key.clone(), Stage::Probing(served)));
                            (key, wanted, false)
                        }
                        Err(error) => {
                            out.push(AdmissionEffect::AnswerMetrics(reply, Err(error)));
                            continue;
                        }
                    }
                }
            };
            match unprobed(targets, &key, wanted, now) {
                unknown if unknown.is_empty() && !counts_steps => self.probed(targets, &key, now, out),
                unknown => out.push(AdmissionEffect::Probe(key, unknown, counts_steps)),
            }
        }
    }

    /// Continues with the request for which a target was probed.
    fn probed(&mut self, targets: &mut Targets, key: &TargetKey, now: Now, out: &mut Vec<AdmissionEffect>) {
        match self.stage.take() {
            Some((of, Stage::Probing(served))) if of == *key => match served {
                Served::Lease(request, origin) => self.grant(targets, request, origin, now, out),
                Served::Metrics(principal, key, reply) => {
                    let metrics = targets.access(principal, &key, Access::See);
                    let answer = metrics.map(|target| metrics_of(target, &self.pricing.read_times));
                    out.push(AdmissionEffect::AnswerMetrics(reply, answer));
                }
            },
            other => self.stage = other,
        }
        self.serve_next(targets, now, out);
    }

    /// Grants a lease whose metrics were probed, if the budgets allow it.
    fn grant(
        &mut self,
        targets: &mut Targets,
        request: LeaseRequest,
        origin: LeaseOrigin,
        now: Now,
        out: &mut Vec<AdmissionEffect>,
    ) {
        match leases::admit(&self.pricing, targets, request, now) {
            Ok(granting) => {
                let key = granting.key().clone();
                if granting.is_of_steps() {
                    out.push(AdmissionEffect::UpdateSteps(key.clone()));
                }
                self.stage = Some((key.clone(), Stage::Opening(granting, origin)));
                out.push(AdmissionEffect::OpenSources(key, OpenReason::Lease));
            }
            Err(error) => out.push(AdmissionEffect::AnswerLease(origin, Err(error))),
        }
    }

    /// Answers a lease request whose sources are open, unless nothing of it can be sampled and the lease must be revoked.
    fn finish(
        &mut self,
        targets: &mut Targets,
        key: &TargetKey,
        granting: Granting,
        origin: LeaseOrigin,
        now: Now,
        out: &mut Vec<AdmissionEffect>,
    ) {
        let Some(target) = targets.get_mut(key) else {
            out.push(AdmissionEffect::AnswerLease(origin, Err(AccessError::Unknown.into())));
            return;
        };
        let is_of_steps = granting.is_of_steps();
        match granting.finish(target) {
            Ok(granted) => {
                record_changes(targets, key, None, now, out);
                out.push(AdmissionEffect::AnswerLease(origin, Ok(granted)));
            }
            Err(error) => {
                self.stage = Some((key.clone(), Stage::Revoking(origin, error)));
                if is_of_steps {
                    out.push(AdmissionEffect::UpdateSteps(key.clone()));
                }
                out.push(AdmissionEffect::OpenSources(key.clone(), OpenReason::LeaseRevoked));
            }
        }
    }

    /// Continues with the reason for which the sources of a target were opened, and records the changes of its plan.
    fn opened(
        &mut self,
        targets: &mut Targets,
        key: &TargetKey,
        reason: OpenReason,
        now: Now,
        out: &mut Vec<AdmissionEffect>,
    ) {
        let cause = match reason {
            OpenReason::Plan(cause) => cause,
            OpenReason::Files | OpenReason::Lease | OpenReason::LeaseRevoked => None,
        };
        match (self.stage.take(), reason) {
            (Some((_, Stage::Opening(granting, origin))), OpenReason::Lease) => {
                self.finish(targets, key, granting, origin, now, out);
            }
            (Some((_, Stage::Revoking(origin, error))), OpenReason::LeaseRevoked) => {
                record_changes(targets, key, cause, now, out);
                out.push(AdmissionEffect::AnswerLease(origin, Err(error)));
            }
            (stage, _) => {
                self.stage = stage;
                record_changes(targets, key, cause, now, out);
            }
        }
        self.serve_next(targets, now, out);
    }

    /// Compares the used CPU time with the budgets, and takes one step.
    fn govern(&mut self, targets: &mut Targets, used_percent: f64, out: &mut Vec<AdmissionEffect>) {
        // Without leases there is nothing to govern, and no prediction is needed soon.
        if targets.iter().all(|(_, target)| target.plan.leases.is_empty()) {
            return;
        }
        let (mut keys, mut loads, mut predicted_percent) = (Vec::new(), Vec::new(), 0.0);
        for (key, target) in targets.iter() {
            let predicted = |plan: &Plan| self.pricing.sum(target, plan).cost(1.0).cpu_percent;
            let percent = predicted(&target.plan);
            predicted_percent += percent;
            let leases = &target.plan.leases;
            if leases.is_empty() {
                continue;
            }
            let relaxed = Plan { stretch: target.plan.stretch.saturating_sub(1), ..target.plan.clone() };
            let baseline = Plan { leases: Vec::new(), ..target.plan.clone() };
            keys.push(key.clone());
            loads.push(Load {
                percent,
                relaxed_percent: predicted(&relaxed),
                baseline_percent: predicted(&baseline),
                stretch: target.plan.stretch,
                is_user: leases.iter().any(|lease| !lease.principal.administrator),
            });
        }
        self.pricing.governor.learn(used_percent, predicted_percent);
        let budgets = Budgets {
            node_percent: budget(self.pricing.limits.node_cpu_percent),
            job_percent: budget(self.pricing.limits.job_cpu_percent),
        };
        let (position, is_slower) = match self.pricing.governor.step(used_percent, budgets, &loads) {
            None => return,
            Some(Step::Stretch(position)) => (position, true),
            Some(Step::Relax(position)) => (position, false),
        };
        let Some(key) = keys.get(position) else { return };
        let Some(target) = targets.get_mut(key) else { return };
        let stretch = &mut target.plan.stretch;
        *stretch = if is_slower { stretch.saturating_add(1) } else { stretch.saturating_sub(1) };
        out.push(AdmissionEffect::LogGoverned(format!(
            "sampling takes {used_percent:.1} % of a CPU: the governor now multiplies the lease periods of {} by {}",
            describe(key),
            1_u64 << *stretch
        )));
        out.push(AdmissionEffect::OpenSources(key.clone(), OpenReason::Plan(Some(Cause::Governor))));
    }
}

/// Puts another standing plan in force for all targets.
fn reload(targets: &mut Targets, standing: &Plan, out: &mut Vec<AdmissionEffect>) {
    for (key, target) in targets.iter_mut() {
        let has_same_baseline = target.plan.baseline == standing.baseline;
        let has_same_steps = target.plan.steps == standing.steps && target.plan.tasks == standing.tasks;
        target.plan.baseline = standing.baseline.clone();
        let changes_steps = key.is_some() && !has_same_steps;
        if changes_steps {
            (target.plan.steps, target.plan.tasks) = (standing.steps.clone(), standing.tasks.clone());
            out.push(AdmissionEffect::UpdateSteps(key.clone()));
        }
        if !has_same_baseline || changes_steps {
            out.push(AdmissionEffect::OpenSources(key.clone(), OpenReason::Plan(Some(Cause::Reload))));
        }
    }
}

/// Records the changes of the plan of a target.
fn record_changes(
    targets: &mut Targets,
    key: &TargetKey,
    cause: Option<Cause>,
    now: Now,
    out: &mut Vec<AdmissionEffect>,
) {
    let Some(target) = targets.get_mut(key) else { return };
    let changes = target.plan_changes(cause, now);
    let job = target.job.clone();
    let record = |change| AdmissionEffect::RecordPlanChange(job.clone(), change);
    out.extend(changes.into_iter().map(record));
}

/// Returns the metrics whose availability and read time are unknown. perf events that are open already are left alone.
fn unprobed(targets: &mut Targets, key: &TargetKey, wanted: Vec<Definition>, now: Now) -> Vec<Definition> {
    let Some(target) = targets.get_mut(key) else { return Vec::new() };
    target.findings.forget_old(now.monotonic_ns);
    let is_unknown = |definition: &Definition| {
        !target.sources.counts(definition) && !target.findings.found().contains_key(&definition.name())
    };
    wanted.into_iter().filter(is_unknown).collect()
}
