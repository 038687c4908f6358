//! `polymeter status`: the status of this node's agent.

use polymeter_proto::control::{
    CollectorStatus, Request, StatusReport, StatusRequest, SubjectStatus, UnavailableGroup,
};

use crate::connection::agent::{AgentOptions, ask_status};
use crate::failure::Failure;
use crate::output::layout::{width, wrapped};
use crate::output::table::{head, table_within};
use crate::output::{terminal, units};

#[derive(Debug, clap::Args)]
pub struct StatusArguments {
    #[command(flatten)]
    agent: AgentOptions,
}

/// Assumed where stdout is no terminal.
const COLUMNS: usize = 80;

const LABEL: usize = 11;

pub(crate) fn execute(arguments: &StatusArguments) -> Result<(), Failure> {
    let status = ask_status(&arguments.agent.socket, &Request::Status(StatusRequest {}))?;
    if arguments.agent.json {
        return terminal::print_json(&status);
    }
    terminal::print(&text(&status, terminal::width_limit(&std::io::stdout()).unwrap_or(COLUMNS)))
}

fn text(status: &StatusReport, columns: usize) -> String {
    let mut text = summary(status, columns);
    text.push('\n');
    text.push_str(&table_within(&source_rows(&status.subjects), Some(columns)));
    let unavailable = unavailable_lines(&status.subjects, columns);
    if !unavailable.is_empty() {
        text.push_str("\nnot available:\n");
        unavailable.iter().for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
    }
    text
}

fn summary(status: &StatusReport, columns: usize) -> String {
    let counts = &status.counts;
    let refused = match counts.refused {
        0 => String::new(),
        refused => format!(", {refused} refused by the collector"),
    };
    let spooled = match counts.spool_bytes {
        0 => String::new(),
        bytes => format!(", {} in the spool", units::bytes(bytes)),
    };
    let samples = format!(
        "{} due, {} taken, {} late, {} missed, {} absent, {} dropped{refused}",
        counts.due, counts.taken, counts.late, counts.missed, counts.absent, counts.dropped
    );
    let delivery = format!(
        "{} sent, {} acknowledged, {} sent, {} waiting{spooled}",
        units::counted(counts.frames_sent, "frame"),
        counts.frames_acknowledged,
        units::bytes(counts.bytes_sent),
        units::bytes(counts.outbox_bytes)
    );
    let cost = format!(
        "{} CPU time, {} memory",
        units::duration(counts.cpu_ns),
        units::bytes(counts.resident_bytes)
    );
    let lines = [
        ("agent", Some(format!("version {}, session {}", status.agent_version, status.session))),
        ("collector", Some(collector_text(&status.collector))),
        ("versions", version_skew(status, env!("CARGO_PKG_VERSION"))),
        ("samples", Some(samples)),
        ("delivery", Some(delivery)),
        ("jobs", untracked_jobs(status)),
        ("lines", unknown_lines(status)),
        ("cost", Some(cost)),
    ];
    lines
        .into_iter()
        .filter_map(|(label, text)| {
            let lines = clause_lines(&text?, columns.saturating_sub(LABEL));
            Some(format!("{label:<LABEL$}{}\n", lines.join(&format!("\n{:LABEL$}", ""))))
        })
        .collect()
}

/// None if the versions are equal; `own` is that of this command.
fn version_skew(status: &StatusReport, own: &str) -> Option<String> {
    let versions = [("agent", Some(&status.agent_version)), ("collector", status.collector.version.as_ref())];
    let differing: Vec<String> = versions
        .into_iter()
        .filter_map(|(name, version)| {
            version.filter(|version| *version != own).map(|version| format!("{name} {version}"))
        })
        .collect();
    (!differing.is_empty()).then(|| {
        format!(
            "DIFFERENT: this command {own}, {}; update the collector first, then the nodes",
            differing.join(", ")
        )
    })
}

