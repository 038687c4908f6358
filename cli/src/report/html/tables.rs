//! The tables of the page. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use polymeter_analysis::charts::Charts;
use polymeter_analysis::model::{Report, Resources};
use polymeter_analysis::phases;
use polymeter_proto::units;

use super::element::{Cell, Table};
use super::figures;
use crate::report::summary::{self, Imbalance};

/// The maximum number of rows of a table. The rows at both ends of a longer one are shown.
const ROWS_MAX: usize = 1000;

/// Writes the tables that have rows.
pub(super) fn sections(page: &mut String, report: &Report, charts: &Charts) {
    let usage = [phase_totals(report), steps(report), nodes(report), tasks(report)];
    section(page, "tables", "Parts of the job", usage);
    let sampling = [figures::table(charts), periods(report), plan(report), refused(report), losses(report)];
    section(page, "sampling", "Quantities and their sampling", sampling);
}

fn section<'a>(page: &mut String, id: &str, title: &str, tables: impl IntoIterator<Item = Table<'a>>) {
    let tables: Vec<_> = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
    if tables.is_empty() {
        return;
    }
    page.push_str(&format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n"));
    for mut table in tables {
        shorten(&mut table);
        table.write(page);
    }
    page.push_str("</section>\n");
}

/// Keeps the rows at both ends of a long table.
fn shorten(table: &mut Table<'_>) {
    let rows = table.rows.len();
    if rows > ROWS_MAX {
        table.rows.drain(ROWS_MAX / 2..rows - ROWS_MAX / 2);
        table.remarks.push(format!(
            "{} rows in the middle are not shown; polymeter report --all shows them.",
            rows - ROWS_MAX
        ));
    }
}

fn count(value: u64) -> Cell<'static> {
    Cell::Number(value.to_string())
}

fn seconds(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::figure(value, units::elapsed))
}

fn optional(value: Option<&str>) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(value.unwrap_or("-")))
}

fn joules(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::joules(value))
}

fn bytes(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::bytes(value))
}

fn cores(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::cores(value))
}

/// The columns of used resources.
const USED: [(&str, bool); 8] = [
    ("CPU time", true),
    ("cores used", true),
    ("max cores", true),
    ("memory", true),
    ("cache", true),
    ("limit", true),
    ("read", true),
    ("written", true),
];

fn used_cells(used: &Resources, wall_s: f64) -> [Cell<'static>; 8] {
    [
        seconds(used.cpu_s),
        cores(used.cpu_s.filter(|_| wall_s > 0.0).map(|cpu_s| cpu_s / wall_s)),
        cores(used.cores_max),
        bytes(used.memory_bytes),
        bytes(used.cache_bytes),
        bytes(used.memory_limit_bytes),
        bytes(used.read_bytes),
        bytes(used.written_bytes),
    ]
}

/// Describes the imbalance of CPU time between parts: the largest over the mean.
fn imbalance<'a>(kind: &str, used: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<String> {
    let Imbalance { ratio, most: (most, most_time), least: (least, least_time) } = Imbalance::of(used)?;
    Some(format!(
        "Imbalance of CPU time between {kind}s, largest / mean: {ratio:.2}. Most: {most}, {most_time}; \
         least: {least}, {least_time}."
    ))
}

fn nodes(report: &Report) -> Table<'_> {
    let has_energy = report.by_node.iter().any(|node| node.energy_joules.is_some());
    let mut head = with_used(&[("node", false), ("CPUs", true), ("samples", true)]);
    head.extend(has_energy.then_some(("energy", true)));
    let row = |node: &'_ polymeter_analysis::model::NodeReport| {
        let cpus = Cell::Number(summary::figure(node.cpus, |cpus| cpus.to_string()));
        let mut cells = vec![cpus, count(node.samples)];
        cells.extend(used_cells(&node.used, report.wall_s));
        cells.extend(has_energy.then(|| joules(node.energy_joules)));
        cells
    };
    let rows = report.by_node.iter().map(|node| named(&node.node, row(node))).collect();
    let cpu = report.by_node.iter().map(|node| (node.node.as_str(), node.used.cpu_s));
    let mut remarks: Vec<String> = imbalance("node", cpu).into_iter().collect();
    if let Some(kind) = report.by_node.iter().find_map(|node| node.used.memory_kind) {
        remarks.push(format!("Memory: {}; its peak on the node.", kind.text()));
    }
    let lost = report.by_node.iter().filter(|node| node.is_lost).map(|node| node.node.as_str());
    let lost: Vec<&str> = lost.collect();
    if !lost.is_empty() {
        remarks.push(format!("Lost contact with the agent on {}.", lost.join(", ")));
    }
    Table { caption: "Nodes", head, rows, remarks }
}

