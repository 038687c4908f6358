//! The price of plans: predicted from the cost of reads, and compared with the budgets.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::{STACKS_DWARF_KIND, STACKS_KIND, STACKS_WAIT_KIND};
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::JobHandle;
use polymeter_proto::step_level::StepLevel;

use super::calibration::Calibration;
use super::cost::{ReadCost, STACK_DWARF_NS, STACK_NS, Sum, micros};
use super::governor::Governor;
use crate::config::Limits;
use crate::plan::Plan;
use crate::request::{Availability, Cost};
use crate::targets::TrackedTarget;

/// Recent mean of each source, in nanoseconds, by job and source.
pub(crate) type ReadTimes = BTreeMap<Option<JobHandle>, BTreeMap<String, f64>>;

/// Wanted samplings of the metrics of a source.
#[derive(Debug, Default)]
struct Wanted {
    /// Of samples for the collector.
    sent: Vec<Sampling>,
    /// Of samples for the ring.
    held: Vec<Sampling>,
}

impl Wanted {
    fn shortest(&self) -> Option<Period> {
        shortest(self.sent.iter().chain(&self.held).copied())
    }
}

#[derive(Debug)]
pub(super) struct Pricing {
    pub(super) limits: Limits,
    pub(super) governor: Governor,
    pub(super) calibration: Calibration,
    /// A lease was asked for since the last calibration.
    pub(super) is_asked: bool,
    cpus: usize,
}

impl Pricing {
    pub(super) fn new(limits: Limits, cpus: usize) -> Self {
        Self {
            limits,
            governor: Governor::default(),
            calibration: Calibration::default(),
            is_asked: false,
            cpus,
        }
    }

    pub(super) fn cost(&self, target: &TrackedTarget, plan: &Plan, read_times: &ReadTimes) -> Cost {
        self.sum(target, plan, read_times).cost(self.governor.slowness())
    }

    /// Parts of the cost. The time of a read comes from recent reads if the source is read at that period
    /// already, else from the trial; perf events that are open already are not tried again.
    pub(super) fn sum(&self, target: &TrackedTarget, plan: &Plan, read_times: &ReadTimes) -> Sum {
        let mut samplings: BTreeMap<&str, Wanted> = BTreeMap::new();
        let mut warm_ns: BTreeMap<&str, f64> = BTreeMap::new();
        let is_job = target.job.is_some();
        for (name, source) in target.sources.open() {
            let wanted = samplings.entry(name).or_default();
            for slot in source.slots.iter() {
                let metric = slot.definition.name();
                wanted.sent.extend(source.sampling(plan, &metric));
                wanted.held.extend(source.ring_sampling(plan, &metric).filter(|_| is_job));
            }
        }
        for (name, availability) in target.findings.found() {
            let Availability::From { source, read_ns, refresh_interval } = availability else { continue };
            let warm = warm_ns.entry(source).or_default();
            *warm = warm.max(*read_ns);
            if target.samples(name) {
                continue;
            }
            let not_shorter =
                |sampling: Sampling| sampling.not_shorter(refresh_interval.unwrap_or(sampling.period));
            let (sent, held) = (plan.sampling(name), plan.ring_sampling(name).filter(|_| is_job));
            if sent.is_some() || held.is_some() {
                let wanted = samplings.entry(source).or_default();
                wanted.sent.extend(sent.map(|(sampling, _)| not_shorter(sampling)));
                wanted.held.extend(held.map(not_shorter));
            }
        }
        let nothing = BTreeMap::new();
        let recent_ns = read_times.get(&target.handle()).unwrap_or(&nothing);
        let mut sum = Sum::on(self.calibration.slowness());
        for (source, wanted) in samplings {
            let current = target.sources.open().get(source).and_then(|open| {
                let names = open.slots.iter().map(|slot| slot.definition.name());
                shortest(names.flat_map(|name| {
                    let held = open.ring_sampling(&target.plan, &name).filter(|_| is_job);
                    open.sampling(&target.plan, &name).into_iter().chain(held)
                }))
            });
            let stack_ns = match source {
                STACKS_KIND => Some(STACK_NS),
                STACKS_DWARF_KIND | STACKS_WAIT_KIND => Some(STACK_DWARF_NS),
                _ => None,
            };
            if let Some(stack_ns) = stack_ns {
                let Some(period) = shortest(wanted.sent.into_iter()) else { continue };
                // Each read of the last seconds took what its samples did.
                let measured = recent_ns.get(source).zip(current);
                let measured_ns =
                    measured.map(|(recent, current)| recent * (micros(current) / micros(period)));
                sum.add_stacks(period, self.cpus, stack_ns, measured_ns);
                continue;
            }
            let read = match (recent_ns.get(source), warm_ns.get(source)) {
                (Some(recent), _) if current == wanted.shortest() => ReadCost::Measured(*recent),
                (_, Some(warm)) => ReadCost::Warm(*warm),
                (Some(recent), None) => ReadCost::Measured(*recent),
                (None, None) => ReadCost::Unknown,
            };
            sum.add(&wanted.sent, &wanted.held, read);
        }
        for level in StepLevel::ALL {
            add_steps(&mut sum, target, plan, level, recent_ns);
        }
        sum
    }

