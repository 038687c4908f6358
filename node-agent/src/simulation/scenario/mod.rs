//! The events of a simulation, and the invariants after each.

mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, JobHandle};
use tokio::sync::oneshot;

use crate::admission::{
    Admission, AdmissionEffect, AdmissionEvent, Descriptors, LeaseOrigin, OpenReason, ReadTimes,
};
use crate::cgroups::{Captured, JobCgroups, Step, StepLevel};
use crate::config::{JobVisibility, Limits};
use crate::lifecycle::{FoundJob, Lifecycle, LifecycleEffect, LifecycleEvent, LifecycleTask};
use crate::plan::{Layer, Plan, Rule};
use crate::principal::Principal;
use crate::simulation::edge::SimulatedEdge;
use crate::simulation::random::Random;
use crate::sources::Target;
use crate::targets::{Now, TargetKey, Targets, TrackedTarget};

const SECOND_NS: u64 = 1_000_000_000;
const BASELINE: [(&str, &str); 3] = [("cpu.usage", "1s"), ("memory.current", "500ms"), ("node.load1", "5s")];
/// The metrics of steps.
const STEP_METRIC: &str = "cpu.usage";
const METRICS: [&str; 5] = ["cpu.usage", "cpu.user", "memory.current", "perf.page_faults", "cpu.*"];
const PERIODS: [&str; 6] = ["1ms", "10ms", "100ms", "1s", "10s", "1min"];
const USERS: [u32; 3] = [7, 8, 9];
const ROOT: Principal = Principal { uid: 0, administrator: true };

#[derive(Debug)]
enum Effect {
    Admission(AdmissionEffect),
    Lifecycle(LifecycleEffect),
}

/// A channel whose answer must arrive exactly once.
#[derive(Debug)]
struct Awaited<T>(oneshot::Receiver<T>);

impl<T> Awaited<T> {
    fn new() -> (oneshot::Sender<T>, Self) {
        let (reply, answer) = oneshot::channel();
        (reply, Self(answer))
    }

    fn take(mut self) -> T {
        self.0.try_recv().unwrap_or_else(|error| panic!("a request without an answer: {error}"))
    }
}

/// One run of an agent.
#[derive(Debug)]
pub(super) struct Scenario {
    random: Random,
    now: Now,
    targets: Targets,
    admission: Admission,
    lifecycle: Lifecycle,
    edge: SimulatedEdge,
    effects: VecDeque<Effect>,
    /// The cgroups of jobs that exist.
    cgroups: BTreeMap<PathBuf, FoundJob>,
    /// The steps and tasks of these jobs.
    steps: BTreeMap<PathBuf, BTreeMap<String, Step>>,
    inode: u64,
    descriptor_limit: usize,
    left_out: usize,
    handles: BTreeMap<JobHandle, TargetKey>,
    limits: Limits,
    standing: Plan,
    /// True if costs are measured, so that predictions change.
    is_governed: bool,
}

impl Scenario {
    pub(super) fn new(mut random: Random) -> Self {
        let rule = |(metric, period): &(&str, &str)| Rule {
            selector: metric.parse().unwrap(),
            period: period.parse().ok(),
        };
        let baseline = Layer::new(BASELINE.iter().map(rule).collect());
        let steps = step_layer(random.percent(70));
        let standing = Plan { baseline, steps, ..Plan::default() };
        let limits = Limits { job_cpu_percent: 1 + random.below(5), ..Limits::default() };
        let mut edge = SimulatedEdge::default();
        if random.percent(30) {
            edge.missing.insert("perf.page_faults");
        }
        let now = Now { monotonic_ns: SECOND_NS, realtime_us: 1_700_000_000_000_000 };
        let node = Target::Node(Arc::default());
        let mut scenario = Self {
            descriptor_limit: if random.percent(30) { 64 + 20 + 32 * 4 } else { 100_000 },
            is_governed: random.percent(50),
            targets: Targets::new(JobVisibility::Own),
            admission: Admission::new(limits.clone()),
            lifecycle: Lifecycle::new(None, standing.clone(), node, now),
            edge,
            effects: VecDeque::new(),
            cgroups: BTreeMap::new(),
            steps: BTreeMap::new(),
            inode: 0,
            left_out: 0,
            handles: BTreeMap::new(),
            random,
            now,
            limits,
            standing,
        };
        scenario.lifecycle(LifecycleEvent::Started);
        let descriptors = scenario.descriptors();
        scenario.lifecycle(LifecycleEvent::NodeSampled(descriptors));
        scenario
    }

