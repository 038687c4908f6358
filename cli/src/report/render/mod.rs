//! A report as text.

mod call_stacks;
mod completeness;
mod detail;
mod distributions;
mod events;
pub(crate) mod first_screen;
mod groups;
mod paragraph;
mod processes;
mod regions;
mod roofline;
mod sections;
mod series;
mod usage;

use crate::output::printable::printable_lines;
use crate::output::style;
use detail::Detail;
pub(crate) use paragraph::LABEL;
use polymeter_analysis::model::Report;
pub(crate) use sections::Sections;

/// Shown without a choice of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    Screen,
    /// First screen, with all findings, the totals and the series that changed.
    Run,
}

pub(crate) fn all(report: &Report, limit: Option<usize>, has_colours: bool) -> String {
    let mut text = style::painted(&first_screen::lines(report, limit, usize::MAX), has_colours);
    text.push('\n');
    text.push_str(&printable_lines(&groups::all(report, limit)));
    if processes::are_sampled(report) {
        text.push_str(&printable_lines(&(processes::text(report, Detail::All, limit) + "\n")));
    }
    if !report.regions.is_empty() {
        text.push_str(&printable_lines(&(regions::text(report, Detail::All, limit) + "\n")));
    }
    if report.roofline.is_some() {
        text.push_str(&printable_lines(&(roofline::text(report, Detail::All, limit) + "\n")));
    }
    if !report.call_stacks.is_empty() {
        text.push_str(&printable_lines(&(call_stacks::text(report, Detail::All, limit) + "\n")));
    }
    text.push_str(&details(report, Detail::All, limit));
    text.push_str(&printable_lines(&completeness::text(report, limit)));
    text.push('\n');
    text + &printable_lines(&completeness::sources(report, limit))
}

fn details(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let usage = usage::text(report, limit);
    let series = series::text(report, detail, limit);
    let events = events::text(report, detail, limit);
    let distributions = match distributions::text(report, detail, limit) {
        text if text.is_empty() => text,
        text => text + "\n",
    };
    printable_lines(&format!("{usage}\n{distributions}{series}\n{events}")).into_owned()
}

