//! Events of a job: marks of its users, and changes of the plan. Pure.

use polymeter_proto::period::Sampling;
use polymeter_store::reader::{MarkRow, PlanChangeRow, RefusedRow};

use crate::model::{MarkedInstant, PeriodUse, Phase, PlanChange, RefusedRequest};
use crate::plan_fold::{FoldedChange, FoldedChanges};
use polymeter_proto::units;

/// Sorts marks into phases and instants, in the order of their begin. An end belongs to the last open phase
/// of the same name on the same node.
pub(crate) fn phases(rows: Vec<MarkRow>, started_ns: i64) -> (Vec<Phase>, Vec<MarkedInstant>) {
    let (mut phases, mut instants): (Vec<Phase>, Vec<MarkedInstant>) = (Vec::new(), Vec::new());
    for MarkRow { time_ns, node, name, kind, actor } in rows {
        let (at_s, at_us) = (units::seconds_between(started_ns, time_ns), time_ns.div_euclid(1000));
        match kind.as_str() {
            "begin" => phases.push(Phase {
                name,
                node,
                begin_s: Some(at_s),
                begin_us: Some(at_us),
                end_s: None,
                end_us: None,
                actor,
            }),
            "end" => {
                let mut open = phases.iter_mut().rev().filter(|phase| phase.end_s.is_none());
                match open.find(|phase| phase.name == name && phase.node == node) {
                    Some(phase) => (phase.end_s, phase.end_us) = (Some(at_s), Some(at_us)),
                    None => phases.push(Phase {
                        name,
                        node,
                        begin_s: None,
                        begin_us: None,
                        end_s: Some(at_s),
                        end_us: Some(at_us),
                        actor,
                    }),
                }
            }
            _ => instants.push(MarkedInstant { name, node, at_s, at_us, actor }),
        }
    }
    (phases, instants)
}

pub(crate) fn plan_changes(changes: &FoldedChanges, started_ns: i64) -> Vec<PlanChange> {
    let since_start = |time_ns| units::seconds_between(started_ns, time_ns);
    let changes = changes.lines.iter().map(|FoldedChange { row, changes, last_ns }| PlanChange {
        at_s: since_start(row.time_ns),
        at_us: row.time_ns.div_euclid(1000),
        node: row.node.clone(),
        metric: row.metric.clone(),
        level: row.level.clone(),
        old: row.old_sampling().map(|sampling| sampling.to_string()),
        new: row.new_sampling().map(|sampling| sampling.to_string()),
        cause: row.cause.clone(),
        actor: row.actor.clone(),
        until_s: row.until_ns.map(since_start),
        until_us: row.until_ns.map(|until_ns| until_ns.div_euclid(1000)),
        changes: *changes,
        last_s: last_ns.map(since_start),
        last_us: last_ns.map(|last_ns| last_ns.div_euclid(1000)),
    });
    changes.collect()
}

pub(crate) fn refused_requests(rows: Vec<RefusedRow>, started_ns: i64) -> Vec<RefusedRequest> {
    let requests = rows.into_iter().map(|row| RefusedRequest {
        at_s: units::seconds_between(started_ns, row.time_ns),
        at_us: row.time_ns.div_euclid(1000),
        period: row.sampling().map(|sampling| sampling.to_string()),
        node: row.node,
        request: row.request,
        actor: row.actor,
        reason: row.reason,
    });
    requests.collect()
}

/// Each period of a metric on a node between two times, and for how long it was in force. Successive uses of
/// the same period count together.
pub(crate) fn periods<'a>(
    changes: impl Iterator<Item = &'a PlanChangeRow>,
    started_ns: i64,
    end_ns: i64,
) -> Vec<PeriodUse> {
    let mut uses: Vec<PeriodUse> = Vec::new();
    let mut current: Option<(i64, Option<Sampling>)> = None;
    let mut end = |from_ns: i64, until_ns: i64, sampling: Option<Sampling>| {
        let seconds = units::seconds_between(from_ns.max(started_ns), until_ns.min(end_ns));
        let Some(sampling) = sampling.filter(|_| seconds > 0.0) else { return };
        let text = sampling.to_string();
        match uses.iter_mut().find(|known| known.period == text) {
            Some(known) => known.seconds += seconds,
            None => uses.push(PeriodUse { period: text, seconds }),
        }
    };
    for change in changes {
        if let Some((from_ns, sampling)) = current {
            end(from_ns, change.time_ns, sampling);
        }
        current = Some((change.time_ns, change.new_sampling()));
    }
    if let Some((from_ns, sampling)) = current {
        end(from_ns, end_ns, sampling);
    }
    uses
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

    fn change(seconds: i64, old: Option<i64>, new: Option<i64>) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: seconds * 1_000_000_000,
            node: "n1".to_owned(),
            metric: "cpu.usage".to_owned(),
            old_period_us: old,
            new_period_us: new,
            old_window_us: None,
            new_window_us: None,
            cause: "lease".to_owned(),
            actor: None,
            until_ns: None,
            level: None,
        }
    }

    #[test]
    fn each_period_has_the_time_for_which_it_was_in_force() {
        let (second, fast) = (Some(1_000_000), Some(10_000));
        let changes = [
            change(99, None, second),
            change(110, second, fast),
            change(115, fast, second),
            change(120, second, None),
        ];
        let found: Vec<_> = periods(changes.iter(), 100_000_000_000, 200_000_000_000)
            .into_iter()
            .map(|one| (one.period, one.seconds))
            .collect();
        assert_eq!(found, [("1s".to_owned(), 15.0), ("10ms".to_owned(), 5.0)]);
        let open = periods(changes[..1].iter(), 100_000_000_000, 200_000_000_000);
        assert_eq!(open, [PeriodUse { period: "1s".to_owned(), seconds: 100.0 }]);
    }

    #[test]
    fn times_count_from_the_start_of_the_job() {
        let row = RefusedRow {
            time_ns: 3_000_000_000,
            node: "n2".to_owned(),
            request: "cpu.*".to_owned(),
            period_us: Some(100),
            window_us: None,
            actor: Some("uid 7".to_owned()),
            reason: "the shortest period allowed is 10ms".to_owned(),
        };
        let requests = refused_requests(vec![row], 1_000_000_000);
        assert_eq!((requests[0].at_s, requests[0].period.as_deref()), (2.0, Some("100us")));
    }
}
