//! Requests of users and of the scheduler, and the checks of their answers.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::derived;
use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::name::Selector;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::trigger::{Rule, RuleFields};

use super::job_events::sluid;
use super::{METRICS, ROOT, SAMPLINGS, SECOND_NS, Scenario, USERS, done};
use crate::admission::Admission;
use crate::config::Limits;
use crate::lifecycle::Registration;
use crate::plan::{Layer, Plan};
use crate::principal::Principal;
use crate::request::{
    Availability, JobSpec, LeaseError, LeaseGrant, LeaseRequest, SamplingRequest, StartSpec, SubmittedRelease,
};
use crate::sources::Target;
use crate::targets::{Access, TargetKey, TrackedTarget};

impl Scenario {
    fn random_request(&mut self, job_id: TargetKey) -> LeaseRequest {
        let uid = *self.random.choose(&USERS);
        let principal = if self.random.percent(15) { ROOT } else { Principal { uid, administrator: false } };
        let metrics: Vec<(Selector, Sampling)> = (0..1 + self.random.below(2))
            .map(|_| {
                let metric = self.random.choose(&METRICS).parse().unwrap();
                (metric, self.random.choose(&SAMPLINGS).parse().unwrap())
            })
            .collect();
        let duration_us = self.random.percent(80).then(|| 1 + self.random.below(100_000_000));
        let level = [None, Some(StepLevel::Step), Some(StepLevel::Task)];
        let level = if self.random.percent(40) { *self.random.choose(&level) } else { None };
        let is_ring = job_id.is_some() && level.is_none() && self.random.percent(20);
        LeaseRequest {
            principal,
            job_id,
            level,
            is_ring,
            metrics,
            since_us: None,
            duration_us,
            demanded_by: None,
        }
    }

    pub(super) fn request_lease(&mut self) {
        let job_id = if self.random.percent(5) { None } else { self.tracked_job() };
        let request = self.random_request(job_id.clone());
        let (principal, key) = (request.principal, request.job_id.clone());
        let had_administrators = self.has_administrators();
        let former = self.core.targets.get(&key).map(|target| target.plan.clone()).unwrap_or_default();
        let result = done(self.core.set(request));
        if let Ok(granted) = &result
            && !principal.administrator
            && !had_administrators
            && !self.is_governed
            // A baseline may exceed a budget by itself; then a lease that costs no more is granted.
            && granted.cost.cpu_percent > self.predicted_percent(&key, &former)
        {
            self.check_budgets(&key, granted);
        }
        self.check_refusal(&result);
    }

    /// Sets the wall clock while a lease of the node runs, by seconds that may be negative: it ends at its
    /// time, and until then the agent does not begin anew.
    pub(in crate::simulation) fn check_lease_at_step(&mut self, step_s: i64) {
        let metrics = vec![("node.load1".parse().unwrap(), Sampling::raw(Period::SECOND))];
        let duration_us = Some(60_000_000);
        let request = LeaseRequest {
            principal: ROOT,
            job_id: None,
            level: None,
            is_ring: false,
            metrics,
            since_us: None,
            duration_us,
            demanded_by: None,
        };
        assert!(Admission::may_begin_anew(&self.core.targets));
        assert!(done(self.core.set(request)).is_ok());
        self.core.edge.now.realtime_us += step_s * 1_000_000;
        for (seconds, is_over) in [(59, false), (2, true)] {
            self.pass(seconds * SECOND_NS);
            let node = self.core.targets.get(&None).unwrap();
            assert_eq!(node.plan.leases.is_empty(), is_over, "{step_s} s");
            assert_eq!(Admission::may_begin_anew(&self.core.targets), is_over, "{step_s} s");
        }
    }

    fn predicted_percent(&self, key: &TargetKey, plan: &Plan) -> f64 {
        let target = self.core.targets.get(key);
        target.map_or(0.0, |target| self.core.admission.predicted(target, plan).cpu_percent)
    }

    fn has_administrators(&self) -> bool {
        let mut leases = self.core.targets.iter().flat_map(|(_, target)| &target.plan.leases);
        leases.any(|lease| lease.principal.administrator)
    }

    /// Checks that a user's granted lease is within the budgets, as predicted.
    fn check_budgets(&self, key: &TargetKey, granted: &LeaseGrant) {
        let float = |limit: u64| f64::from(u32::try_from(limit).unwrap());
        let Limits { samples_per_second, job_cpu_percent, node_cpu_percent, .. } = &self.limits;
        assert!(granted.cost.samples_per_s <= float(*samples_per_second), "{granted:?}");
        assert!(granted.cost.cpu_percent <= float(*job_cpu_percent), "{granted:?}");
        let others = self.core.targets.iter().filter(|(other, _)| *other != key);
        let others: f64 = others.map(|(key, other)| self.predicted_percent(key, &other.plan)).sum();
        assert!(granted.cost.cpu_percent + others <= float(*node_cpu_percent), "{granted:?} and {others}");
    }

    fn check_refusal(&self, result: &Result<LeaseGrant, LeaseError>) {
        match result {
            Err(LeaseError::TooShort { requested, shortest, .. }) => assert!(requested < shortest),
            Err(LeaseError::Unavailable(metrics)) => assert!(!metrics.is_empty()),
            Ok(granted) => assert!(!granted.metrics.is_empty()),
            Err(_) => {}
        }
    }

