//! Tables of the page. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use polymeter_analysis::charts::Charts;
use polymeter_analysis::model::{Report, Resources};
use polymeter_proto::units;

use super::element::{self, Cell, Table};
use super::figures;
use crate::report::summary::{
    self, DISTRIBUTION_HEAD, FUNCTION_HEAD, Imbalance, REGION_HEAD, REGION_NAMES_FROM, ROOFLINE_HEAD,
    distribution_remark, distribution_row, flame_remarks, function_row, part_functions, plan_changes,
    region_remarks, region_row, roofline_remarks, roofline_row,
};

/// A longer table is cut in the middle.
const ROWS_MAX: usize = 1000;

pub(super) fn sections(page: &mut String, report: &Report, charts: &Charts) {
    let usage = vec![steps(report), nodes(report), tasks(report)];
    section(page, "tables", "Parts of the job", usage, None);
    let sampling = vec![figures::table(charts), periods(report), refused(report), losses(report)];
    section(page, "sampling", "Quantities and their sampling", sampling, Some(plan(report)));
}

pub(super) fn phases(page: &mut String, report: &Report) {
    section(page, "phases", "Phases", vec![phase_totals(report)], None);
}

pub(super) fn regions(page: &mut String, report: &Report) {
    let head = REGION_HEAD.into_iter().enumerate();
    let head = head.map(|(column, name)| (name, column < REGION_NAMES_FROM)).collect();
    let cell = |(column, text)| match column {
        ..REGION_NAMES_FROM => Cell::Number(text),
        _ => Cell::Text(Cow::Owned(text)),
    };
    let rows =
        report.regions.iter().map(|region| region_row(region).into_iter().enumerate().map(cell).collect());
    let rows = rows.collect();
    let table = Table { caption: "Regions", head, rows, remarks: region_remarks(report) };
    section(page, "regions", "Regions of the program", vec![table], None);
}

/// Writes nothing unless windows have histograms.
pub(super) fn distributions(page: &mut String, report: &Report) {
    if report.distributions.is_empty() {
        return;
    }
    let names_from = DISTRIBUTION_HEAD.len() - 1;
    let head = DISTRIBUTION_HEAD.into_iter().enumerate();
    let head = head.map(|(column, name)| (name, column < names_from)).collect();
    let mut rows = Vec::new();
    for of in &report.distributions {
        let cells = distribution_row(of).into_iter().enumerate().map(|(column, text)| match column {
            column if column < names_from => Cell::Number(text),
            _ => Cell::Text(Cow::Owned(text)),
        });
        rows.push(cells.collect());
    }
    let table = Table { caption: "Distributions", head, rows, remarks: vec![distribution_remark()] };
    section(page, "distributions", "Distributions", vec![table], None);
}

/// Writes nothing unless floating-point operations were sampled.
pub(super) fn roofline(page: &mut String, report: &Report) {
    let Some(roofline) = &report.roofline else { return };
    let head = ROOFLINE_HEAD.into_iter().enumerate().map(|(column, name)| (name, column > 0)).collect();
    let rows: Vec<Vec<Cell<'_>>> = roofline
        .parts
        .iter()
        .map(|part| {
            let mut cells = roofline_row(part).into_iter();
            let name = cells.next().map(|name| Cell::Text(Cow::Owned(name)));
            name.into_iter().chain(cells.map(Cell::Number)).collect()
        })
        .collect();
    let remarks = roofline_remarks(report);
    if rows.is_empty() {
        let paragraphs =
            remarks.iter().map(|remark| format!("<p class=\"remark\">{}</p>\n", element::text(remark)));
        let content: String = paragraphs.collect();
        page.push_str(&format!(
            "<section aria-labelledby=\"roofline\">\n<h2 id=\"roofline\">Roofline</h2>\n{content}</section>\n"
        ));
        return;
    }
    let table = Table { caption: "Roofline", head, rows, remarks };
    section(page, "roofline", "Roofline", vec![table], None);
}