    /// Runs one random event, and checks all invariants.
    pub(super) fn step(&mut self) {
        let duration_ns = self.random_duration_ns();
        self.pass(duration_ns);
        match self.random.below(15) {
            0 | 1 => self.begin_job(),
            2 => self.remove_job(),
            3..=5 => self.request_lease(),
            6 => self.reset_leases(),
            7 => self.announce_job(),
            8 => self.register_job(),
            9 => self.exit(),
            10 => self.measure_cpu(),
            11 | 12 => self.change_steps(),
            13 => self.request_metrics(),
            _ => self.change(),
        }
        self.check();
    }

    /// Ends all jobs and leases, and checks that nothing is left.
    pub(super) fn end(mut self) {
        self.cgroups.clear();
        self.steps.clear();
        let registered = self.targets.keys_where(|target| target.job.is_some() && target.found_at.is_none());
        for key in registered.into_iter().flatten() {
            let (reply, answer) = Awaited::new();
            self.lifecycle(LifecycleEvent::JobUnregistered(key, reply));
            assert!(answer.take());
        }
        self.walk();
        let (reply, answer) = Awaited::new();
        self.admission(AdmissionEvent::LeasesReset(ROOT, None, reply));
        assert!(answer.take().is_ok());
        self.check();
        assert_eq!(self.targets.job_count(), 0);
        assert_eq!(self.edge.ended().len(), self.handles.len(), "every tracked job has its final sample");
        let node = self.targets.get(&None).unwrap();
        assert!(node.plan.leases.is_empty());
        self.edge.check_closed(node.sources.open().len());
        self.pass(6 * SECOND_NS);
        self.lifecycle.is_idle(&self.targets, self.now);
    }

    fn random_duration_ns(&mut self) -> u64 {
        *self.random.choose(&[1_000, SECOND_NS / 100, SECOND_NS, 20 * SECOND_NS, 70 * SECOND_NS])
    }

    fn pass(&mut self, duration_ns: u64) {
        self.now.monotonic_ns += duration_ns;
        self.now.realtime_us += i64::try_from(duration_ns / 1_000).unwrap();
        if Admission::next_expiry_ns(&self.targets).is_some_and(|at_ns| at_ns <= self.now.monotonic_ns) {
            self.admission(AdmissionEvent::LeasesExpired);
        }
        if self.random.percent(50) {
            self.edge.give_back();
        }
    }

    fn descriptors(&self) -> Descriptors {
        Descriptors { limit: self.descriptor_limit, open: 20 + 32 * self.targets.job_count() }
    }

    fn name(&mut self) -> Identifier {
        Identifier::try_from(self.random.below(9).to_string()).unwrap()
    }

    fn tracked_job(&mut self) -> Option<Identifier> {
        let jobs: Vec<Identifier> = self.targets.iter().filter_map(|(key, _)| key.clone()).collect();
        (!jobs.is_empty()).then(|| self.random.choose(&jobs).clone())
    }

    fn begin_job(&mut self) {
        let (job, uid) = (self.name(), *self.random.choose(&USERS));
        let relative = PathBuf::from(format!("uid_{uid}/job_{job}"));
        let is_other = |found: &FoundJob| found.relative != relative && found.name().as_ref() == Some(&job);
        if self.cgroups.values().any(is_other) {
            return;
        }
        self.inode += 1;
        let path = PathBuf::from("/cgroup").join(&relative);
        let cgroups = JobCgroups {
            v2: Some(path.clone()),
            inodes: BTreeMap::from([(path, self.inode)]),
            ..JobCgroups::default()
        };
        let knows_uid = self.random.percent(80);
        let captured = Captured {
            job: Some(job.as_str().to_owned()),
            uid: knows_uid.then_some(uid),
            ..Captured::default()
        };
        // A job that exists already is removed and created again.
        let found = FoundJob { captured, relative: relative.clone(), cgroups, directory_uid: Some(uid) };
        self.steps.remove(&relative);
        self.cgroups.insert(relative, found);
        self.walk();
    }

