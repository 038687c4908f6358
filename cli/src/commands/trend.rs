//! `polymeter trend`: what the runs of one name used over time, and where that changed.

use clap::builder::PossibleValuesParser;
use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::trend::{Change, Choice, Level, QUANTITIES, Quantity, RUNS_MIN, Trend, trend};
use polymeter_proto::units::counted;
use polymeter_service::clock::realtime_us;
use polymeter_service::time_text::rfc3339;

use crate::calendar::PointInTime;
use crate::client::job_completion;
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::layout::wrapped_lines;
use crate::output::printable::printable_name;
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;
use crate::store_failure::cannot_read;

const CHANGES_MAX: usize = 10;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs that failed, were cancelled or reached a limit are left out. A level is the median of the runs between two changes. By the ranks of the runs, the levels differ more than those of a thousandth of the series that do not change. That takes 14 runs, and 7 to 10 after the change. Changes of less than 1 % are left out."
)]
pub(crate) struct TrendArguments {
    /// The name of the jobs or runs, all of it.
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(job_completion::names))]
    name: String,

    /// The owner, by name or numeric id. Default: the owner of the run that started last.
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// These quantities only, separated by commas.
    #[arg(long = "metric", value_name = "QUANTITY", value_delimiter = ',', value_parser = PossibleValuesParser::new(QUANTITIES.map(|of| of.key)))]
    quantities: Vec<String>,

    /// The runs that ended at this time or later: YYYY-MM-DD or YYYY-MM-DDTHH:MM in UTC, or an age such as
    /// 12h or 30d.
    #[arg(long, value_name = "TIME")]
    since: Option<PointInTime>,

    /// The runs that started before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<PointInTime>,

    #[command(flatten)]
    source: ReadSource,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &TrendArguments) -> Result<(), Failure> {
    let now_us = realtime_us();
    let choice = Choice {
        name: arguments.name.clone(),
        user: arguments.user.clone(),
        since_ns: arguments.since.map(|since| since.time_ns(now_us)),
        until_ns: arguments.until.map(|until| until.time_ns(now_us)),
    };
    let mut source = arguments.source.open()?;
    let found = trend(source.reader.as_mut(), &choice);
    let found = found.map_err(cannot_read)?;
    let Some(mut found) = found else {
        return Err(Failure::Failed(format!(
            "cannot find runs of {}: no job of this name that you may see has ended in this time; polymeter jobs --ended lists names",
            printable_name(&arguments.name)
        )));
    };
    let is_wanted =
        |key: &str| arguments.quantities.is_empty() || arguments.quantities.iter().any(|of| of == key);
    for change in &mut found.changes {
        change.levels.retain(|level| is_wanted(level.quantity));
    }
    found.changes.retain(|change| !change.levels.is_empty());
    if arguments.json {
        return terminal::print_json(&found);
    }
    let quantities: Vec<&Quantity> = QUANTITIES.iter().filter(|of| is_wanted(of.key)).collect();
    terminal::print(&text(&found, &quantities, terminal::width_limit(&std::io::stdout())))
}

/// Changes, the latest first, then the present levels.
fn text(of: &Trend, quantities: &[&Quantity], limit: Option<usize>) -> String {
    let owner = of.user.clone().or_else(|| of.uid.map(|uid| format!("uid {uid}")));
    let owner = owner.map_or_else(String::new, |owner| format!(" of {}", printable_name(&owner)));
    let mut text = format!("{}{owner}: {}", printable_name(&of.name), counted(of.runs.len(), "run"));
    if let (Some(first), Some(last)) = (of.runs.first(), of.runs.last()) {
        text.push_str(&format!(", {} to {}", minute(first.started_us), minute(last.started_us)));
    }
    text.push('\n');
    text = wrapped_lines(&text, limit);
    for change in of.changes.iter().rev().take(CHANGES_MAX) {
        text.push_str(&wrapped_lines(&change_text(change), limit));
    }
    let hidden = of.changes.len().saturating_sub(CHANGES_MAX);
    if hidden > 0 {
        text.push_str(&format!("\n{}, which --json has\n", counted(hidden, "earlier change")));
    }
    if of.changes.is_empty() {
        text.push_str("\nNo change shown.\n");
    }
    let mut rows = vec![head(["QUANTITY", "RUNS", "NOW", "CHANGE", "SINCE JOB"])];
    for quantity in quantities {
        let values = of.runs.iter().filter_map(|run| (quantity.value)(&run.figures));
        let count = values.count();
        if count == 0 {
            continue;
        }
        let last = of.changes.iter().rev().find_map(|change| {
            change.levels.iter().find(|level| level.quantity == quantity.key).map(|level| (change, level))
        });
        rows.push(vec![
            quantity.title.to_owned(),
            count.to_string(),
            figure(of.level(quantity), |level| quantity.text(level)),
            last.map_or_else(|| "none shown".to_owned(), |(_, level)| percent(level)),
            last.map_or_else(String::new, |(change, _)| change.job.clone()),
        ]);
    }
    if rows.len() > 1 {
        text.push_str(&format!("\n{}", table_within(&rows, limit)));
    }
    if of.left_out > 0 {
        text.push_str(&format!(
            "{} left out: they did not finish, or have no figures yet\n",
            counted(of.left_out, "run")
        ));
    }
    if of.runs.len() < RUNS_MIN {
        text.push_str(&format!("note: changes can be told from chance from {RUNS_MIN} runs on\n"));
    }
    text
}

