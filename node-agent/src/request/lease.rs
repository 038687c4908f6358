//! Requests for leases, and their results.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::derived;
use polymeter_proto::control::UnavailableGroup;
use polymeter_proto::name::Selector;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use super::access::AccessError;
use crate::plan::is_of_devices;
use crate::principal::Principal;

/// Release of the hardware events of a job, or of the node with all its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    pub principal: Principal,
    pub job_id: Option<Identifier>,
    /// Time from which the duration counts, in microseconds since the epoch; none for now.
    pub since_us: Option<i64>,
    /// None for the longest that is allowed.
    pub duration_us: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    pub principal: Principal,
    /// None for the node's own metrics.
    pub job_id: Option<Identifier>,
    /// Steps or tasks of the job; none for the job as a whole, or the node.
    pub level: Option<StepLevel>,
    /// True for samples that go to the ring of the job.
    pub is_ring: bool,
    pub metrics: Vec<(Selector, Sampling)>,
    /// Time from which the duration counts, in microseconds since the epoch; none for now.
    pub since_us: Option<i64>,
    /// None for the longest that is allowed.
    pub duration_us: Option<u64>,
    /// Job for which the collector asks for metrics of devices of this node; none for a request of a user.
    pub demanded_by: Option<Identifier>,
}

/// Demand of a job on the devices that this agent polls, as the collector states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemandSpec {
    /// Owner of the job.
    pub principal: Principal,
    pub job_id: Identifier,
    /// Nodes of the job.
    pub nodes: BTreeSet<String>,
    /// Empty to end what the job has asked for.
    pub metrics: Vec<(Selector, Sampling)>,
    pub duration_us: Option<u64>,
}

impl LeaseRequest {
    /// Returns the part of a request for a whole job that is about the devices that serve this node.
    pub(crate) fn of_devices(&self) -> impl Iterator<Item = &(Selector, Sampling)> {
        let is_of_job = self.job_id.is_some() && self.level.is_none() && !self.is_ring;
        self.metrics.iter().filter(move |(selector, _)| is_of_job && is_of_devices(selector))
    }

    /// Level, and whether it is the ring.
    pub(crate) const fn part(&self) -> (Option<StepLevel>, bool) {
        (self.level, self.is_ring)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseGrant {
    /// Effective sampling of each selected metric.
    pub metrics: Vec<(String, Sampling)>,
    /// Reasons why metrics are sampled less often than requested, by metric.
    pub reasons: BTreeMap<String, String>,
    /// Selected metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    pub cost: Cost,
    /// End of the lease, in microseconds since the epoch.
    pub until_us: i64,
    /// Requested level, and how many of its steps or tasks are sampled now.
    pub step_targets: Option<(StepLevel, usize)>,
}

/// Cost of sampling, predicted from the measured cost of a read of each source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    pub cpu_percent: f64,
    pub samples_per_s: f64,
    /// Size on the wire.
    pub bytes_per_s: f64,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{}", nothing_chosen(selectors, *of_job, *level))]
    NothingChosen {
        selectors: Vec<String>,
        /// True for metrics of a job, false for the node's.
        of_job: bool,
        /// Steps or tasks; none for the job as a whole, or the node.
        level: Option<StepLevel>,
    },
    /// A job without cgroups has no known steps.
    #[error("the job has no cgroups, so its {}s are unknown; change the periods of the job as a whole", .0.as_str())]
    NoSteps(StepLevel),
    /// None of the selected metrics can be sampled here: at least one metric, each with the reason.
    #[error("none of these metrics is available here: {}", reasons_text(.0))]
    Unavailable(Vec<(String, String)>),
    /// Period below the shortest one that is allowed for a metric.
    #[error("period {requested} refused: the shortest period allowed for {metric} is {shortest}")]
    TooShort {
        metric: String,
        requested: Period,
        /// Shortest period that would be granted for all selected metrics.
        shortest: Period,
    },
    #[error("duration refused: the longest lease allowed is {longest}")]
    TooLong { longest: Period },
    #[error(
        "the lease had expired when it arrived; if the request was sent just now, compare the clocks of this node and the collector"
    )]
    Expired,
    #[error("rings by lease are switched off on this node; ask an administrator (`ring_leases` in [limits])")]
    NoRings,
    #[error("the job has reached the limit of {0} leases; end some with `polymeter reset`")]
    TooMany(usize),
    #[error(
        "the agent of these devices samples {0} metrics for jobs already, the most that it does; name fewer, or try again when other jobs have ended"
    )]
    TooManyDemands(usize),
    #[error(
        "no device that serves a node of the job has a metric {}; `polymeter plan` says what is sampled, and an administrator can map outlets and ports to nodes (`nodes` of [[device]])",
        .0.join(", ")
    )]
    NotServed(Vec<String>),
    #[error(
        "leases changed periods of this job too often: at most {per_minute} changes of a metric's period a minute in the \
         long run; try again in {wait_s} s"
    )]
    TooFast {
        /// Allowed changes a minute in the long run.
        per_minute: u32,
        wait_s: u64,
    },
    #[error("{}", over_budget(limit, *cost, *instead))]
    OverBudget {
        /// `samples_per_second`, `job_cpu_percent` or `node_cpu_percent`.
        limit: &'static str,
        cost: Cost,
        /// Period that would be granted instead for all metrics that were requested at a shorter one.
        instead: Option<Period>,
    },
}

