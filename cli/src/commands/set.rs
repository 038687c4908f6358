//! `polymeter plan`, `set` and `reset`: how closely a job is looked at, and changing that while it runs.

use std::collections::BTreeMap;

use polymeter_agent::clock;
use polymeter_agent::control::{Answer, Lease, PlanLine, Predicted, RefusedLine, Subject, Verb};

use super::job::Job;
use super::{Reach, json, refused};
use crate::failure::Failure;
use crate::report::units;
use crate::terminal;

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

impl PlanArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.reach.json
    }
}

impl SetArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.reach.json
    }
}

impl ResetArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.reach.json
    }
}

pub(crate) fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    let verb = Verb::Plan(Subject { job: arguments.job.id(arguments.reach.socket())? });
    let Some(answer) = arguments.reach.ask(&verb, arguments.job.is_one())? else { return Ok(()) };
    let Answer::Plan { plan, refused: requests, .. } = &answer else { return Err(refused(answer)) };
    if arguments.is_json() {
        terminal::print_json(&json(&answer))
    } else {
        terminal::print(&plan_text(plan, requests))
    }
}

pub(crate) fn set(arguments: &SetArguments) -> Result<(), Failure> {
    let mut plan = BTreeMap::new();
    for wish in &arguments.wishes {
        let (selector, period) = wish
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("`{wish}` names no period: write {wish}=10ms")))?;
        plan.insert(selector.to_owned(), period.to_owned());
    }
    let lease = Lease {
        job: arguments.job.id(arguments.reach.socket())?,
        plan,
        duration: arguments.duration.clone(),
    };
    let verb = Verb::Set(lease);
    let Some(answer) = arguments.reach.ask(&verb, arguments.job.is_one())? else { return Ok(()) };
    let Answer::Granted { metrics, unavailable, cost, until_us } = &answer else {
        return Err(refused(answer));
    };
    if arguments.reach.json {
        return terminal::print_json(&json(&answer));
    }
    let rows: Vec<_> = metrics.iter().map(|(metric, period)| vec![metric.clone(), period.clone()]).collect();
    terminal::print(&terminal::table(&rows))?;
    terminal::print(&format!("{}; ends in {}\n", cost_text(cost), left(*until_us)))?;
    // Of a glob nobody expects all; who named one metric wants to know.
    let named = |metric: &str| arguments.wishes.iter().any(|wish| wish.split('=').next() == Some(metric));
    for (metric, reason) in unavailable.iter().filter(|(metric, _)| named(metric)) {
        terminal::complain(&format!("polymeter: {metric} is not available: {reason}\n"));
    }
    Ok(())
}

pub(crate) fn reset(arguments: &ResetArguments) -> Result<(), Failure> {
    let verb = Verb::Reset(Subject { job: arguments.job.id(arguments.reach.socket())? });
    let Some(answer) = arguments.reach.ask(&verb, arguments.job.is_one())? else { return Ok(()) };
    let Answer::Reset { ended } = &answer else { return Err(refused(answer)) };
    if arguments.is_json() {
        terminal::print_json(&json(&answer))
    } else {
        terminal::print(&format!("{ended} leases ended\n"))
    }
}

fn cost_text(cost: &Predicted) -> String {
    let samples = units::number(cost.samples_per_s);
    format!(
        "all sampling of the job costs {:.2} % of a CPU, {samples} samples/s, {:.0} B/s",
        cost.cpu_percent, cost.bytes_per_s
    )
}

/// How long until a time, as people say it.
pub(super) fn left(until_us: i64) -> String {
    left_between(clock::realtime_us(), until_us)
}

/// About how long from one time to another, both in microseconds since the epoch.
pub(crate) fn left_between(now_us: i64, until_us: i64) -> String {
    let rounded = |value: i64, unit: i64| value.saturating_add(unit / 2) / unit;
    match rounded(until_us.saturating_sub(now_us).max(0), 1_000_000) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", rounded(seconds, 60)),
        seconds => format!("{} h", rounded(seconds, 3600)),
    }
}

/// The plan as a table, and below it what was requested at submission and is not granted.
pub(super) fn plan_text(plan: &[PlanLine], refused: &[RefusedLine]) -> String {
    let head = ["METRIC", "PERIOD", "BECAUSE OF", "ENDS IN"].map(str::to_owned).to_vec();
    let row = |line: &PlanLine| {
        let by = line.by.as_ref().map_or_else(String::new, |by| format!(" of {by}"));
        let ends = line.until_us.map_or_else(|| "-".to_owned(), left);
        vec![line.metric.clone(), line.period.clone(), format!("{}{by}", line.cause), ends]
    };
    let mut text = terminal::table(&std::iter::once(head).chain(plan.iter().map(row)).collect::<Vec<_>>());
    for RefusedLine { request, period, reason } in refused {
        let period = period.as_ref().map_or_else(String::new, |period| format!("={period}"));
        text.push_str(&format!("request {request}{period} refused: {reason}\n"));
    }
    text
}