    pub(super) fn exceeded(&self, cost: Cost, others_percent: f64) -> Option<&'static str> {
        let limits = &self.limits;
        if cost.samples_per_s > budget(limits.samples_per_second) {
            Some("samples_per_second")
        } else if cost.cpu_percent > budget(limits.job_cpu_percent) {
            Some("job_cpu_percent")
        } else if cost.cpu_percent + others_percent > budget(limits.node_cpu_percent) {
            Some("node_cpu_percent")
        } else {
            None
        }
    }
}

/// Adds the sources that leases of steps or tasks are about to open in each of them; at least one is assumed,
/// since steps may begin later. A read takes as long as one of the same file of the whole job.
fn add_steps(
    sum: &mut Sum,
    target: &TrackedTarget,
    plan: &Plan,
    level: StepLevel,
    recent_ns: &BTreeMap<String, f64>,
) {
    if !plan.leases.iter().any(|lease| lease.level == Some(level)) {
        return;
    }
    let sampled = target.sources.sampled_at(Some(level));
    let whole = target.sources.sampled();
    let mut sources: BTreeMap<&str, (Vec<Sampling>, Option<f64>)> = BTreeMap::new();
    for definition in plan.step_definitions(level) {
        let name = definition.name();
        let Some(sampling) = plan.step_sampling(level, &name).filter(|_| !sampled.contains_key(&name)) else {
            continue;
        };
        let (source, warm_ns) = match (target.findings.found().get(&name), whole.get_key_value(&name)) {
            (Some(Availability::From { source, read_ns, .. }), _) => (source.as_str(), Some(*read_ns)),
            (_, Some((_, of_job))) => (of_job.first().map_or("", |(source, _)| source), None),
            (
                Some(Availability::NotNow | Availability::No(_) | Availability::Computed { .. }) | None,
                None,
            ) => continue,
        };
        let (samplings, known_ns) = sources.entry(source).or_default();
        samplings.push(sampling);
        *known_ns = warm_ns.map(|warm_ns| known_ns.unwrap_or_default().max(warm_ns)).or(*known_ns);
    }
    let count = target.findings.step_counts().at(level).max(target.sources.open_steps(level)).max(1);
    for (source, (samplings, warm_ns)) in sources {
        let read = match (warm_ns, recent_ns.get(source)) {
            (Some(warm_ns), _) => ReadCost::Warm(warm_ns),
            (None, Some(recent)) => ReadCost::Measured(*recent),
            (None, None) => ReadCost::Unknown,
        };
        (0..count).for_each(|_| sum.add(&samplings, &[], read));
    }
}

fn shortest(samplings: impl Iterator<Item = Sampling>) -> Option<Period> {
    samplings.map(|sampling| sampling.period).min()
}

/// Converts a limit of the configuration, in percent of a CPU or samples per second, to a number for
/// comparison.
pub(super) fn budget(limit: u64) -> f64 {
    f64::from(u32::try_from(limit).unwrap_or(u32::MAX))
}
