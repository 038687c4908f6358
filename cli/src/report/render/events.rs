//! Events of a job as tables: marks, changes of the plan and refused requests.

use super::detail::Detail;
use super::paragraph::shortened_table;
use crate::output::table::head;
use crate::report::summary::{figure, plan_changes};
use polymeter_analysis::model::{PlanChange, RefusedRequest, Report};
use polymeter_client::control_view::plan::person;

pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    marks(report, detail, limit) + &plan(report, detail, limit)
}

pub(super) fn marks(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    table(mark_rows(report, report.nodes.len() > 1), detail, limit)
}

/// Empty without changes of the plan and refused requests.
pub(super) fn plan(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let changes = change_rows(&report.plan_changes, detail, report.nodes.len() > 1);
    table(changes, detail, limit) + &table(refused_rows(&report.refused_requests), detail, limit)
}

/// Empty without rows.
fn table(rows: Vec<Vec<String>>, detail: Detail, limit: Option<usize>) -> String {
    if rows.len() < 2 {
        return String::new();
    }
    shortened_table(rows, detail.lines_max(), limit) + "\n"
}

fn on_node(node: &str, has_several_nodes: bool) -> String {
    if has_several_nodes { format!("{node} ") } else { String::new() }
}

fn seconds(time_s: f64) -> String {
    format!("{time_s:.3} s")
}

/// Phases and instants by time, below a head.
fn mark_rows(report: &Report, has_several_nodes: bool) -> Vec<Vec<String>> {
    let cell = |time_s: Option<f64>| figure(time_s, seconds);
    let mut rows = Vec::new();
    for phase in &report.phases {
        let duration_s = phase.begin_s.zip(phase.end_s).map(|(begin_s, end_s)| end_s - begin_s);
        let name = format!("{}{}", on_node(&phase.node, has_several_nodes), phase.name);
        let row = vec![name, cell(phase.begin_s), cell(phase.end_s), cell(duration_s)];
        rows.push((phase.begin_s.or(phase.end_s).unwrap_or_default(), row));
    }
    for instant in &report.marks {
        let name = format!("{}{}", on_node(&instant.node, has_several_nodes), instant.name);
        rows.push((instant.at_s, vec![name, seconds(instant.at_s)]));
    }
    rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    rows.insert(0, (0.0, head(["mark", "at", "until", "duration"])));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Rows below a head. Equal changes of several metrics share a row.
fn change_rows(changes: &[PlanChange], detail: Detail, has_several_nodes: bool) -> Vec<Vec<String>> {
    let listed = changes.iter().filter(|change| detail == Detail::All || !change.is_usual());
    let cell = |period: &Option<String>| figure(period.as_deref(), str::to_owned);
    let mut rows = vec![head(["plan change", "at", "from", "to", "reason"])];
    for (change, metrics) in plan_changes::groups(listed) {
        let actor = change.actor.as_deref();
        let actor = actor.map_or_else(String::new, |actor| format!(" of {}", person(actor)));
        let until = change.until_s.map_or_else(String::new, |until_s| format!(", until {until_s:.0} s"));
        let level = change.level.as_ref().map_or_else(String::new, |level| format!(" of {level}s"));
        let node = on_node(&change.node, has_several_nodes);
        let metric = format!("{node}{}{level}", plan_changes::names(&metrics));
        let repeats = change.last_s.map(|last_s| format!("; {} changes until {last_s:.0} s", change.changes));
        let reason =
            format!("{}{actor}{until}{}", change.cause.replace('_', " "), repeats.unwrap_or_default());
        rows.push(vec![metric, seconds(change.at_s), cell(&change.old), cell(&change.new), reason]);
    }
    rows
}

/// Rows below a head. The same refusal by several nodes is listed once.
fn refused_rows(requests: &[RefusedRequest]) -> Vec<Vec<String>> {
    let mut rows = vec![head(["refused request", "period", "actor", "reason"])];
    for RefusedRequest { request, period, actor, reason, .. } in requests {
        let period = figure(period.as_deref(), str::to_owned);
        let actor = figure(actor.as_deref(), |actor| person(actor).to_owned());
        let row = vec![request.clone(), period, actor, reason.clone()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(node: &str) -> RefusedRequest {
        RefusedRequest {
            at_s: 2.0,
            node: node.to_owned(),
            request: "cpu.*".to_owned(),
            period: Some("100us".to_owned()),
            actor: Some("uid 7".to_owned()),
            reason: "the shortest period allowed is 10ms".to_owned(),
            ..RefusedRequest::default()
        }
    }

    #[test]
    fn the_same_refusal_by_several_nodes_is_listed_once() {
        let rows = refused_rows(&[request("n1"), request("n2")]);
        assert_eq!(
            rows[1..],
            [["cpu.*", "100us", "uid 7", "the shortest period allowed is 10ms"].map(str::to_owned)]
        );
    }

    fn change(metric: &str, old: Option<&str>, new: Option<&str>, cause: &str) -> PlanChange {
        PlanChange {
            at_s: 10.0,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
            cause: cause.to_owned(),
            actor: (cause == "lease").then(|| "uid 7".to_owned()),
            until_s: (cause == "lease").then_some(70.0),
            ..PlanChange::default()
        }
    }

    #[test]
    fn equal_changes_share_a_row_and_usual_ones_are_left_out() {
        let changes = [
            change("cpu.usage", None, Some("1s"), "baseline"),
            change("cpu.system", Some("1s"), Some("10ms"), "lease"),
            change("cpu.usage", Some("1s"), Some("10ms"), "lease"),
            change("pids.current", None, Some("10ms"), "lease"),
            change("pids.current", Some("10ms"), None, "lease_end"),
        ];
        let rows = change_rows(&changes, Detail::Summary, false);
        assert_eq!(
            rows.iter().skip(1).map(|row| row.join("|")).collect::<Vec<_>>(),
            [
                "cpu.system and 1 more|10.000 s|1s|10ms|lease of uid 7, until 70 s",
                "pids.current|10.000 s|-|10ms|lease of uid 7, until 70 s",
                "pids.current|10.000 s|10ms|-|lease end",
            ]
        );
        assert_eq!(change_rows(&changes, Detail::All, true).len(), 1 + 4);
    }
}