    fn remove_job(&mut self) {
        let paths: Vec<PathBuf> = self.cgroups.keys().cloned().collect();
        if !paths.is_empty() {
            let path = self.random.choose(&paths).clone();
            self.cgroups.remove(&path);
            self.steps.remove(&path);
        }
        self.walk();
    }

    fn walk(&mut self) {
        let (found, descriptors) = (self.cgroups.clone(), self.descriptors());
        let room = self.lifecycle.has_room(&self.targets, found.len(), descriptors);
        self.lifecycle(LifecycleEvent::Walked { found, vanished: Vec::new(), passed_over: 0, descriptors });
        assert!(!room || self.left_out == 0, "jobs are left out although there is room");
        self.check_shares();
    }

    /// Checks that every existing job is tracked or counted as left out, and that all owners have the same share.
    fn check_shares(&self) {
        let mut shares: BTreeMap<Option<u32>, (usize, usize)> = BTreeMap::new();
        for found in self.cgroups.values() {
            let target = self.targets.job(&found.name().unwrap());
            let is_tracked = target.is_some_and(|target| target.found_at.as_ref() == Some(&found.relative));
            let (tracked, left_out) = shares.entry(found.owner().0).or_default();
            *tracked += usize::from(is_tracked);
            *left_out += usize::from(!is_tracked);
        }
        assert_eq!(shares.values().map(|(_, left_out)| left_out).sum::<usize>(), self.left_out, "{shares:?}");
        let most = shares.values().map(|(tracked, _)| *tracked).max().unwrap_or_default();
        assert!(
            shares.values().all(|(tracked, left_out)| *left_out == 0 || tracked + 1 >= most),
            "unequal shares: {shares:?}"
        );
    }

    fn exit(&mut self) {
        let exits = (0..1 + self.random.below(3)).map(|_| (self.name(), self.random.percent(50))).collect();
        self.see_exits(exits);
        self.rescan();
    }

    /// Begins or ends a step of a job.
    fn change_steps(&mut self) {
        let found =
            self.targets.iter().filter_map(|(key, target)| Some((key.clone()?, target.found_at.clone()?)));
        let found: Vec<(Identifier, PathBuf)> = found.collect();
        if found.is_empty() {
            return;
        }
        let (job_id, relative) = self.random.choose(&found).clone();
        let name = format!("step_{}", self.random.below(3));
        let steps = self.steps.entry(relative.clone()).or_default();
        let is_ended = steps.remove(&name).is_some();
        if !is_ended || self.random.percent(30) {
            // A step that returns at once has another cgroup.
            self.inode += 1;
            let path = PathBuf::from("/cgroup").join(relative).join(&name);
            let inodes = BTreeMap::from([(path.clone(), self.inode)]);
            let cgroups = JobCgroups { v2: Some(path), inodes, ..JobCgroups::default() };
            let labels = vec![("step".to_owned(), name.clone())];
            steps.insert(name.clone(), Step { level: StepLevel::Step, name, labels, cgroups });
        }
        self.see_exits(BTreeMap::from([(job_id, is_ended)]));
        self.rescan();
    }

    /// Rescans the jobs in which something has happened.
    fn rescan(&mut self) {
        while self.lifecycle.has_pending_rescans() {
            self.lifecycle(LifecycleEvent::NextRescan);
        }
        self.lifecycle(LifecycleEvent::MissedRescans);
    }

    fn update_steps(&mut self, key: &TargetKey) {
        let Some(target) = self.targets.get_mut(key) else { return };
        let present = target.found_at.as_ref().and_then(|path| self.steps.get(path));
        self.edge.update_steps(key, target, present.cloned().unwrap_or_default());
    }

    fn measure_cpu(&mut self) {
        if self.is_governed {
            let used_percent = f64::from(u32::try_from(self.random.below(60)).unwrap());
            self.admission(AdmissionEvent::CpuMeasured(used_percent, ReadTimes::new()));
        }
    }

