//! Events of a simulation, and the invariants after each.

mod job_events;
mod requests;
mod step_checks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobHandle};

use crate::admission::{Admission, Descriptors};
use crate::config::{JobVisibility, Limits};
use crate::lifecycle::{FoundJob, Lifecycle};
use crate::plan::{Layer, Plan, Rule};
use crate::principal::Principal;
use crate::simulation::edge::{SimulatedEdge, USERS, job_name};
use crate::simulation::random::Random;
use crate::sources::Target;
use crate::supervisor::Dispatcher;
use crate::targets::{Now, Targets};

const SECOND_NS: u64 = 1_000_000_000;
const BASELINE: [(&str, &str); 3] = [("cpu.usage", "1s"), ("memory.current", "500ms"), ("node.load1", "5s")];
const STEP_METRIC: &str = "cpu.usage";
const METRICS: [&str; 5] = ["cpu.usage", "cpu.user", "memory.current", "perf.page_faults", "cpu.*"];
const PERIODS: [&str; 6] = ["1ms", "10ms", "100ms", "1s", "10s", "1min"];
/// Periods of requests and rules.
const SAMPLINGS: [&str; 9] =
    ["1ms", "10ms", "100ms", "1s", "10s", "1min", "1ms/1s", "100ms/10s", "10ms/250ms"];
const ROOT: Principal = Principal { uid: 0, administrator: true };

/// Runs a function of the dispatcher to its end, for which the simulated edge never waits.
fn done<T>(running: impl Future<Output = T>) -> T {
    match pin!(running).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the simulated edge waits"),
    }
}

#[derive(Debug)]
pub(super) struct Scenario {
    random: Random,
    core: Dispatcher<SimulatedEdge>,
    cgroups: BTreeMap<PathBuf, FoundJob>,
    inode: u64,
    /// Inodes of the cgroups in which the tracked jobs began.
    inodes: BTreeMap<JobHandle, u64>,
    descriptor_limit: usize,
    limits: Limits,
    standing: Plan,
    /// True if costs are measured, so that predictions change.
    is_governed: bool,
}

impl Scenario {
    pub(super) fn new(mut random: Random) -> Self {
        let rules = BASELINE.iter().map(|(metric, period)| Rule {
            selector: metric.parse().unwrap(),
            sampling: period.parse().ok(),
        });
        let baseline = Layer::new(rules.collect());
        let steps = step_layer(random.percent(70));
        let standing = Plan { baseline, steps, ..Plan::default() };
        let limits = Limits { job_cpu_percent: 1 + random.below(5), ..Limits::default() };
        let now = Now { monotonic_ns: SECOND_NS, realtime_us: 1_700_000_000_000_000 };
        let mut edge = SimulatedEdge::new(random.split(), now);
        if random.percent(30) {
            edge.missing.insert("perf.page_faults");
        }
        let node = Target::Node(Arc::default());
        let mut scenario = Self {
            descriptor_limit: if random.percent(30) { 64 + 20 + 32 * 4 } else { 100_000 },
            is_governed: random.percent(50),
            core: Dispatcher {
                targets: Targets::new(JobVisibility::Own),
                admission: Admission::new(limits.clone(), 2),
                lifecycle: Lifecycle::new(None, standing.clone(), node, now),
                edge,
            },
            cgroups: BTreeMap::new(),
            inode: 0,
            inodes: BTreeMap::new(),
            random,
            limits,
            standing,
        };
        done(scenario.core.start());
        let descriptors = scenario.descriptors();
        scenario.core.lifecycle.node_sampled(descriptors);
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
        self.core.edge.numbers.clear();
        self.core.edge.steps.clear();
        let registered =
            self.core.targets.keys_where(|target| target.job.is_some() && target.found_at.is_none());
        for key in registered.into_iter().flatten() {
            assert!(done(self.core.unregister(key)));
        }
        self.walk();
        assert!(done(self.core.reset(ROOT, &None, None)).is_ok());
        self.check();
        assert_eq!(self.core.targets.job_count(), 0);
        assert_eq!(
            self.core.edge.ended().len(),
            self.core.edge.handles.len(),
            "every tracked job has its final sample"
        );
        let node = self.core.targets.get(&None).unwrap();
        assert!(node.plan.leases.is_empty());
        self.core.edge.check_closed(node.sources.open().len());
        self.pass(6 * SECOND_NS);
        self.core.lifecycle.is_idle(&self.core.targets, self.core.edge.now);
    }

    fn random_duration_ns(&mut self) -> u64 {
        *self.random.choose(&[1_000, SECOND_NS / 100, SECOND_NS, 20 * SECOND_NS, 70 * SECOND_NS])
    }