/// Note at what a job asks of devices.
pub(crate) const OF_DEVICES: &str = "of the devices that serve this node, by the agents that poll them";

const OF_STEPS: &str =
    "available are metrics from files of cgroups, and perf events that are named (perf.instructions, perf.*)";

fn nothing_chosen(selectors: &[String], of_job: bool, level: Option<StepLevel>) -> String {
    let (owner, advice) = match (level, of_job) {
        (Some(StepLevel::Step), _) => ("steps", OF_STEPS),
        (Some(StepLevel::Task), _) => ("tasks", OF_STEPS),
        (None, true) => ("a job", "for metrics of the node, use --node (administrators only)"),
        (None, false) => ("the node", "for metrics of a job, name the job"),
    };
    let derived = selectors.iter().find(|selector| derived::find(selector).is_some());
    let advice = match derived.filter(|_| level.is_none()) {
        Some(name) => {
            format!("on this machine nothing is sampled for {name}, which readers compute; {advice}")
        }
        None => advice.to_owned(),
    };
    format!("no metric of {owner} matches {}; {advice}", selectors.join(", "))
}

fn reasons_text(missing: &[(String, String)]) -> String {
    let groups = UnavailableGroup::by_reason(missing);
    groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn over_budget(limit: &str, cost: Cost, instead: Option<Period>) -> String {
    let advice = match instead {
        Some(period) => format!("{period} would be granted"),
        None => "no period would be granted".to_owned(),
    };
    let Cost { cpu_percent, samples_per_s, .. } = cost;
    format!(
        "predicted cost above `{limit}`: {cpu_percent:.2} % of a CPU, {samples_per_s:.0} samples/s; {advice}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_metrics_by_reason() {
        let missing = |metric: String, reason: &str| (metric, reason.to_owned());
        let mut all: Vec<_> =
            (0..70).map(|number| missing(format!("perf.m{number}"), "no counter")).collect();
        all.push(missing("cpu.usage".to_owned(), "no cgroup"));
        assert_eq!(
            LeaseError::Unavailable(all).to_string(),
            "none of these metrics is available here: perf.m0, perf.m1, perf.m2 and 67 more: no counter; cpu.usage: no cgroup"
        );
    }

    #[test]
    fn reports_selectors_that_match_nothing() {
        let selectors = vec!["node.*".to_owned()];
        let of_job =
            LeaseError::NothingChosen { selectors: selectors.clone(), of_job: true, level: None }.to_string();
        assert!(of_job.contains("no metric of a job matches node.*"), "{of_job}");
        let of_node = LeaseError::NothingChosen { selectors: selectors.clone(), of_job: false, level: None }
            .to_string();
        assert!(of_node.contains("no metric of the node matches node.*"), "{of_node}");
        let level = Some(StepLevel::Task);
        let of_tasks = LeaseError::NothingChosen { selectors, of_job: true, level }.to_string();
        assert!(of_tasks.contains("no metric of tasks matches node.*"), "{of_tasks}");
    }
}