    /// Changes the configuration or the files, or makes an owner known.
    fn change(&mut self) {
        match self.random.below(3) {
            0 => {
                let mut rules = self.standing.baseline.rules().to_vec();
                rules[0].period = self.random.choose(&PERIODS).parse().ok();
                self.standing.baseline = Layer::new(rules);
                self.standing.steps = step_layer(self.random.percent(70));
                let (limits, standing) = (self.limits.clone(), self.standing.clone());
                self.lifecycle(LifecycleEvent::ConfigReloaded(None, standing.clone()));
                self.admission(AdmissionEvent::ConfigReloaded(limits, standing));
            }
            1 => {
                let job = self.tracked_job();
                self.lifecycle(LifecycleEvent::FilesChanged(job));
            }
            _ => self.lifecycle(LifecycleEvent::OwnersWanted),
        }
    }

    fn admission(&mut self, event: AdmissionEvent) {
        let mut effects = Vec::new();
        self.admission.handle(&mut self.targets, event, self.now, &mut effects);
        effects.into_iter().rev().for_each(|effect| self.effects.push_front(Effect::Admission(effect)));
        self.apply_all();
    }

    fn lifecycle(&mut self, event: LifecycleEvent) {
        let mut effects = Vec::new();
        self.lifecycle.handle(&mut self.targets, event, self.now, &mut effects);
        effects.into_iter().rev().for_each(|effect| self.effects.push_front(Effect::Lifecycle(effect)));
        self.apply_all();
    }