    fn pass(&mut self, duration_ns: u64) {
        self.core.edge.now.monotonic_ns += duration_ns;
        self.core.edge.now.realtime_us += i64::try_from(duration_ns / 1_000).unwrap();
        if Admission::next_expiry_ns(&self.core.targets)
            .is_some_and(|at_ns| at_ns <= self.core.edge.now.monotonic_ns)
        {
            done(self.core.expire());
        }
        if self.random.percent(50) {
            self.core.edge.give_back();
        }
        let is_searching = self.core.lifecycle.unnumbered_jobs(self.core.edge.now).next().is_some();
        if is_searching && self.random.percent(70) {
            self.walk();
        }
    }

    fn descriptors(&self) -> Descriptors {
        Descriptors { limit: self.descriptor_limit, open: 20 + 32 * self.core.targets.job_count() }
    }

    fn name(&mut self) -> Identifier {
        job_name(&mut self.random)
    }

    fn tracked_job(&mut self) -> Option<Identifier> {
        let jobs: Vec<Identifier> = self.core.targets.iter().filter_map(|(key, _)| key.clone()).collect();
        (!jobs.is_empty()).then(|| self.random.choose(&jobs).clone())
    }

    fn measure_cpu(&mut self) {
        if self.is_governed {
            let used_percent = f64::from(u32::try_from(self.random.below(60)).unwrap());
            done(self.core.govern(used_percent));
        }
    }

    fn change(&mut self) {
        match self.random.below(4) {
            0 => {
                let mut rules = self.standing.baseline.rules().to_vec();
                rules[0].sampling = self.random.choose(&SAMPLINGS).parse().ok();
                self.standing.baseline = Layer::new(rules);
                self.standing.steps = step_layer(self.random.percent(70));
                let (limits, standing) = (self.limits.clone(), self.standing.clone());
                done(self.core.reload(None, limits, standing));
            }
            1 => {
                let job = self.tracked_job();
                done(self.core.files_changed(&job));
            }
            2 => self.state_intervals(),
            _ => done(self.core.owners_wanted()),
        }
    }

    /// Changes the refresh interval of the hardware behind a source, in sources that are open as well.
    fn state_intervals(&mut self) {
        let word = *self.random.choose(&["cpu", "memory", "node"]);
        let interval: Option<Period> =
            self.random.percent(70).then(|| self.random.choose(&PERIODS).parse().unwrap());
        match interval {
            Some(interval) => drop(self.core.edge.refresh_intervals.insert(word.to_owned(), interval)),
            None => drop(self.core.edge.refresh_intervals.remove(word)),
        }
        for (_, target) in self.core.targets.iter() {
            let sources =
                target.sources.open().iter().filter(|(name, _)| name.split('/').next_back() == Some(word));
            sources.for_each(|(_, source)| source.stated_interval.set(interval));
        }
        done(self.core.take_intervals());
    }

    fn check(&self) {
        let mut handles = BTreeSet::new();
        for (key, target) in self.core.targets.iter() {
            self.core.edge.check(target);
            assert!(target.handle().is_none_or(|handle| handles.insert(handle)), "a handle of two jobs");
            assert!(target.plan.stretch == 0 || !target.plan.leases.is_empty(), "a stretch without leases");
            for lease in &target.plan.leases {
                assert!(
                    lease.ends_ns > self.core.edge.now.monotonic_ns,
                    "a lease of {key:?} has outlived its time"
                );
                let principal = lease.principal;
                assert!(
                    !principal.administrator || principal == ROOT,
                    "{key:?}: {principal:?} is an ordinary user"
                );
            }
            for (metric, in_force) in target.plan_in_force() {
                let interval = target.sources.sampled()[&metric].iter().map(|(_, interval)| *interval).min();
                let interval = interval.flatten().unwrap_or(Period::MIN);
                assert!(
                    in_force.sampling.period >= interval,
                    "{metric} of {key:?} is faster than its hardware"
                );
                if let Some(baseline) = target.plan.baseline.sampling(target.plan.machine, &metric) {
                    let longest = baseline.period.max(interval);
                    assert!(
                        in_force.sampling.period <= longest,
                        "{metric} of {key:?} is slower than its baseline"
                    );
                    // Windows are whole multiples of the period.
                    let rows_us = baseline.row_period().max(interval).as_micros() + longest.as_micros();
                    assert!(in_force.sampling.row_period().as_micros() <= rows_us, "rare rows: {in_force:?}");
                }
                assert_eq!(in_force.requested.is_some(), in_force.reason().is_some(), "{in_force:?}");
            }
            self.check_name(key, target);
            assert_eq!(target.plan.baseline, self.standing.baseline, "{key:?} has the baseline in force");
            self.check_steps(key, target);
        }
    }
}

fn step_layer(has_metric: bool) -> Layer {
    let rule = Rule { selector: STEP_METRIC.parse().unwrap(), sampling: "10s".parse().ok() };
    Layer::new(has_metric.then_some(rule).into_iter().collect())
}