fn change_text(change: &Change) -> String {
    let mut text = format!("\nsince job {}, {}:\n", printable_name(&change.job), minute(change.started_us));
    for level in &change.levels {
        let Some(quantity) = QUANTITIES.iter().find(|of| of.key == level.quantity) else { continue };
        text.push_str(&format!(
            "  {} {}: {} before, {} after\n",
            quantity.title,
            percent(level),
            quantity.text(level.before),
            quantity.text(level.after)
        ));
    }
    for with in &change.with {
        let (before, after) = (printable_name(&with.before), printable_name(&with.after));
        text.push_str(&format!("  changed with it: {}, {before} before, {after} after\n", with.attribute));
    }
    text
}

fn percent(level: &Level) -> String {
    level.percent.map_or_else(
        || "from 0".to_owned(),
        |percent| if percent.abs() < 9.95 { format!("{percent:+.1} %") } else { format!("{percent:+.0} %") },
    )
}

/// UTC, to the minute.
fn minute(time_us: i64) -> String {
    let text = rfc3339(time_us);
    text.get(..16).unwrap_or(&text).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::trend::{Attribute, Figures, Run};

    use super::*;
    use crate::snapshot;

    fn run(number: i64) -> Run {
        Run {
            key: number,
            job: format!("{}", 790 + number),
            started_us: 1_790_000_000_000_000 + number * 3_600_000_000,
            figures: Figures {
                elapsed_s: Some(if number < 22 { 3_720.0 } else { 4_390.0 }),
                memory_used_bytes: Some(8e9).filter(|_| number > 3),
                wasted_core_hours: Some(0.0),
                ..Figures::default()
            },
        }
    }

    fn level(quantity: &'static str, before: f64, after: f64) -> Level {
        Level { quantity, before, after, percent: (before > 0.0).then(|| 100.0 * (after - before) / before) }
    }

    fn changed(attribute: &'static str, before: &str, after: &str) -> Attribute {
        Attribute { attribute, before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn a_trend_is_laid_out_as_recorded() {
        let mut trend = Trend {
            name: "cfd wing\u{1b}".to_owned(),
            user: Some("ada".to_owned()),
            left_out: 3,
            runs: (0..40).map(run).collect(),
            ..Trend::default()
        };
        let quantities: Vec<&Quantity> = QUANTITIES.iter().collect();
        let mut all = text(&trend, &quantities, Some(80));
        trend.changes = vec![
            Change {
                key: 9,
                job: "799".to_owned(),
                started_us: run(9).started_us,
                levels: vec![level("memory_used_bytes", 7.9e9, 8e9)],
                with: Vec::new(),
            },
            Change {
                key: 22,
                job: "812".to_owned(),
                started_us: run(22).started_us,
                levels: vec![level("elapsed_s", 3_720.0, 4_390.0), level("wasted_core_hours", 0.0, 4.0)],
                with: vec![changed("nodes", "various", "n9"), changed("cores", "8", "16")],
            },
        ];
        all.push_str(&format!("\n{}", text(&trend, &quantities, Some(80))));
        trend.runs.truncate(5);
        trend.changes = (0..12).map(|_| trend.changes[0].clone()).collect();
        (trend.user, trend.uid, trend.left_out) = (None, Some(1001), 0);
        all.push_str(&format!("\n{}", text(&trend, &quantities[..1], Some(80))));
        snapshot::check("trend", &all);
    }
}