    fn apply_all(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Admission(effect) => self.apply_admission(effect),
                Effect::Lifecycle(effect) => self.apply_lifecycle(effect),
            }
            // Exits are seen at any time.
            if self.random.percent(5) {
                let exits = BTreeMap::from([(self.name(), true)]);
                self.see_exits(exits);
            }
        }
    }

    fn see_exits(&mut self, exits: BTreeMap<Identifier, bool>) {
        for job in self.lifecycle.exits_seen(&mut self.targets, exits, self.now) {
            assert!(self.handles.contains_key(&job), "{job:?} is unknown");
        }
    }

    fn apply_admission(&mut self, effect: AdmissionEffect) {
        match effect {
            AdmissionEffect::OpenSources(key, reason) => {
                self.open(&key, false);
                self.admission(AdmissionEvent::SourcesOpened(key, reason));
            }
            AdmissionEffect::Probe(key, definitions) => {
                let target = self.targets.get(&key);
                let found = target.map(|target| self.edge.probe(target, &definitions)).unwrap_or_default();
                self.admission(AdmissionEvent::Probed(key, found));
            }
            AdmissionEffect::RecordPlanChange(job, change) => {
                assert_eq!(job.map(|job| job.handle), change.job);
                self.edge.record_plan_change(&change);
            }
            AdmissionEffect::AnswerLease(LeaseOrigin::Client(reply), answer) => reply.send(answer).unwrap(),
            AdmissionEffect::AnswerLease(LeaseOrigin::Submission(job_id, reply), answer) => {
                self.lifecycle(LifecycleEvent::SubmissionAnswered(job_id, answer, reply));
            }
            AdmissionEffect::AnswerReset(reply, answer) => reply.send(answer).unwrap(),
            AdmissionEffect::AnswerMetrics(reply, answer) => reply.send(answer).unwrap(),
            AdmissionEffect::UpdateSteps(key) => self.update_steps(&key),
            AdmissionEffect::LogGoverned(_) => {}
        }
    }

    fn apply_lifecycle(&mut self, effect: LifecycleEffect) {
        match effect {
            LifecycleEffect::Task(task) => self.apply_task(task),
            LifecycleEffect::CloseSources(target) => {
                target.sources.close().into_iter().for_each(|command| self.edge.command(command));
            }
            LifecycleEffect::FinalSample(job) => self.edge.final_sample(job),
            LifecycleEffect::ReadJob(job) => assert!(self.handles.contains_key(&job), "{job:?} is unknown"),
            LifecycleEffect::Record(record) => self.edge.record(&record),
            LifecycleEffect::AnswerRegistration(reply, answer) => {
                reply.send(answer.map(|_| Vec::new())).unwrap();
            }
            LifecycleEffect::AnswerUnregistration(reply, answer) => reply.send(answer).unwrap(),
            LifecycleEffect::AnswerAnnouncement(reply, answer) => reply.send(answer).unwrap(),
            LifecycleEffect::AnswerEnd(reply) => reply.send(()).unwrap(),
            LifecycleEffect::ReportLeftOut(jobs, _) => self.left_out = jobs,
            LifecycleEffect::UpdateSteps(key) => self.update_steps(&key),
            LifecycleEffect::UnwatchExits(_)
            | LifecycleEffect::LogInfo(_)
            | LifecycleEffect::LogWarning(_) => {}
        }
    }

    fn apply_task(&mut self, task: LifecycleTask) {
        match task {
            LifecycleTask::OpenSources(key) => {
                self.open(&key, true);
                self.admission(AdmissionEvent::SourcesOpened(key, OpenReason::Files));
            }
            LifecycleTask::WatchExits(key) => {
                let is_missed = self.random.percent(10);
                self.lifecycle(LifecycleEvent::ExitsWatched(key, is_missed));
            }
            LifecycleTask::IdentifyJob { found, .. } => {
                self.lifecycle(LifecycleEvent::JobDiscovered { found, number: None, owner_uid: None });
            }
            LifecycleTask::LookUpOwner(key, _) => {
                let uid = self.random.percent(50).then_some(USERS[0]);
                let job = self.targets.get(&key).and_then(TrackedTarget::handle).unwrap();
                self.lifecycle(LifecycleEvent::OwnerLookedUp { key, job, uid, name: None });
            }
            LifecycleTask::RequestLease(request, job_id, reply) => {
                assert!(!request.principal.administrator, "a request at submission is an ordinary user's");
                let origin = LeaseOrigin::Submission(job_id, reply);
                self.admission(AdmissionEvent::LeaseRequested(request, origin, ReadTimes::new()));
            }
            LifecycleTask::ScanCgroups(_) | LifecycleTask::HandleExits => {}
        }
    }

    fn open(&mut self, key: &TargetKey, is_anew: bool) {
        let Some(target) = self.targets.get_mut(key) else { return };
        if let Some(handle) = target.handle() {
            let known = self.handles.entry(handle).or_insert_with(|| key.clone());
            assert_eq!(known, key, "a handle has a second meaning");
        }
        self.edge.open_sources(key, target, is_anew);
    }

    /// Checks the invariants.
    fn check(&self) {
        let mut handles = BTreeSet::new();
        for (key, target) in self.targets.iter() {
            self.edge.check(target);
            assert!(target.handle().is_none_or(|handle| handles.insert(handle)), "a handle of two jobs");
            assert!(target.plan.stretch == 0 || !target.plan.leases.is_empty(), "a stretch without leases");
            for lease in &target.plan.leases {
                assert!(lease.ends_ns > self.now.monotonic_ns, "a lease of {key:?} has outlived its time");
            }
            for (metric, in_force) in target.plan_in_force() {
                if let Some(baseline) = target.plan.baseline.period(&metric) {
                    assert!(in_force.period <= baseline, "{metric} of {key:?} is slower than its baseline");
                }
            }
            assert_eq!(target.plan.baseline, self.standing.baseline, "{key:?} has the baseline in force");
            let present = target.found_at.as_ref().filter(|_| target.plan.wants_steps());
            let present = present.and_then(|path| self.steps.get(path)).cloned().unwrap_or_default();
            let open = target.sources.open().values().filter_map(|source| source.step.as_deref());
            let open: BTreeMap<String, Step> = open.map(|step| (step.name.clone(), step.clone())).collect();
            assert_eq!(open, present, "the steps of {key:?}");
        }
    }
}

/// Returns the layer of steps, with a metric or empty.
fn step_layer(has_metric: bool) -> Layer {
    let rule = Rule { selector: STEP_METRIC.parse().unwrap(), period: "10s".parse().ok() };
    Layer::new(has_metric.then_some(rule).into_iter().collect())
}
