//! `polymeter plan`, `set` and `reset`: how closely a job is looked at, and changing that while it runs.

use std::collections::BTreeMap;

use polymeter_agent::clock;
use polymeter_agent::control::{Answer, Lease, PlanLine, Predicted, Subject, Verb};

use super::{Reach, json, something_else};
use crate::failure::Failure;
use crate::report::units;
use crate::terminal;

/// Which job.
#[derive(Debug, clap::Args)]
pub(crate) struct Job {
    /// The job; without it that of SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The node's own metrics, not a job's.
    #[arg(long, conflicts_with = "job")]
    node: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArguments {
    /// Which metrics, at which period: 'cpu.*=10ms' perf.page_faults=1ms.
    #[arg(required = true, value_name = "SELECTOR=PERIOD")]
    wishes: Vec<String>,

    /// For how long; without it, for as long as is allowed.
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<String>,

    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    reach: Reach,
}

impl Job {
    /// The job that is meant; none for the node.
    fn id(&self) -> Result<Option<String>, Failure> {
        if self.node {
            return Ok(None);
        }
        let told = ["SLURM_JOB_ID", "OAR_JOB_ID"].iter().find_map(|name| std::env::var(name).ok());
        let job = self.job.clone().or(told);
        job.map(Some).ok_or_else(|| {
            Failure::Usage("which job? --job ID says it; `polymeter jobs` lists them".to_owned())
        })
    }
}

pub(crate) fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    let verb = Verb::Plan(Subject { job: arguments.job.id()? });
    let Some(answer) = arguments.reach.ask(&verb, !arguments.job.node)? else { return Ok(()) };
    let Answer::Plan { plan, .. } = &answer else { return Err(refused(answer)) };
    terminal::print(&if arguments.reach.json { json(&answer) } else { plan_text(plan) });
    Ok(())
}

pub(crate) fn set(arguments: &SetArguments) -> Result<(), Failure> {
    let mut plan = BTreeMap::new();
    for wish in &arguments.wishes {
        let (selector, period) = wish
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("`{wish}` names no period: write {wish}=10ms")))?;
        plan.insert(selector.to_owned(), period.to_owned());
    }
    let lease = Lease { job: arguments.job.id()?, plan, duration: arguments.duration.clone() };
    let verb = Verb::Set(lease);
    let Some(answer) = arguments.reach.ask(&verb, !arguments.job.node)? else { return Ok(()) };
    let Answer::Granted { metrics, unavailable, cost, until_us } = &answer else {
        return Err(refused(answer));
    };
    if arguments.reach.json {
        terminal::print(&json(&answer));
        return Ok(());
    }
    let rows: Vec<_> = metrics.iter().map(|(metric, period)| vec![metric.clone(), period.clone()]).collect();
    terminal::print(&terminal::table(&rows));
    terminal::print(&format!("{}; ends in {}\n", cost_text(cost), left(*until_us)));
    // Of a glob nobody expects all; who named one metric wants to know.
    let named = |metric: &str| arguments.wishes.iter().any(|wish| wish.split('=').next() == Some(metric));
    for (metric, reason) in unavailable.iter().filter(|(metric, _)| named(metric)) {
        terminal::complain(&format!("polymeter: {metric} is not available: {reason}\n"));
    }
    Ok(())
}

pub(crate) fn reset(arguments: &ResetArguments) -> Result<(), Failure> {
    let verb = Verb::Reset(Subject { job: arguments.job.id()? });
    let Some(answer) = arguments.reach.ask(&verb, !arguments.job.node)? else { return Ok(()) };
    let Answer::Reset { ended } = &answer else { return Err(refused(answer)) };
    terminal::print(&if arguments.reach.json { json(&answer) } else { format!("{ended} leases ended\n") });
    Ok(())
}

fn refused(answer: Answer) -> Failure {
    match answer {
        Answer::Refused(refusal) => Failure::Refused(refusal.message),
        Answer::Status(_)
        | Answer::Plan { .. }
        | Answer::Metrics { .. }
        | Answer::Granted { .. }
        | Answer::Reset { .. }
        | Answer::Registered { .. }
        | Answer::Started { .. }
        | Answer::Done {} => something_else(),
    }
}

fn cost_text(cost: &Predicted) -> String {
    let samples = units::number(cost.samples_per_s);
    format!(
        "all sampling of the job costs {:.2} % of a CPU, {samples} samples/s, {:.0} B/s",
        cost.cpu_percent, cost.bytes_per_s
    )
}

/// How long until a time, in whole seconds.
pub(super) fn left(until_us: i64) -> String {
    let seconds = until_us.saturating_sub(clock::realtime_us()).max(0) / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

pub(super) fn plan_text(plan: &[PlanLine]) -> String {
    let head = ["METRIC", "PERIOD", "BECAUSE OF", "ENDS IN"].map(str::to_owned).to_vec();
    let row = |line: &PlanLine| {
        let by = line.by.as_ref().map_or_else(String::new, |by| format!(" of {by}"));
        let ends = line.until_us.map_or_else(|| "-".to_owned(), left);
        vec![line.metric.clone(), line.period.clone(), format!("{}{by}", line.cause), ends]
    };
    terminal::table(&std::iter::once(head).chain(plan.iter().map(row)).collect::<Vec<_>>())
}
