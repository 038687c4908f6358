//! `polymeter watch --functions`: the functions in which a running job spent its time in the last seconds.

use std::io::IsTerminal;
use std::time::Duration;

use polymeter_analysis::model::{FunctionReport, StackReport};
use polymeter_analysis::stacks::profile::{Choice, Profile};
use polymeter_analysis::stacks::{Missing, summary};
use polymeter_client::local::FunctionsView;
use polymeter_proto::period::Period;
use polymeter_proto::units;
use polymeter_service::clock;
use serde_json::json;

use crate::client::read_source::{ReadSource, Source};
use crate::failure::Failure;
use crate::output::layout::shortened;
use crate::output::printable::printable;
use crate::output::{table, terminal};
use crate::report::choice::choose;
use crate::report::summary::stack_sums;
use crate::store_failure::cannot_read;

const INTERVAL: Duration = Duration::from_secs(2);

const FUNCTIONS: usize = 15;

/// Used where stdout is no terminal.
const COLUMNS: usize = 80;

const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the functions until the job or the requested time ends.
pub(crate) fn watch(view: &FunctionsView) -> Result<(), Failure> {
    let mut source = match &view.collector {
        Some(collector) => Source::of_collector(collector)?,
        None => ReadSource::default().open_for(Some(view.job.as_str()))?,
    };
    let begin_ns = clock::monotonic_ns();
    let is_screen = !view.is_json && std::io::stdout().is_terminal();
    loop {
        let job = choose(&mut source, Some(view.job.as_str()))?.job;
        let now_ns = clock::realtime_us().saturating_mul(1000);
        let last_ns = i64::try_from(view.last.as_nanos()).unwrap_or(i64::MAX);
        let span_ns = now_ns.saturating_sub(last_ns)..now_ns;
        let choice = Choice { spans: vec![(None, span_ns)], ..Choice::default() };
        let profile = Profile::read(source.reader.as_mut(), job.job_key, &choice).map_err(cannot_read)?;
        let missing = Missing::read(source.reader.as_mut(), job.job_key, &profile.metric, &choice.spans)
            .map_err(cannot_read)?;
        let report = summary(&profile, missing);
        let has_reader = if view.is_json {
            let line = line(view, now_ns / 1000, &report);
            terminal::print_json_to_reader(&format!("{line}\n"))?
        } else {
            if is_screen {
                terminal::print_raw(CLEAR.as_bytes())?;
            }
            let limit = terminal::width_limit(&std::io::stdout()).unwrap_or(COLUMNS);
            terminal::print_to_reader(&text(&view.job, view.last, &report, limit))?
        };
        let elapsed_ns = clock::monotonic_ns().saturating_sub(begin_ns);
        if !has_reader || view.duration.is_some_and(|limit| elapsed_ns >= limit.as_nanos()) {
            return Ok(());
        }
        if job.ended_ns.is_some() {
            terminal::print_error("polymeter: the job has ended\n");
            return Ok(());
        }
        clock::sleep(INTERVAL);
    }
}

fn remedy(job: &str) -> String {
    format!("polymeter set --job {job} stacks.cpu=10ms --for 1min")
}

fn line(view: &FunctionsView, now_us: i64, report: &StackReport) -> serde_json::Value {
    let report = (report.samples > 0).then_some(report);
    json!({
        "job": view.job,
        "time_us": now_us,
        "last_us": view.last.as_micros(),
        "call_stacks": report,
        "remedy": report.is_none().then(|| remedy(&view.job)),
    })
}

/// Functions with the most time of their own, in lines of at most `limit` columns.
fn text(job: &str, last: Period, report: &StackReport, limit: usize) -> String {
    let last = units::duration(last.as_nanos());
    let mut lines = vec![format!("job {job}, functions of the last {last}")];
    if report.samples > 0 {
        lines.push(stack_sums(report));
        lines.extend(report.remarks());
        let mut rows = vec![table::head(["self", "total", "function", "module"])];
        rows.extend(report.functions.iter().take(FUNCTIONS).map(row));
        lines.push(String::new());
        lines.extend(table::table_within(&rows, Some(limit)).lines().map(str::to_owned));
    } else {
        lines.push(format!("no call stacks were sampled in the last {last}, or only their owner sees them"));
        lines.extend(report.remarks());
        lines.push(format!("start them: {}", remedy(job)));
    }
    lines.iter().map(|line| shortened(&printable(line), limit) + "\n").collect()
}

fn row(function: &FunctionReport) -> Vec<String> {
    let percent = |percent: f64| format!("{percent:.1} %");
    vec![
        percent(function.self_percent),
        percent(function.total_percent),
        function.function.clone(),
        function.module.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_lines_of_80_columns_and_says_how_to_start() {
        let function = FunctionReport {
            function: "solve<std::vector<double>, ".repeat(10),
            module: "libsolver.so.1".to_owned(),
            self_percent: 62.5,
            total_percent: 80.0,
            ..FunctionReport::default()
        };
        let report = StackReport {
            metric: "stacks.cpu".to_owned(),
            samples: 100,
            unread: 1,
            not_stored: 7,
            functions: vec![function],
            ..StackReport::default()
        };
        let shown = text("4242", Period::SECOND, &report, COLUMNS);
        assert!(shown.contains("\n7 samples lost\n1 last reading given up"), "{shown}");
        assert!(shown.contains("62.5 %") && shown.contains("solve<std::vector"), "{shown}");
        let lost = StackReport { not_stored: 3, ..StackReport::default() };
        let none = text("4242", Period::SECOND, &lost, COLUMNS);
        assert!(none.contains("\n3 samples lost\n"), "{none}");
        assert!(none.contains("polymeter set --job 4242 stacks.cpu=10ms --for 1min"), "{none}");
        for line in shown.lines().chain(none.lines()) {
            assert!(crate::output::layout::width(line) <= COLUMNS, "{line}");
        }
    }
}