    pub(super) fn reset_leases(&mut self) {
        let job_id = self.tracked_job();
        let uid = *self.random.choose(&USERS);
        let principal = if self.random.percent(30) { ROOT } else { Principal { uid, administrator: false } };
        let level = if self.random.percent(30) { Some(StepLevel::Step) } else { None };
        let own = |target: &TrackedTarget| {
            let own = target.plan.leases.iter().filter(|lease| {
                principal.can_access(Some(lease.principal.uid))
                    && level.is_none_or(|level| lease.level == Some(level))
            });
            own.count()
        };
        let expected = self.core.targets.get(&job_id).map(own);
        if let Ok(ended) = done(self.core.reset(principal, &job_id, level)) {
            assert_eq!(Some(ended), expected, "leases that ended");
            assert_eq!(self.core.targets.get(&job_id).map(own), Some(0));
        }
    }

    pub(super) fn announce_job(&mut self) {
        let job_id = self.name();
        if self.random.percent(30) {
            let core = &mut self.core;
            let ended = core.edge.ended().len();
            core.edge.ends_unseen = core.lifecycle.awaits(&core.targets, &job_id);
            done(core.scheduler_ended(&job_id, JobFacts::default()));
            let unseen = usize::from(std::mem::take(&mut core.edge.ends_unseen));
            assert_eq!(core.edge.ended().len(), ended + unseen);
            return;
        }
        let request = self.random_request(None);
        let alias = self.random.percent(50).then(|| sluid(&job_id));
        let LeaseRequest { metrics, duration_us, .. } = request;
        let parts =
            [(None, false), (Some(StepLevel::Step), false), (Some(StepLevel::Task), false), (None, true)];
        let sampling = parts.into_iter().filter(|_| self.random.percent(40));
        let sampling = sampling.map(|(level, is_ring)| SamplingRequest {
            level,
            is_ring,
            metrics: metrics.clone(),
            duration_us,
        });
        let sampling = sampling.collect();
        let fields = RuleFields { name: "t".to_owned(), when: "oom".to_owned(), ..RuleFields::default() };
        let triggers = if self.random.percent(30) { vec![Rule::parse(&fields).unwrap()] } else { Vec::new() };
        let spec = StartSpec {
            job_id,
            alias,
            cluster: None,
            owner_uid: self.random.percent(50).then_some(request.principal.uid),
            owner: None,
            sampling,
            pmu_release: self.random.percent(20).then_some(SubmittedRelease { duration_us }),
            triggers,
            refused: None,
            facts: JobFacts { cores: Some(4), ..JobFacts::default() },
            gpu_devices: None,
            details: JobDetails { gpus: Some(1), ..JobDetails::default() },
        };
        assert!(done(self.core.announce(spec, None)).is_ok());
    }

    pub(super) fn register_job(&mut self) {
        // The names differ from those that discovery finds, so that shares can be counted.
        let job_id = Identifier::try_from(format!("registered_{}", self.random.below(4))).unwrap();
        if self.random.percent(40) {
            done(self.core.unregister(job_id));
            return;
        }
        let spec = JobSpec {
            job_id: job_id.clone(),
            cluster: None,
            owner_uid: Some(*self.random.choose(&USERS)),
            owner: None,
            cgroups: Vec::new(),
            process: Some(1),
            sampling: Layer::default(),
            facts: JobFacts::default(),
            details: JobDetails::default(),
        };
        let was_tracked = self.core.targets.job(&job_id).is_some();
        let (target, descriptors) = (Ok(Target::Processes(1)), self.descriptors());
        let registered = done(self.core.register(Registration { spec, target, descriptors }));
        assert_eq!(registered.is_ok(), self.core.targets.job(&job_id).is_some() && !was_tracked);
    }

    pub(super) fn request_metrics(&mut self) {
        let key = if self.random.percent(20) { None } else { self.tracked_job() };
        let uid = *self.random.choose(&USERS);
        let principal = if self.random.percent(30) { ROOT } else { Principal { uid, administrator: false } };
        let answer = done(self.core.metrics(principal, &key));
        let access = self.core.targets.access(principal, &key, Access::See);
        assert_eq!(
            answer.as_ref().map(drop),
            access.as_ref().map(drop),
            "access of {principal:?} to {key:?}"
        );
        let (Ok(metrics), Ok(target)) = (answer, access) else { return };
        let listed = metrics.iter().map(|metric| (metric.name.clone(), metric.period));
        let listed: BTreeMap<String, Option<Sampling>> = listed.collect();
        assert_eq!(listed.len(), metrics.len(), "a metric is listed twice");
        let in_force: BTreeMap<String, Option<Sampling>> = target
            .plan_in_force()
            .into_iter()
            .map(|(name, in_force)| (name, Some(in_force.sampling)))
            .collect();
        for (name, period) in &listed {
            assert_eq!(period, in_force.get(name).unwrap_or(&None), "{name} of {key:?}");
        }
        assert!(
            in_force.keys().all(|name| listed.contains_key(name)),
            "a sampled metric of {key:?} is not listed"
        );
        for metric in metrics.iter().filter(|metric| derived::find(&metric.name).is_none()) {
            let is_missing = self.core.edge.missing.contains(metric.name.as_str());
            assert_eq!(matches!(metric.availability, Availability::No(_)), is_missing, "{metric:?}");
        }
    }
}