/// Writes nothing unless call stacks were sampled.
pub(super) fn functions(page: &mut String, report: &Report) {
    let mut tables = Vec::new();
    for stacks in &report.call_stacks {
        let head = FUNCTION_HEAD.into_iter().enumerate().map(|(column, name)| (name, column < 4)).collect();
        let rows = stacks
            .functions
            .iter()
            .map(|function| {
                let [own, total, time, spread, function, module] = function_row(function);
                let numbers = [own, total, time, spread].map(Cell::Number);
                let names = [function, module].map(|name| Cell::Text(Cow::Owned(name)));
                numbers.into_iter().chain(names).collect()
            })
            .collect();
        tables.push(Table { caption: "Functions", head, rows, remarks: flame_remarks(stacks) });
        for (name, caption, parts) in [
            ("phase", "Functions of phases", &stacks.phases),
            ("node", "Functions of nodes", &stacks.nodes),
            ("process", "Functions of processes", &stacks.by_process),
        ] {
            let mut rows = Vec::new();
            for part in parts {
                let functions = Cell::Text(Cow::Owned(part_functions(part)));
                rows.push(vec![Cell::Name(&part.name), seconds(Some(part.time_s)), functions]);
            }
            let head = vec![(name, false), ("time", true), ("functions", false)];
            tables.push(Table { caption, head, rows, remarks: Vec::new() });
        }
    }
    section(page, "functions", "Where the time went", tables, None);
}

/// Writes the tables that have rows, and behind them one that readers unfold.
fn section(page: &mut String, id: &str, title: &str, tables: Vec<Table<'_>>, folded: Option<Table<'_>>) {
    let has_rows = |table: &Table<'_>| !table.rows.is_empty();
    let (tables, folded) = (tables.into_iter().filter(has_rows), folded.into_iter().filter(has_rows));
    let mut content = String::new();
    for mut table in tables {
        shorten(&mut table);
        table.write(&mut content);
    }
    for mut table in folded {
        let rows = table.rows.len();
        content.push_str(&format!("<details>\n<summary>{} ({rows})</summary>\n", table.caption));
        shorten(&mut table);
        table.write(&mut content);
        content.push_str("</details>\n");
    }
    if !content.is_empty() {
        page.push_str(&format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n"));
        page.push_str(&content);
        page.push_str("</section>\n");
    }
}

fn shorten(table: &mut Table<'_>) {
    let rows = table.rows.len();
    if rows > ROWS_MAX {
        table.rows.drain(ROWS_MAX / 2..rows - ROWS_MAX / 2);
        table.remarks.push(format!(
            "Not shown: {} in the middle; polymeter report --show all shows all.",
            units::counted(rows - ROWS_MAX, "row")
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

fn bytes(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::bytes(value))
}

fn cores(value: Option<f64>) -> Cell<'static> {
    Cell::Number(summary::cores(value))
}

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
        cores(used.cores(wall_s)),
        cores(used.cores_max),
        bytes(used.memory_bytes),
        bytes(used.cache_bytes),
        bytes(used.memory_limit_bytes),
        bytes(used.read_bytes),
        bytes(used.written_bytes),
    ]
}

/// Largest CPU time over the mean.
fn imbalance_text(kind: &str, imbalance: &Imbalance<'_>) -> String {
    let Imbalance { ratio, most: (most, most_time), least: (least, least_time) } = imbalance;
    format!(
        "Imbalance of CPU time between {kind}, largest / mean: {ratio:.2}. Most: {most}, {most_time}; \
         least: {least}, {least_time}."
    )
}

fn nodes(report: &Report) -> Table<'_> {
    let has_energy = report.by_node.iter().any(|node| node.energy_joules.is_some());
    let mut head = with_used(&[("node", false), ("CPUs", true), ("samples", true)]);
    head.extend(has_energy.then_some(("energy", true)));
    let mut rows = Vec::new();
    for node in &report.by_node {
        let cpus = Cell::Number(summary::figure(node.cpus, |cpus| cpus.to_string()));
        let mut row = vec![Cell::Name(&node.node), cpus, count(node.samples)];
        row.extend(used_cells(&node.used, report.wall_s));
        row.extend(has_energy.then(|| Cell::Number(summary::joules(node.energy_joules))));
        rows.push(row);
    }
    let mut remarks = Vec::new();
    remarks.extend(Imbalance::of_nodes(report).map(|imbalance| imbalance_text("nodes", &imbalance)));
    if let Some(kind) = report.memory_kind() {
        remarks.push(format!("Memory: {}; its peak on the node.", kind.text()));
    }
    let lost = report.by_node.iter().filter(|node| node.is_lost).map(|node| node.node.as_str());
    let lost: Vec<&str> = lost.collect();
    if !lost.is_empty() {
        remarks.push(format!("Lost contact with the agent on {}.", lost.join(", ")));
    }
    Table { caption: "Nodes", head, rows, remarks }
}

