//! `polymeter compare`: compares two stored jobs, or two groups of jobs, by metric and phase.

use std::collections::BTreeSet;

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::compare::{Basis, Comparison, Difference, Subject, Verdict, compare};
use polymeter_analysis::gather::gather;
use polymeter_client::completion::metrics;
use polymeter_proto::name::Selector;
use polymeter_proto::units::{self, counted};

use crate::client::job_completion;
use crate::client::read_source::{ReadSource, Source};
use crate::failure::Failure;
use crate::output::layout::{width, wrapped_lines};
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;
use crate::report::choice::choose;
use crate::store_failure::cannot_read;

const GROUP_MAX: usize = 1000;

/// Compare two stored jobs, or two groups of jobs, by metric and phase.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With two or more jobs on both sides the intervals cover the variation between jobs. With a single job on one side they cover only the variation within the jobs, and a difference may be chance: repeat the run. Of many metrics that do not differ, one in twenty shows a difference by chance."
)]
pub(crate) struct CompareArguments {
    /// The first job, or several, separated by commas.
    #[arg(value_name = "A", value_delimiter = ',', required = true, num_args = 1, add = ArgValueCompleter::new(job_completion::stored))]
    a: Vec<String>,

    /// The second job, or several, separated by commas.
    #[arg(value_name = "B", value_delimiter = ',', required = true, num_args = 1, add = ArgValueCompleter::new(job_completion::stored))]
    b: Vec<String>,

    /// Require two or more jobs on both sides, so that intervals cover the variation between jobs.
    #[arg(long)]
    group: bool,

    #[command(flatten)]
    source: ReadSource,

    /// Compare these metrics only, such as cpu.*; may be repeated.
    #[arg(long = "metric", value_name = "METRIC", add = ArgValueCompleter::new(metrics::metric))]
    metrics: Vec<Selector>,

    /// Include metrics without a shown difference.
    #[arg(long)]
    all: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CompareArguments {
    fn selects(&self, row: &Difference) -> bool {
        let name = row.metric.split('{').next().unwrap_or_default();
        self.metrics.is_empty() || self.metrics.iter().any(|metric| metric.matches(name))
    }
}

pub(crate) fn execute(arguments: &CompareArguments) -> Result<(), Failure> {
    for side in [&arguments.a, &arguments.b] {
        if side.len() > GROUP_MAX {
            return Err(Failure::Usage(format!("cannot compare more than {GROUP_MAX} jobs on a side")));
        }
        if arguments.group && side.len() < 2 {
            return Err(Failure::Usage(
                "cannot compare groups: name two or more jobs on both sides, separated by commas".to_owned(),
            ));
        }
    }
    let mut source = arguments.source.open()?;
    let mut known = BTreeSet::new();
    let a = subjects(&mut source, &arguments.a, &mut known)?;
    let b = subjects(&mut source, &arguments.b, &mut known)?;
    let mut comparison = compare(&a, &b);
    comparison.rows.retain(|row| arguments.selects(row));
    if comparison.rows.is_empty() && !arguments.metrics.is_empty() {
        let wanted: Vec<_> = arguments.metrics.iter().map(ToString::to_string).collect();
        return Err(Failure::Failed(format!(
            "cannot compare: the jobs have no values of {}; without --metric all metrics are compared",
            wanted.join(", ")
        )));
    }
    if arguments.json {
        return terminal::print_json(&comparison);
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&text(&comparison, arguments.all, limit))
}

/// Reads jobs that are not in `known`, and adds them to it.
fn subjects(source: &mut Source, ids: &[String], known: &mut BTreeSet<i64>) -> Result<Vec<Subject>, Failure> {
    let mut subjects = Vec::new();
    for id in ids {
        let job = choose(source, Some(id))?.job;
        if !known.insert(job.job_key) {
            return Err(Failure::Usage(format!("cannot compare: job {id} is named twice")));
        }
        let report = gather(source.reader.as_mut(), &job, None);
        let report = report.map_err(cannot_read)?;
        subjects.push(Subject::of(&report));
    }
    Ok(subjects)
}

/// Shows the differences that [`is_shown`] tells, or `all`.
fn text(comparison: &Comparison, all: bool, limit: Option<usize>) -> String {
    let has_phases = comparison.rows.iter().any(|row| row.phase.is_some());
    let shown: Vec<&Difference> = comparison.rows.iter().filter(|row| all || is_shown(row)).collect();
    let rows = |[of_difference, of_interval]: [&str; 2], differences: fn(&Difference) -> [String; 2]| {
        let mut rows = vec![head(["METRIC", "A", "B", of_difference, of_interval, ""])];
        rows.extend(shown.iter().map(|row| cells(row, differences(row))));
        rows
    };
    let jobs = format!("A: {}\nB: {}\n\n", comparison.a.join(", "), comparison.b.join(", "));
    let mut text = wrapped_lines(&jobs, limit);
    if shown.is_empty() {
        text.push_str("No difference shown.\n");
    } else {
        let full = table_within(&rows(["DIFFERENCE", "95 % INTERVAL"], both_differences), None);
        let is_narrow = limit.is_some_and(|limit| full.lines().any(|line| width(line) > limit));
        let short = ["CHANGE", "95 %"];
        text.push_str(&if is_narrow { table_within(&rows(short, short_differences), limit) } else { full });
    }
    let hidden = comparison.rows.len() - shown.len();
    if hidden > 0 {
        let of_phases = if has_phases { ", of phases and of the whole jobs" } else { "" };
        let metrics = counted(hidden, "metric");
        let line = format!("\n{metrics}{of_phases} without a shown difference, which --all lists\n");
        text.push_str(&wrapped_lines(&line, limit));
    }
    if comparison.basis == Basis::PartsOfJobs {
        text.push_str(&wrapped_lines(
            "note: single jobs; the intervals cover variation within the jobs, not between repetitions\n",
            limit,
        ));
    }
    text
}

/// Two of the cells are the difference and its interval.
fn cells(row: &Difference, [difference, interval]: [String; 2]) -> Vec<String> {
    let phase = row.phase.as_deref().map_or_else(String::new, |phase| format!("{phase}: "));
    let mean = |of_side: Option<f64>| figure(of_side, |value| formatted(row, value));
    let estimated = if row.is_estimate { " (estimated)" } else { "" };
    let metric = format!("{phase}{}{estimated}", row.metric);
    vec![metric, mean(row.a), mean(row.b), difference, interval, verdict(row.verdict).to_owned()]
}

fn both_differences(row: &Difference) -> [String; 2] {
    let percent = row.percent.map_or_else(String::new, |percent| format!(" ({percent:+.1} %)"));
    let interval =
        figure(row.interval, |[low, high]| format!("{} to {}", signed(row, low), signed(row, high)));
    [figure(row.difference, |by| signed(row, by)) + &percent, interval]
}

/// Difference and its interval as shares of A, where they are known.
fn short_differences(row: &Difference) -> [String; 2] {
    let (Some(percent), Some(a)) = (row.percent, row.a) else { return both_differences(row) };
    let share = |value: f64| 100.0 * value / a.abs();
    let interval = figure(row.interval, |[low, high]| format!("{:+.0} to {:+.0} %", share(low), share(high)));
    [format!("{percent:+.1} %"), interval]
}

/// True for a difference that is certain, and in any case for elapsed time, CPU time and energy.
fn is_shown(row: &Difference) -> bool {
    matches!(row.verdict, Verdict::Higher | Verdict::Lower)
        || ["elapsed", "cpu_time", "energy"].contains(&row.metric.as_str())
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Higher => "B is higher",
        Verdict::Lower => "B is lower",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::TooFewValues => "too few values",
        Verdict::OneSideOnly => "on one side only",
    }
}

