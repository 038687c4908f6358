//! What happened while a job ran: what its user marked, and who changed what was sampled.

use polymeter_proto::period::Period;
use polymeter_store::reader::{MarkRow, PlanChangeRow, RefusedRow};
use serde::Serialize;

use super::gather::Report;
use super::text::{Detail, LINES};
use super::units;
use crate::terminal;

/// What somebody marked as having a begin and an end.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Phase {
    name: String,
    node: String,
    /// Seconds after the job's begin; none where only the end was marked.
    begin_s: Option<f64>,
    /// Seconds after the job's begin; none where only the begin was marked.
    end_s: Option<f64>,
    by: Option<String>,
}

/// An instant that somebody marked.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Instant {
    name: String,
    node: String,
    /// Seconds after the job's begin.
    at_s: f64,
    by: Option<String>,
}

/// From some time on a metric was sampled at another period.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct PlanChange {
    /// Seconds after the job's begin.
    at_s: f64,
    node: String,
    metric: String,
    /// The period until then; none where it was not sampled.
    old: Option<String>,
    /// The period from then on; none where it was sampled no more.
    new: Option<String>,
    cause: String,
    by: Option<String>,
    /// When it was to end by itself, in seconds after the job's begin.
    until_s: Option<f64>,
}

/// A request at submission that was not granted.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Refused {
    /// Seconds after the job's begin.
    at_s: f64,
    node: String,
    /// A selector, or the request as it was written where it could not be read.
    request: String,
    /// The period that was asked for.
    period: Option<String>,
    by: Option<String>,
    reason: String,
}

/// Phases and instants, in the order in which they began. An end belongs to the last begin of the same name on the same
/// node that has none yet.
pub(super) fn phases(rows: Vec<MarkRow>, started_ns: i64) -> (Vec<Phase>, Vec<Instant>) {
    let (mut phases, mut instants): (Vec<Phase>, Vec<Instant>) = (Vec::new(), Vec::new());
    for MarkRow { time_ns, node, name, kind, actor: by } in rows {
        let at_s = units::seconds_between(started_ns, time_ns);
        let open = |phase: &&mut Phase| phase.end_s.is_none() && phase.name == name && phase.node == node;
        match kind.as_str() {
            "begin" => phases.push(Phase { name, node, begin_s: Some(at_s), end_s: None, by }),
            "end" => match phases.iter_mut().rev().find(open) {
                Some(phase) => phase.end_s = Some(at_s),
                None => phases.push(Phase { name, node, begin_s: None, end_s: Some(at_s), by }),
            },
            _ => instants.push(Instant { name, node, at_s, by }),
        }
    }
    (phases, instants)
}

/// The changes of what was sampled, as they are reported.
pub(super) fn changes(rows: &[PlanChangeRow], started_ns: i64) -> Vec<PlanChange> {
    let after_begin_s = |time_ns| units::seconds_between(started_ns, time_ns);
    let change = |row: &PlanChangeRow| PlanChange {
        at_s: after_begin_s(row.time_ns),
        node: row.node.clone(),
        metric: row.metric.clone(),
        old: row.old_period_us.and_then(period),
        new: row.new_period_us.and_then(period),
        cause: row.cause.clone(),
        by: row.actor.clone(),
        until_s: row.until_ns.map(after_begin_s),
    };
    rows.iter().map(change).collect()
}

/// The requests that were refused, as they are reported.
pub(super) fn refused(rows: Vec<RefusedRow>, started_ns: i64) -> Vec<Refused> {
    let refused = |row: RefusedRow| Refused {
        at_s: units::seconds_between(started_ns, row.time_ns),
        node: row.node,
        request: row.request,
        period: row.period_us.and_then(period),
        by: row.actor,
        reason: row.reason,
    };
    rows.into_iter().map(refused).collect()
}

/// A period as people write it.
pub(super) fn period(micros: i64) -> Option<String> {
    Some(Period::from_micros(u64::try_from(micros).ok()?).ok()?.to_string())
}