/// Puts columns in front of those of used resources.
fn with_used(first: &[(&'static str, bool)]) -> Vec<(&'static str, bool)> {
    first.iter().chain(&USED).copied().collect()
}

fn steps(report: &Report) -> Table<'_> {
    let head = with_used(&[("step", false), ("nodes", true), ("tasks", true), ("time", true)]);
    let rows = report.steps.iter().map(|step| {
        let time_s = step.duration_s();
        let mut row =
            vec![Cell::Name(&step.step), count(step.nodes), count(step.tasks), seconds(Some(time_s))];
        row.extend(used_cells(&step.used, time_s));
        row
    });
    let remarks =
        vec!["Peaks are summed over the nodes. Cores used: CPU time of the step / its time.".to_owned()];
    Table { caption: "Steps", head, rows: rows.collect(), remarks }
}

fn tasks(report: &Report) -> Table<'_> {
    let head = with_used(&[("task", false), ("step", false), ("node", false)]);
    let mut remarks = Vec::new();
    for (step, imbalance) in Imbalance::of_steps(report).take(ROWS_MAX) {
        let text = imbalance.map(|imbalance| imbalance_text("tasks", &imbalance));
        remarks.extend(text.map(|text| format!("Step {step}: {text}")));
    }
    let durations = report.step_durations();
    let rows = report.tasks.iter().map(|task| {
        let time_s = durations.get(task.step.as_str()).copied().unwrap_or_default();
        let mut row = vec![Cell::Name(&task.task), optional(Some(&task.step)), optional(Some(&task.node))];
        row.extend(used_cells(&task.used, time_s));
        row
    });
    Table { caption: "Tasks", head, rows: rows.collect(), remarks }
}

fn phase_totals(report: &Report) -> Table<'_> {
    let (names, totals) = summary::phase_totals(report);
    let head = names.into_iter().enumerate().map(|(column, name)| (name, column > 0)).collect();
    let mut rows = Vec::new();
    for total in totals {
        let mut cells = total.into_iter();
        let name = cells.next().map(|name| Cell::Text(Cow::Owned(name)));
        rows.push(name.into_iter().chain(cells.map(Cell::Number)).collect());
    }
    Table { caption: "Totals of the phases", head, rows, remarks: Vec::new() }
}

#[derive(Debug, Default)]
struct MetricSampling<'a> {
    series: u64,
    samples: u64,
    /// Each period with the time for which it was in force, in seconds.
    periods: Vec<(&'a str, f64)>,
}

/// Time for which each period was in force on all nodes.
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
        let periods = Cell::Text(Cow::Owned(summary::periods(&periods, usize::MAX)));
        vec![Cell::Name(metric), count(series), count(samples), periods]
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
    let groups = plan_changes::groups(report.plan_changes.iter().filter(|change| !change.is_usual()));
    let rows = groups.iter().map(|(change, metrics)| {
        vec![
            Cell::Text(Cow::Owned(plan_changes::names(metrics))),
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
        vec![
            Cell::Name(&loss.node),
            optional(loss.source.as_deref()),
            Cell::Number(samples),
            Cell::Time(loss.first_s, loss.first_us),
            Cell::Time(loss.last_s, loss.last_us),
            optional(Some(loss.cause())),
        ]
    });
    Table { caption: "Losses", head, rows: rows.collect(), remarks: Vec::new() }
}
