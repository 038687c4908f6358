//! The events of a simulation, and the invariants after each.

mod effects;
mod jobs;
mod requests;
mod step_checks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobHandle};
use tokio::sync::oneshot;

use crate::admission::{Admission, AdmissionEffect, AdmissionEvent, Descriptors, ReadTimes};
use crate::cgroups::Step;
use crate::config::{JobVisibility, Limits};
use crate::lifecycle::{FoundJob, Lifecycle, LifecycleEffect, LifecycleEvent};
use crate::plan::{Layer, Plan, Rule};
use crate::principal::Principal;
use crate::simulation::edge::SimulatedEdge;
use crate::simulation::random::Random;
use crate::sources::Target;
use crate::targets::{Now, TargetKey, Targets};

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
    /// The numbers of these jobs; those whose cgroups carry a SLUID have the number in their processes' environment only.
    numbers: BTreeMap<PathBuf, Identifier>,
    /// The steps and tasks of these jobs.
    steps: BTreeMap<PathBuf, BTreeMap<String, Step>>,
    inode: u64,
    descriptor_limit: usize,
    left_out: usize,
    handles: BTreeMap<JobHandle, TargetKey>,
    /// The jobs whose exits are watched.
    watched: BTreeSet<Identifier>,
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
            numbers: BTreeMap::new(),
            steps: BTreeMap::new(),
            inode: 0,
            left_out: 0,
            handles: BTreeMap::new(),
            watched: BTreeSet::new(),
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
        self.numbers.clear();
        self.steps.clear();
        let registered = self.targets.keys_where(|target| target.job.is_some() && target.found_at.is_none());
        for key in registered.into_iter().flatten() {
            let (reply, answer) = Awaited::new();
            self.lifecycle(LifecycleEvent::JobUnregistered(key, reply));
            assert!(answer.take());
        }
        self.walk();
        let (reply, answer) = Awaited::new();
        self.admission(AdmissionEvent::LeasesReset(ROOT, None, None, reply));
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
        let is_searching = self.lifecycle.unnumbered_jobs(self.now).next().is_some();
        if is_searching && self.random.percent(70) {
            self.walk();
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

    fn measure_cpu(&mut self) {
        if self.is_governed {
            let used_percent = f64::from(u32::try_from(self.random.below(60)).unwrap());
            self.admission(AdmissionEvent::CpuMeasured(used_percent, ReadTimes::new()));
        }
    }

    /// Changes the configuration or the files, or makes an owner known.
    fn change(&mut self) {
        match self.random.below(4) {
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
            2 => self.state_intervals(),
            _ => self.lifecycle(LifecycleEvent::OwnersWanted),
        }
    }

    /// Changes the refresh interval of the hardware behind a source, in sources that are open as well.
    fn state_intervals(&mut self) {
        let word = *self.random.choose(&["cpu", "memory", "node"]);
        let interval: Option<Period> =
            self.random.percent(70).then(|| self.random.choose(&PERIODS).parse().unwrap());
        match interval {
            Some(interval) => drop(self.edge.refresh_intervals.insert(word.to_owned(), interval)),
            None => drop(self.edge.refresh_intervals.remove(word)),
        }
        for (_, target) in self.targets.iter() {
            let is_meant = |name: &str| name.split('/').next_back() == Some(word);
            let sources = target.sources.open().iter().filter(|(name, _)| is_meant(name));
            sources.for_each(|(_, source)| source.stated_interval.set(interval));
        }
        for key in self.targets.keys_where(|target| target.sources.has_new_intervals()) {
            self.admission(AdmissionEvent::IntervalsStated(key));
        }
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
                let interval = target.sources.sampled()[&metric].iter().map(|(_, interval)| *interval).min();
                let interval = interval.flatten().unwrap_or(Period::MIN);
                assert!(in_force.period >= interval, "{metric} of {key:?} is faster than its hardware");
                if let Some(baseline) = target.plan.baseline.period(&metric) {
                    let longest = baseline.max(interval);
                    assert!(in_force.period <= longest, "{metric} of {key:?} is slower than its baseline");
                }
                assert_eq!(in_force.requested.is_some(), in_force.reason().is_some(), "{in_force:?}");
            }
            self.check_name(key, target);
            assert_eq!(target.plan.baseline, self.standing.baseline, "{key:?} has the baseline in force");
            self.check_steps(key, target);
        }
    }
}

/// Returns the layer of steps, with a metric or empty.
fn step_layer(has_metric: bool) -> Layer {
    let rule = Rule { selector: STEP_METRIC.parse().unwrap(), period: "10s".parse().ok() };
    Layer::new(has_metric.then_some(rule).into_iter().collect())
}