/// What happened, as people read it; nothing where nothing did.
pub(super) fn text(report: &Report, detail: Detail, bound: Option<usize>) -> String {
    let several_nodes = report.nodes.len() > 1;
    let mut text = String::new();
    let tables = [
        mark_rows(report, several_nodes),
        change_rows(&report.plan_changes, detail, several_nodes),
        refused_rows(&report.refused_requests),
    ];
    for rows in tables {
        let limit = if detail == Detail::All { usize::MAX } else { LINES };
        let left_out = rows.len().saturating_sub(limit.saturating_add(1));
        if rows.len() > 1 {
            let shown: Vec<_> = rows.into_iter().take(limit.saturating_add(1)).collect();
            text.push_str(&terminal::indented_table_within(&shown, bound));
            if left_out > 0 {
                text.push_str(&format!("  ({left_out} more; `polymeter report --all` shows them)\n"));
            }
            text.push('\n');
        }
    }
    text
}

fn place(node: &str, several_nodes: bool) -> String {
    if several_nodes { format!("{node} ") } else { String::new() }
}

fn at(time_s: f64) -> String {
    format!("{time_s:.3} s")
}

/// Marks in the order of their times, under a head.
fn mark_rows(report: &Report, several_nodes: bool) -> Vec<Vec<String>> {
    let cell = |time_s: Option<f64>| time_s.map_or_else(|| "-".to_owned(), at);
    let phase = |phase: &Phase| {
        let lasted = phase.begin_s.zip(phase.end_s).map(|(begin_s, end_s)| end_s - begin_s);
        let name = format!("{}{}", place(&phase.node, several_nodes), phase.name);
        let row = vec![name, cell(phase.begin_s), cell(phase.end_s), cell(lasted)];
        (phase.begin_s.or(phase.end_s).unwrap_or_default(), row)
    };
    let instant = |instant: &Instant| {
        let name = format!("{}{}", place(&instant.node, several_nodes), instant.name);
        (instant.at_s, vec![name, at(instant.at_s)])
    };
    let mut rows: Vec<(f64, Vec<String>)> =
        report.phases.iter().map(phase).chain(report.marks.iter().map(instant)).collect();
    rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let head = ["mark", "at", "until", "lasted"].map(str::to_owned).to_vec();
    std::iter::once(head).chain(rows.into_iter().map(|(_, row)| row)).collect()
}

/// Whether a change is what everybody expects: sampling begins as the administrator or the submission wanted, and
/// ends with the job.
fn is_expected(change: &PlanChange) -> bool {
    let begins = change.old.is_none() && matches!(change.cause.as_str(), "baseline" | "registration");
    begins || change.cause == "job_end"
}

/// Changes of the plan under a head, those of several metrics at once in one row.
fn change_rows(changes: &[PlanChange], detail: Detail, several_nodes: bool) -> Vec<Vec<String>> {
    let told: Vec<&PlanChange> =
        changes.iter().filter(|change| detail == Detail::All || !is_expected(change)).collect();
    let alike = |one: &&PlanChange, other: &&PlanChange| {
        let of = |change: &PlanChange| {
            (
                change.node.clone(),
                change.old.clone(),
                change.new.clone(),
                change.cause.clone(),
                change.by.clone(),
            )
        };
        (one.at_s - other.at_s).abs() < 1e-9 && of(one) == of(other)
    };
    let cell = |period: &Option<String>| period.clone().unwrap_or_else(|| "-".to_owned());
    let row = |changes: &[&PlanChange]| {
        let change = changes.first()?;
        let others = match changes.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let by = change.by.as_ref().map_or_else(String::new, |by| format!(" of {by}"));
        let until = change.until_s.map_or_else(String::new, |until_s| format!(", until {until_s:.0} s"));
        let metric = format!("{}{}{others}", place(&change.node, several_nodes), change.metric);
        let cause = format!("{}{by}{until}", change.cause.replace('_', " "));
        Some(vec![metric, at(change.at_s), cell(&change.old), cell(&change.new), cause])
    };
    let head = ["plan change", "at", "from", "to", "because of"].map(str::to_owned).to_vec();
    std::iter::once(head).chain(told.chunk_by(alike).filter_map(row)).collect()
}