pub(crate) fn chosen(
    report: &Report,
    sections: &Sections,
    beginning: Beginning,
    limit: Option<usize>,
    has_colours: bool,
) -> String {
    if sections.are_all() {
        return all(report, limit, has_colours);
    }
    if !sections.is_empty() {
        return sections.text(report, limit, has_colours);
    }
    // A file or a pipe has no screen.
    let is_screen = beginning == Beginning::Screen && limit.is_some();
    let lines_max = if is_screen { first_screen::LINES } else { usize::MAX };
    let mut text = style::painted(&first_screen::lines(report, limit, lines_max), has_colours);
    if beginning == Beginning::Run {
        text.push('\n');
        if !report.regions.is_empty() {
            text.push_str(&printable_lines(&(regions::text(report, Detail::Summary, limit) + "\n")));
        }
        if report.roofline.is_some() {
            text.push_str(&printable_lines(&(roofline::text(report, Detail::Summary, limit) + "\n")));
        }
        text.push_str(&details(report, Detail::Summary, limit));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polymeter_analysis::advice::Advice;
    use polymeter_analysis::command_totals::CommandTotals;
    use polymeter_analysis::model::{NodeReport, PeriodUse, StepReport, TaskReport};
    use polymeter_proto::ledger::Tally;
    use polymeter_proto::run::Run;
    use polymeter_proto::series::Roofs;
    use serde_json::Value;

    use super::*;
    use crate::snapshot;
    use polymeter_analysis::curve::Curve;
    use polymeter_analysis::model::{
        DerivedReport, Energy, EnergyPart, FiringReport, KeptGrowth, KeptReport, LossReport, MarkedInstant,
        Outcome, Phase, PlanChange, RefusedRequest, RingReport, RunReport, SeriesReport, SourceReport,
        Traffic, Usage,
    };

    const SECOND_NS: i64 = 1_000_000_000;

    fn series(metric: &str, labels: &str, unit: &str, values: [f64; 4]) -> SeriesReport {
        let is_counter = unit == "nanoseconds";
        let times = (1..).map(|second| second * SECOND_NS);
        SeriesReport {
            metric: metric.to_owned(),
            labels: labels.to_owned(),
            node: "n1".to_owned(),
            unit: unit.to_owned(),
            kind: if is_counter { "counter" } else { "gauge" }.to_owned(),
            rate_unit: is_counter.then_some("cores"),
            window_s: is_counter.then_some(0.1),
            is_clamped: false,
            is_derived: false,
            samples: 4,
            period: Some("1s".to_owned()),
            min: values.iter().copied().reduce(f64::min),
            mean: Some(values.iter().sum::<f64>() / 4.0),
            max: values.iter().copied().reduce(f64::max),
            growth: is_counter.then_some(values.iter().sum::<f64>() * 1e9),
            step: labels.strip_prefix("step=").map(str::to_owned),
            is_of_step: !labels.is_empty(),
            curve: Curve::of(&times.zip(values).collect::<Vec<_>>()),
            ..SeriesReport::default()
        }
    }

    fn change(metric: &str, old: Option<&str>, new: Option<&str>, cause: &str) -> PlanChange {
        PlanChange {
            at_s: 2.0,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
            cause: cause.to_owned(),
            actor: (cause == "lease").then(|| "uid 1000".to_owned()),
            until_s: (cause == "lease").then_some(3.0),
            changes: 1,
            ..PlanChange::default()
        }
    }

    fn loss(reason: &str, source: Option<&str>) -> LossReport {
        LossReport {
            node: "n1".to_owned(),
            source: source.map(str::to_owned),
            samples: 3,
            reason: reason.to_owned(),
            first_s: 1.0,
            last_s: 2.5,
            ..LossReport::default()
        }
    }

    fn firing(rule: &str, why: &str) -> FiringReport {
        FiringReport {
            text: format!("{rule} on n1: {why}; keeps 35 s; 1 node is missing: n7: no answer"),
            rule: rule.to_owned(),
            node: "n1".to_owned(),
            actor: Some("uid 1000".to_owned()),
            at_s: 3.5,
            at_us: 3_500_000,
            why: why.to_owned(),
            actions: "keeps 35 s".to_owned(),
            begin_us: Some(0),
            end_us: Some(4_000_000),
            nodes_asked: Some(2),
            nodes_missing: [("n7".to_owned(), "no answer".to_owned())].into(),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a value with every field")]
    fn report() -> Report {
        let tally = Tally { due: 20, taken: 16, late: 1, missed: 2, absent: 2, dropped: 1, not_kept: 0 };
        let mut report = Report {
            job: "4242".to_owned(),
            nodes: vec!["n1".to_owned()],
            owner: Some("zoe".to_owned()),
            wall_s: 4.0,
            ended: true,
            lost_nodes: Vec::new(),
            outcome: Outcome { state: Some("TIMEOUT".to_owned()), exit_code: Some(0), exit_signal: Some(15) },
            energy: Some(Energy {
                joules: 7200.0,
                error_joules: None,
                watts_mean: Some(1800.0),
                carbon_grams: None,
                is_estimate: true,
                nodes: 1,
                parts: vec![EnergyPart { part: "processors", joules: 7200.0 }],
            }),
            traffic: vec![Traffic {
                name: "nfs",
                is_network: false,
                received_bytes: 4096.0,
                sent_bytes: 0.0,
                nodes: 1,
            }],
            devices: vec![polymeter_analysis::model::DeviceMeasurement {
                node: "n1".to_owned(),
                quantity: polymeter_analysis::model::DeviceQuantity::Power,
                name: "power".to_owned(),
                devices: vec!["meter1".to_owned()],
                sensor: String::new(),
                series: 1,
                is_shared: true,
                joules: Some(9000.0),
                watts_mean: Some(2250.0),
                bytes: None,
            }],
            energy_sources: vec![polymeter_analysis::model::EnergyBySource {
                node: "n1".to_owned(),
                name: "power".to_owned(),
                devices: vec!["meter1".to_owned()],
                sensor: String::new(),
                part: "node",
                is_best: true,
                joules: 9000.0,
                error_joules: 250.0,
                period_s: 0.5,
                delay_s: Some(1.25),
                delay_error_s: Some(0.25),
            }],
            used: Usage {
                cpu_s: Some(2.0),
                read_bytes: Some(0.0),
                written_bytes: Some(1e6),
                ..Usage::default()
            },
            rollup_s: None,
            series: vec![
                series("cpu.usage", "", "nanoseconds", [0.0, 0.5, 1.0, 0.5]),
                series("cpu.usage", "step=0", "nanoseconds", [0.0, 0.5, 1.0, 0.5]),
                series("memory.current", "", "bytes", [1e6, 2e6, 3e6, 4e6]),
                series("memory.max", "", "bytes", [1e9; 4]),
            ],
            ledger: tally,
            skipped: 3,
            rejected: 1,
            quarantined: 1,
            unknown: 1,
            sources: vec![SourceReport {
                node: "n1".to_owned(),
                source: "v2/cpu.stat".to_owned(),
                tally,
                skipped: 3,
                rejected: 0,
                quarantined: 1,
                stored: 8,
                unknown: 1,
            }],
            stored: 8,
            losses: vec![
                loss("outbox_full", Some("v2/cpu.stat")),
                loss("unknown", None),
                loss("spool_lost", None),
            ],
            kept: vec![KeptReport {
                text: "the last 30 s before the OOM kill, at 10ms, on all 4 nodes".to_owned(),
                reason: "oom on n1: 1 process killed".to_owned(),
                growth: Some(KeptGrowth {
                    node: "n1".to_owned(),
                    part: Some("solver (4711)".to_owned()),
                    metric: "busiest.memory.resident".to_owned(),
                    first_bytes: 1e9,
                    highest_bytes: 3e9,
                    time_s: 29.5,
                    others_bytes: Some(1e6),
                }),
                ..KeptReport::default()
            }],
            firings: vec![
                firing("stall", "cpu.usage was 0 per second"),
                firing("oom", "the kernel killed a process for lack of memory"),
                firing("\u{1b}[2Jlong", &"memory.current was 1 ".repeat(20)),
            ],
            ring: Some(RingReport { taken: 900, missed: 1, kept: 90, lost: 2, not_kept: 800, unknown: 8 }),
            phases: vec![Phase {
                name: "solver".to_owned(),
                node: "n1".to_owned(),
                begin_s: Some(0.5),
                end_s: Some(3.5),
                ..Phase::default()
            }],
            marks: vec![MarkedInstant {
                name: "checkpoint 1".to_owned(),
                node: "n1".to_owned(),
                at_s: 1.5,
                ..MarkedInstant::default()
            }],
            plan_changes: vec![
                change("cpu.usage", None, Some("1s"), "baseline"),
                change("cpu.usage", Some("1s"), Some("10ms"), "lease"),
                change("memory.current", Some("1s"), Some("10ms"), "lease"),
            ],
            refused_requests: vec![RefusedRequest {
                at_s: 0.0,
                node: "n1".to_owned(),
                request: "io.*".to_owned(),
                period: Some("100us".to_owned()),
                actor: Some("uid 1000".to_owned()),
                reason: "the shortest period allowed for io.read.bytes is 10ms".to_owned(),
                ..RefusedRequest::default()
            }],
            measuring: None,
            key: 17,
            runs: vec![RunReport { key: 17, started_us: 0, ended_us: Some(4_000_000), state: None }],
            notes: vec![
                "some samples could not be stored before the end; the report may be incomplete".to_owned(),
            ],
            ..Report::default()
        };
        let totals = CommandTotals {
            user_ns: 1.8e9,
            system_ns: 2e8,
            peak_memory_bytes: Some(4e6),
            page_faults: 1234.0,
            page_faults_major: 5.0,
            context_switches: 67.0,
            measuring_ns: 1e7,
        };
        totals.add_to(&mut report);
        report
    }

    #[test]
    fn a_report_is_written_as_recorded() {
        let mut report = report();
        Advice::built_in().advise(&mut report);
        let run = chosen(&report, &Sections::default(), Beginning::Run, Some(80), false);
        snapshot::check("report", &run);
        snapshot::check("report-all", &all(&report, None, false));
        snapshot::check("report-json", &(serde_json::to_string_pretty(&report).unwrap() + "\n"));
    }

    /// At 80 columns each series has its name, its figures and its course, whatever its name, and what the
    /// program measures of itself comes last.
    #[test]
    fn rows_of_series_are_complete_in_a_terminal() {
        let mut report = report();
        let long = "user.lattice_boltzmann_collision_operator_residual_norm";
        report.series.insert(0, series("agent.job.cpu.time", "", "nanoseconds", [0.0, 0.5, 1.0, 0.5]));
        for name in ["perf.context_switches", "memory.current"] {
            report.series.push(series(name, "", "bytes", [1e6, 2e6, 3e6, 4e6]));
        }
        for has_long_name in [false, true] {
            if has_long_name {
                report.series.push(series(long, "", "bytes", [1e6, 2e6, 3e6, 4e6]));
            }
            let text = series::text(&report, Detail::Summary, Some(80));
            assert!(text.lines().all(|line| crate::output::layout::width(line) <= 80), "{text}");
            assert_eq!(text.matches('█').count(), text.matches(" 4  ").count(), "{text}");
            assert!(text.contains("perf.context_switches") && text.contains(long) == has_long_name, "{text}");
            let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
            assert!(at("agent.job.cpu.time") > at("memory.current"), "{text}");
        }
    }

    /// Names of rules are those of users.
    #[test]
    fn firings_are_short_on_a_screen_and_whole_elsewhere() {
        let mut report = report();
        report.firings.truncate(2);
        Advice::built_in().advise(&mut report);
        let screen = chosen(&report, &Sections::default(), Beginning::Screen, Some(80), false);
        assert!(screen.lines().all(|line| crate::output::layout::width(line) <= 80), "{screen}");
        let fired: Vec<&str> = screen.lines().skip_while(|line| !line.starts_with("fired")).take(2).collect();
        assert!(fired[0].starts_with("fired     1970-01-01 00:00:03 oom on n1: the kernel"), "{screen}");
        assert!(fired[1].contains("00:00:03 stall on n1: cpu.usage was 0 per second"), "{screen}");
        let all = all(&report, Some(80), false);
        assert_eq!(all.matches("n7: no").count(), 2, "{all}");
    }

    const ROOFS: Roofs = Roofs { memory_bytes_per_s: 1, double_flop_per_s: 2, single_flop_per_s: 3 };

    /// Every key of the JSON form occurs in it.
    fn full_report() -> Report {
        let mut report = report();
        report.rollup_s = Some(10.0);
        report.by_node = vec![NodeReport { node: "n1".to_owned(), ..NodeReport::default() }];
        report.steps = vec![StepReport::default()];
        report.tasks = vec![TaskReport::default()];
        report.call_stacks = vec![call_stacks::tests::report()];
        report.regions = regions::tests::regions();
        report.distributions = distributions::tests::distributions();
        report.roofline = Some(roofline::tests::roofline());
        report.by_node.iter_mut().for_each(|node| node.roofs = Some(ROOFS));
        report.submission.run = Some(Run::default());
        report.derived = vec![DerivedReport {
            metric: "perf.ipc".to_owned(),
            node: "n1".to_owned(),
            unit: "instructions/cycle",
            value: None,
            counted: Some(0.5),
            reason: Some("not sampled: perf.cpu_cycles".to_owned()),
        }];
        for series in &mut report.series {
            series.is_clamped = true;
            series.is_derived = true;
            series.inner_s = Some(0.001);
            series.periods = vec![PeriodUse { period: "1s".to_owned(), seconds: 4.0 }];
        }
        Advice::built_in().advise(&mut report);
        report
    }

    /// Adds the paths of all keys, such as `series[].metric`, except for those of maps with arbitrary names.
    fn add_paths(paths: &mut BTreeSet<String>, path: &str, value: &Value) {
        const MAPS: [&str; 4] =
            ["firings[].nodes_missing", "findings[].figures", "findings[].remedies", "run.environment"];
        match value {
            Value::Object(map) if !MAPS.contains(&path) => {
                for (key, value) in map {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    paths.insert(path.clone());
                    add_paths(paths, &path, value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| add_paths(paths, &format!("{path}[]"), item)),
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_key_of_the_json_form_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/report.md");
        let page = std::fs::read_to_string(page).unwrap();
        let keys = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(key, _)| key.to_owned()));
        let documented: BTreeSet<String> = keys.collect();
        let mut paths = BTreeSet::new();
        add_paths(&mut paths, "", &serde_json::to_value(full_report()).unwrap());
        let missing: Vec<_> = paths.difference(&documented).collect();
        let unknown: Vec<_> = documented.difference(&paths).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "not in docs/reference/report.md: {missing:?}; only there: {unknown:?}"
        );
        let version = format!("`schema_version` {}", polymeter_analysis::model::SCHEMA_VERSION);
        assert!(page.contains(&version), "the page is about another version");
    }
}