fn named<'a>(name: &'a str, cells: Vec<Cell<'a>>) -> Vec<Cell<'a>> {
    std::iter::once(Cell::Name(name)).chain(cells).collect()
}

/// Puts columns in front of those of used resources.
fn with_used(first: &[(&'static str, bool)]) -> Vec<(&'static str, bool)> {
    first.iter().chain(&USED).copied().collect()
}

fn steps(report: &Report) -> Table<'_> {
    let head = with_used(&[("step", false), ("nodes", true), ("tasks", true), ("time", true)]);
    let rows = report.steps.iter().map(|step| {
        let time_s = step.duration_s();
        let mut cells = vec![count(step.nodes), count(step.tasks), seconds(Some(time_s))];
        cells.extend(used_cells(&step.used, time_s));
        named(&step.step, cells)
    });
    let remarks =
        vec!["Peaks are summed over the nodes. Cores used: CPU time of the step / its time.".to_owned()];
    Table { caption: "Steps", head, rows: rows.collect(), remarks }
}

fn tasks(report: &Report) -> Table<'_> {
    let head = with_used(&[("task", false), ("step", false), ("node", false)]);
    let mut remarks = Vec::new();
    for tasks in report.tasks.chunk_by(|one, other| one.step == other.step).take(ROWS_MAX) {
        let cpu = tasks.iter().map(|task| (task.task.as_str(), task.used.cpu_s));
        let step = tasks.first().map_or("", |task| task.step.as_str());
        remarks.extend(imbalance("task", cpu).map(|text| format!("Step {step}: {text}")));
    }
    let durations = report.step_durations();
    let rows = report.tasks.iter().map(|task| {
        let mut cells = vec![optional(Some(&task.step)), optional(Some(&task.node))];
        cells.extend(used_cells(&task.used, durations.get(task.step.as_str()).copied().unwrap_or_default()));
        named(&task.task, cells)
    });
    Table { caption: "Tasks", head, rows: rows.collect(), remarks }
}

fn phase_totals(report: &Report) -> Table<'_> {
    let totals = phases::totals(report);
    let has_energy = totals.iter().any(|phase| phase.energy_joules.is_some());
    let mut head = vec![
        ("phase", false),
        ("times", true),
        ("duration", true),
        ("share", true),
        ("cores used", true),
        ("memory", true),
        ("written", true),
    ];
    head.extend(has_energy.then_some(("energy", true)));
    let rows = totals.into_iter().map(|phase| {
        let share = Some(phase.duration_s / report.wall_s).filter(|share| share.is_finite());
        let mut cells = vec![
            Cell::Text(Cow::Owned(phase.name)),
            count(phase.count),
            seconds(Some(phase.duration_s)),
            Cell::Number(summary::figure(share, |share| units::value("percent", 100.0 * share))),
            cores(phase.cores_mean),
            bytes(phase.memory_bytes),
            bytes(phase.written_bytes),
        ];
        cells.extend(has_energy.then(|| joules(phase.energy_joules)));
        cells
    });
    Table { caption: "Totals of the phases", head, rows: rows.collect(), remarks: Vec::new() }
}

/// The sampling of a metric on all nodes.
#[derive(Debug, Default)]
struct MetricSampling<'a> {
    series: u64,
    samples: u64,
    /// Each period with the time for which it was in force, in seconds.
    periods: Vec<(&'a str, f64)>,
}