/// Refused requests under a head. All nodes of a job are asked the same, and mostly answer the same: that is told once.
fn refused_rows(refused: &[Refused]) -> Vec<Vec<String>> {
    let head = ["refused request", "period", "by", "reason"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for Refused { request, period, by, reason, .. } in refused {
        let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let row = vec![request.clone(), cell(period), cell(by), reason.clone()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seconds: i64, name: &str, kind: &str) -> MarkRow {
        MarkRow {
            time_ns: 1_000_000_000 * (100 + seconds),
            node: "n1".to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            actor: None,
        }
    }

    #[test]
    fn an_end_belongs_to_the_last_open_begin_of_its_name() {
        let rows = vec![
            mark(1, "step", "begin"),
            mark(2, "here", "instant"),
            mark(3, "step", "begin"),
            mark(4, "step", "end"),
            mark(5, "other", "end"),
            mark(6, "step", "end"),
            mark(7, "last", "begin"),
            MarkRow { node: "n2".to_owned(), ..mark(8, "last", "end") },
        ];
        let (phases, instants) = phases(rows, 100_000_000_000);
        let told: Vec<_> =
            phases.iter().map(|phase| (phase.name.as_str(), phase.begin_s, phase.end_s)).collect();
        assert_eq!(
            told,
            [
                ("step", Some(1.0), Some(6.0)),
                ("step", Some(3.0), Some(4.0)),
                ("other", None, Some(5.0)),
                ("last", Some(7.0), None),
                ("last", None, Some(8.0)),
            ]
        );
        assert_eq!(instants.iter().map(|instant| instant.at_s).collect::<Vec<_>>(), [2.0]);
    }

    #[test]
    fn what_all_nodes_refuse_alike_is_told_once() {
        let row = |node: &str| RefusedRow {
            time_ns: 3_000_000_000,
            node: node.to_owned(),
            request: "cpu.*".to_owned(),
            period_us: Some(100),
            actor: Some("uid 7".to_owned()),
            reason: "the shortest period allowed is 10ms".to_owned(),
        };
        let refused = refused(vec![row("n1"), row("n2")], 1_000_000_000);
        assert_eq!((refused[1].at_s, refused[1].node.as_str()), (2.0, "n2"));
        let rows = refused_rows(&refused);
        assert_eq!(
            rows[1..],
            [["cpu.*", "100us", "uid 7", "the shortest period allowed is 10ms"].map(str::to_owned)]
        );
    }

    fn change(metric: &str, old_us: Option<i64>, new_us: Option<i64>, cause: &str) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: 12_500_000_000,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old_period_us: old_us,
            new_period_us: new_us,
            cause: cause.to_owned(),
            actor: (cause == "lease").then(|| "uid 7".to_owned()),
            until_ns: (cause == "lease").then_some(72_500_000_000),
        }
    }

    #[test]
    fn changes_that_are_alike_share_a_line_and_expected_ones_have_none() {
        let rows = [
            change("cpu.usage", None, Some(1_000_000), "baseline"),
            change("cpu.system", Some(1_000_000), Some(10_000), "lease"),
            change("cpu.usage", Some(1_000_000), Some(10_000), "lease"),
            change("pids.current", None, Some(10_000), "lease"),
            change("pids.current", Some(10_000), None, "lease_end"),
        ];
        let changes = changes(&rows, 2_500_000_000);
        let told = change_rows(&changes, Detail::Changing, false);
        let line = |row: &Vec<String>| row.join("|");
        assert_eq!(
            told.iter().skip(1).map(line).collect::<Vec<_>>(),
            [
                "cpu.system and 1 more|10.000 s|1s|10ms|lease of uid 7, until 70 s",
                "pids.current|10.000 s|-|10ms|lease of uid 7, until 70 s",
                "pids.current|10.000 s|10ms|-|lease end",
            ]
        );
        assert_eq!(change_rows(&changes, Detail::All, true).len(), 1 + 4);
    }
}
