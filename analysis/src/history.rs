//! The events of a job: marks of its users, and changes of the plan. Pure.

use polymeter_proto::period::Period;
use polymeter_store::reader::{MarkRow, PlanChangeRow, RefusedRow};

use crate::model::{MarkedInstant, Phase, PlanChange, RefusedRequest};
use polymeter_proto::units;

/// Sorts marks into phases and instants, in the order of their begin. An end belongs to the last open phase
/// of the same name on the same node.
pub(crate) fn phases(rows: Vec<MarkRow>, started_ns: i64) -> (Vec<Phase>, Vec<MarkedInstant>) {
    let (mut phases, mut instants): (Vec<Phase>, Vec<MarkedInstant>) = (Vec::new(), Vec::new());
    for MarkRow { time_ns, node, name, kind, actor } in rows {
        let at_s = units::seconds_between(started_ns, time_ns);
        let is_open = |phase: &&mut Phase| phase.end_s.is_none() && phase.name == name && phase.node == node;
        match kind.as_str() {
            "begin" => phases.push(Phase { name, node, begin_s: Some(at_s), end_s: None, actor }),
            "end" => match phases.iter_mut().rev().find(is_open) {
                Some(phase) => phase.end_s = Some(at_s),
                None => phases.push(Phase { name, node, begin_s: None, end_s: Some(at_s), actor }),
            },
            _ => instants.push(MarkedInstant { name, node, at_s, actor }),
        }
    }
    (phases, instants)
}

/// Converts the changes of the plan.
pub(crate) fn plan_changes(rows: &[PlanChangeRow], started_ns: i64) -> Vec<PlanChange> {
    let since_start = |time_ns| units::seconds_between(started_ns, time_ns);
    let change = |row: &PlanChangeRow| PlanChange {
        at_s: since_start(row.time_ns),
        node: row.node.clone(),
        metric: row.metric.clone(),
        old: row.old_period_us.and_then(period),
        new: row.new_period_us.and_then(period),
        cause: row.cause.clone(),
        actor: row.actor.clone(),
        until_s: row.until_ns.map(since_start),
    };
    rows.iter().map(change).collect()
}

/// Converts the refused requests.
pub(crate) fn refused_requests(rows: Vec<RefusedRow>, started_ns: i64) -> Vec<RefusedRequest> {
    let request = |row: RefusedRow| RefusedRequest {
        at_s: units::seconds_between(started_ns, row.time_ns),
        node: row.node,
        request: row.request,
        period: row.period_us.and_then(period),
        actor: row.actor,
        reason: row.reason,
    };
    rows.into_iter().map(request).collect()
}

/// Formats a period; none if it is not valid.
pub(crate) fn period(micros: i64) -> Option<String> {
    Some(Period::from_micros(u64::try_from(micros).ok()?).ok()?.to_string())
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
    fn an_end_belongs_to_the_last_open_phase_of_its_name() {
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
        let found: Vec<_> =
            phases.iter().map(|phase| (phase.name.as_str(), phase.begin_s, phase.end_s)).collect();
        assert_eq!(
            found,
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
    fn times_count_from_the_start_of_the_job() {
        let row = RefusedRow {
            time_ns: 3_000_000_000,
            node: "n2".to_owned(),
            request: "cpu.*".to_owned(),
            period_us: Some(100),
            actor: Some("uid 7".to_owned()),
            reason: "the shortest period allowed is 10ms".to_owned(),
        };
        let requests = refused_requests(vec![row], 1_000_000_000);
        assert_eq!((requests[0].at_s, requests[0].period.as_deref()), (2.0, Some("100us")));
    }
}