/// The periods of each metric, with the time for which they were in force on all nodes.
fn periods(report: &Report) -> Table<'_> {
    let head = vec![("metric", false), ("series", true), ("samples", true), ("periods in force", false)];
    let mut metrics: BTreeMap<&str, MetricSampling<'_>> = BTreeMap::new();
    for series in &report.series {
        let MetricSampling { series: count, samples, periods } = metrics.entry(&series.metric).or_default();
        *count += 1;
        *samples += series.samples;
        for using in &series.periods {
            match periods.iter_mut().find(|(period, _)| *period == using.period) {
                Some((_, seconds)) => *seconds += using.seconds,
                None => periods.push((&using.period, using.seconds)),
            }
        }
    }
    let rows = metrics.into_iter().map(|(metric, MetricSampling { series, samples, periods })| {
        let text = match periods.as_slice() {
            [] => "-".to_owned(),
            [(period, _)] => (*period).to_owned(),
            several => {
                let text =
                    |(period, seconds): &(&str, f64)| format!("{period} for {}", units::elapsed(*seconds));
                several.iter().map(text).collect::<Vec<_>>().join(", ")
            }
        };
        vec![Cell::Name(metric), count(series), count(samples), Cell::Text(Cow::Owned(text))]
    });
    let remarks = vec!["The times of several periods are summed over the nodes.".to_owned()];
    Table { caption: "Periods", head, rows: rows.collect(), remarks }
}

fn plan(report: &Report) -> Table<'_> {
    let head = vec![
        ("metric", false),
        ("of", false),
        ("node", false),
        ("at", true),
        ("from", false),
        ("to", false),
        ("cause", false),
        ("user", false),
    ];
    // Sampling begins with the baseline or the submission's request, and ends with the job.
    let is_usual = |change: &polymeter_analysis::model::PlanChange| {
        let begins = change.old.is_none() && matches!(change.cause.as_str(), "baseline" | "registration");
        begins || change.cause == "job_end"
    };
    let rows = report.plan_changes.iter().filter(|change| !is_usual(change)).map(|change| {
        vec![
            Cell::Name(&change.metric),
            Cell::Text(Cow::Borrowed(level_name(change.level.as_deref()))),
            optional(Some(&change.node)),
            Cell::Time(change.at_s, change.at_us),
            optional(change.old.as_deref()),
            optional(change.new.as_deref()),
            Cell::Text(Cow::Owned(change.cause.replace('_', " "))),
            optional(change.actor.as_deref()),
        ]
    });
    Table { caption: "Changes of the sampling plan", head, rows: rows.collect(), remarks: Vec::new() }
}

/// Returns the name of the parts of a job that a change of the plan concerns.
fn level_name(level: Option<&str>) -> &'static str {
    match level {
        None => "job",
        Some("task") => "tasks",
        Some(_) => "steps",
    }
}

fn refused(report: &Report) -> Table<'_> {
    let head =
        vec![("request", false), ("node", false), ("period", false), ("user", false), ("reason", false)];
    let rows = report.refused_requests.iter().map(|request| {
        vec![
            Cell::Name(&request.request),
            optional(Some(&request.node)),
            optional(request.period.as_deref()),
            optional(request.actor.as_deref()),
            optional(Some(&request.reason)),
        ]
    });
    Table { caption: "Refused requests", head, rows: rows.collect(), remarks: Vec::new() }
}

fn losses(report: &Report) -> Table<'_> {
    let head = vec![
        ("node", false),
        ("source", false),
        ("samples", true),
        ("from", true),
        ("until", true),
        ("reason", false),
    ];
    let rows = report.losses.iter().map(|loss| {
        let samples = if loss.is_gap() { "unknown".to_owned() } else { loss.samples.to_string() };
        let reason = if loss.is_gap() { "no contact with the agent" } else { loss.reason.as_str() };
        vec![
            Cell::Name(&loss.node),
            optional(loss.source.as_deref()),
            Cell::Number(samples),
            Cell::Time(loss.first_s, loss.first_us),
            Cell::Time(loss.last_s, loss.last_us),
            optional(Some(reason)),
        ]
    });
    Table { caption: "Losses", head, rows: rows.collect(), remarks: Vec::new() }
}