fn formatted(row: &Difference, value: f64) -> String {
    match row.metric.as_str() {
        "elapsed" | "cpu_time" if row.unit == "seconds" => units::duration_f64(value * 1e9),
        _ => units::value(&row.unit, value),
    }
}

fn signed(row: &Difference, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    format!("{sign}{}", formatted(row, value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(metric: &str, unit: &str, verdict: Verdict) -> Difference {
        Difference {
            phase: Some("solve".to_owned()),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            a: Some(2.0),
            b: Some(1.5),
            difference: Some(-0.5),
            percent: Some(-25.0),
            interval: Some([-0.75, -0.25]),
            verdict,
            is_estimate: false,
        }
    }

    #[test]
    fn differences_are_listed_and_the_others_counted() {
        let comparison = Comparison {
            a: vec!["1".to_owned(), "2".to_owned()],
            b: vec!["3".to_owned()],
            basis: Basis::PartsOfJobs,
            rows: vec![
                difference("cpu.usage", "cores", Verdict::Lower),
                difference("memory.anon", "bytes", Verdict::NoDifferenceShown),
                Difference { is_estimate: true, ..difference("energy", "joules", Verdict::TooFewValues) },
            ],
        };
        let printed = text(&comparison, false, None);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[..2], ["A: 1, 2", "B: 3"]);
        assert_eq!(
            lines[4].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>(),
            [
                "solve: cpu.usage",
                "2 cores",
                "1.50 cores",
                "-0.500 cores (-25.0 %)",
                "-0.750 cores to -0.250 cores",
                "B is lower"
            ]
        );
        assert!(lines[5].starts_with("solve: energy (estimated)  2 J "), "{printed}");
        assert!(printed.contains("1 metric,") && printed.contains("note: single jobs"), "{printed}");
        assert!(text(&comparison, true, None).contains("no difference shown"));
        let narrow = text(&comparison, false, Some(80));
        assert!(narrow.contains("  -25.0 %  -38 to -12 %  B is lower\n"), "{narrow}");
    }
}