/// Breaks a text behind commas into lines of at most `columns`. A longer clause has a line of its own.
fn clause_lines(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for clause in text.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if width(line) + width(clause.trim_end()) <= columns => line.push_str(clause),
            _ => lines.push(clause.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn collector_text(collector: &CollectorStatus) -> String {
    let age = |us: i64| {
        let age_us = u64::try_from(collector.now_us.saturating_sub(us)).unwrap_or(0);
        units::duration(age_us.saturating_mul(1_000))
    };
    let state = if collector.connected { "connected" } else { "NOT connected" };
    let since = collector.since_us.map_or_else(String::new, |us| format!(" for {}", age(us)));
    let acknowledged = match collector.acknowledged_us {
        None => "nothing acknowledged yet".to_owned(),
        Some(us) => format!("last acknowledgement {} ago", age(us)),
    };
    let waiting = units::bytes(collector.backlog_bytes);
    let version =
        collector.version.as_ref().map_or_else(String::new, |version| format!(", version {version}"));
    format!("{}{version}, {state}{since}, {acknowledged}, {waiting} waiting", collector.address)
}

fn untracked_jobs(status: &StatusReport) -> Option<String> {
    let counts = &status.counts;
    let left_out = counts.jobs_left_out.filter(|left_out| *left_out > 0)?;
    let (open, limit) = (counts.descriptors?, counts.descriptor_limit?);
    Some(format!(
        "{} tracked, {left_out} NOT tracked: {open} of {limit} file descriptors are open",
        counts.jobs
    ))
}

/// Lines of kernel files that have no series, if there are any.
fn unknown_lines(status: &StatusReport) -> Option<String> {
    let lines = status.counts.unknown_lines;
    (lines > 0).then(|| format!("{lines} lines of kernel files are not known: see the agent's log"))
}

fn target_name(subject: &SubjectStatus) -> String {
    subject.job.as_ref().map_or_else(|| "node".to_owned(), |job| format!("job {job}"))
}

/// A row for each source of the node and of each job, behind one with the name of the target.
fn source_rows(subjects: &[SubjectStatus]) -> Vec<Vec<String>> {
    let mut rows =
        vec![head(["SOURCE", "TAKEN", "LATE", "MISSED", "ABSENT", "DROPPED", "MEAN READ", "LONGEST"])];
    for subject in subjects.iter().filter(|subject| !subject.sources.is_empty()) {
        rows.push(vec![target_name(subject)]);
        for source in &subject.sources {
            let tally = &source.tally;
            let counts = [tally.taken, tally.late, tally.missed, tally.absent, tally.dropped];
            let costs = [source.read_mean_ns, source.read_max_ns].map(units::duration);
            let name = std::iter::once(format!("  {}", source.name));
            rows.push(name.chain(counts.map(|count| count.to_string())).chain(costs).collect());
        }
    }
    rows
}

/// Metrics that are lacking, with the reasons below them, in lines of at most `columns`.
fn unavailable_lines(subjects: &[SubjectStatus], columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for subject in subjects.iter().filter(|subject| !subject.unavailable.is_empty()) {
        lines.push(target_name(subject));
        for group in UnavailableGroup::by_reason(&subject.unavailable) {
            for (text, indent) in [(group.metrics_text(), 2), (group.reason.to_string(), 6)] {
                let parts = wrapped(&text, columns.saturating_sub(indent));
                lines.extend(parts.iter().map(|part| format!("{:indent$}{part}", "")));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot;

    #[test]
    fn a_status_is_laid_out_as_recorded() {
        let tally = json!({"due": 1200, "taken": 1187, "late": 3, "missed": 10, "absent": 3, "dropped": 2, "not_kept": 0});
        let source = |name: &str| json!({"name": name, "tally": tally, "reads": 1187, "read_mean_ns": 2150, "read_max_ns": 90_400});
        let no_file = "/sys/fs/cgroup/job_42/cpu.pressure: No such file or directory";
        let status = json!({
            "version": 1,
            "agent_version": env!("CARGO_PKG_VERSION"), "session": "5f6a0c1e",
            "counts": {
                "due": 3600, "taken": 3561, "late": 9, "missed": 30, "absent": 9, "dropped": 6, "refused": 4,
                "frames_sent": 120, "frames_acknowledged": 118, "bytes_sent": 54_840_524, "outbox_bytes": 2048,
                "spool_bytes": 1_048_576, "cpu_ns": 250_000_000, "resident_bytes": 9_437_184,
                "jobs": 1, "jobs_left_out": 2, "descriptors": 1000, "descriptor_limit": 1024,
                "unknown_lines": 3,
            },
            "collector": {
                "address": "tcp://head:7717", "version": "0.0.9", "connected": false, "since_us": 1_000_000,
                "acknowledged_us": 500_000, "now_us": 61_000_000, "backlog_bytes": 1_050_624,
            },
            "subjects": [
                {"job": null, "uid": null, "user": null, "started_us": null, "cgroups": [],
                 "sources": [source("proc/stat")], "unavailable": []},
                {"job": "42", "uid": 1000, "user": "zoe", "started_us": 1, "cgroups": [],
                 "sources": [source("v2/cpu.stat"), source("v2/memory.stat")],
                 "unavailable": [["cpu.pressure.some.total", no_file], ["cpu.pressure.full.total", no_file]]},
            ],
        });
        let status: StatusReport = serde_json::from_value(status).unwrap();
        snapshot::check("status", &text(&status, 120));
        let narrow = text(&status, COLUMNS);
        assert!(narrow.lines().all(|line| width(line) <= COLUMNS), "{narrow}");
        snapshot::check("status-80-columns", &narrow);
    }

    #[test]
    fn lines_break_behind_commas() {
        assert_eq!(clause_lines("a b, c d, e", 9), ["a b, c d,", "e"]);
        assert_eq!(
            clause_lines("tcp://a-long-address:1, NOT connected", 9),
            ["tcp://a-long-address:1,", "NOT connected"]
        );
        assert_eq!(clause_lines("", 9), [""; 0]);
    }

    fn subject(job: Option<&str>) -> SubjectStatus {
        SubjectStatus {
            job: job.map(str::to_owned),
            uid: None,
            user: None,
            started_us: None,
            cgroups: Vec::new(),
            sources: Vec::new(),
            unavailable: (0..80)
                .map(|number| (format!("node.vm.m{number}"), "/proc/vmstat: No such file".to_owned()))
                .collect(),
        }
    }

    #[test]
    fn a_missing_file_is_reported_once_for_all_its_metrics() {
        let lines = unavailable_lines(&[subject(None), subject(Some("7"))], 48);
        let of = |name| {
            [name, "  node.vm.m0, node.vm.m1, node.vm.m2 and 77 more", "      /proc/vmstat: No such file"]
        };
        assert_eq!(lines, [of("node"), of("job 7")].concat());
        let narrow = unavailable_lines(&[subject(None)], 20);
        assert!(narrow.len() > 4 && narrow.iter().all(|line| width(line) <= 20), "{narrow:?}");
    }
}
