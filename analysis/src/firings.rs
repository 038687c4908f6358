//! Triggers of a job that fired, in words.

use polymeter_proto::text::abridged_list;
use polymeter_proto::trigger::{JobEvent, event_of};
use polymeter_proto::units;
use polymeter_store::reader::FiringRow;

use crate::model::FiringReport;

/// Nodes that could not keep an interval, and are named.
const MISSING_NAMED: usize = 3;

pub(crate) fn of(rows: &[FiringRow], started_ns: i64) -> Vec<FiringReport> {
    let mut reports = Vec::with_capacity(rows.len());
    for row in rows {
        reports.push(FiringReport {
            text: text(row),
            rule: row.rule.clone(),
            node: row.node.clone(),
            actor: row.actor.clone(),
            at_s: units::seconds_between(started_ns, row.time_ns),
            at_us: row.time_ns.div_euclid(1000),
            why: row.why.clone(),
            actions: row.actions.clone(),
            begin_us: row.begin_ns.map(|begin_ns| begin_ns.div_euclid(1000)),
            end_us: row.end_ns.map(|end_ns| end_ns.div_euclid(1000)),
            nodes_asked: row.nodes_asked,
            nodes_missing: row.nodes_missing.clone(),
        });
    }
    reports
}

/// What fired and why, what was done, and what could not be done.
fn text(row: &FiringRow) -> String {
    format!("{}; {}", cause(row), done(row))
}

/// What was done, and which nodes could not keep the interval.
pub fn done(row: &FiringRow) -> String {
    let missing = missing(row, &[]).map_or_else(String::new, |missing| format!("; {missing}"));
    format!("{}{missing}", row.actions)
}

/// What fired and why.
pub fn cause(row: &FiringRow) -> String {
    let FiringRow { rule, node, why, .. } = row;
    format!("{rule} on {node}: {why}")
}

/// What a trigger fired at, as in `before the OOM kill`.
pub(crate) fn instant(row: &FiringRow) -> String {
    match event_of(&row.why) {
        Some(JobEvent::Oom) => "the OOM kill".to_owned(),
        Some(JobEvent::TimeLimit) => "the time limit".to_owned(),
        Some(JobEvent::Xid) => "the GPU's error".to_owned(),
        Some(JobEvent::ExitStatus | JobEvent::Signal) => {
            let status = row.why.split(';').next().unwrap_or_default();
            format!("the end with {status}")
        }
        None => format!("trigger {} fired", row.rule),
    }
}

/// Nodes other than `kept_by` that could not keep the interval, with the reasons; none without such nodes.
pub(crate) fn missing(row: &FiringRow, kept_by: &[String]) -> Option<String> {
    let missing = row.nodes_missing.iter().filter(|(node, _)| !kept_by.contains(node));
    let missing: Vec<String> = missing.map(|(node, reason)| format!("{node}: {reason}")).collect();
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let count = units::counted(missing.len() as u64, "node");
    (!missing.is_empty())
        .then(|| format!("{count} {verb} missing: {}", abridged_list(&missing, MISSING_NAMED)))
}

#[cfg(test)]
mod tests {
    use polymeter_proto::trigger;

    use super::*;

    #[test]
    fn a_firing_says_what_it_fired_at() {
        let of = |why: &str| {
            instant(&FiringRow { rule: "r".to_owned(), why: why.to_owned(), ..FiringRow::default() })
        };
        assert_eq!(of(trigger::OOM_KILL), "the OOM kill");
        assert_eq!(of(trigger::OUT_OF_MEMORY), "the OOM kill");
        assert_eq!(of(trigger::AT_TIME_LIMIT), "the time limit");
        assert_eq!(of(&trigger::xid("0", Some(79.0))), "the GPU's error");
        assert_eq!(
            of(&format!("{}; memory.current was 5", trigger::exit_status(3))),
            "the end with exit status 3"
        );
        assert_eq!(of(&trigger::signal(9)), "the end with signal 9");
        assert_eq!(of("pids.current was 5"), "trigger r fired");
    }

    #[test]
    fn nodes_that_kept_nothing_are_counted_and_named() {
        let mut row = FiringRow {
            node: "n1".to_owned(),
            rule: "stall".to_owned(),
            why: "cpu.usage was 0 per second".to_owned(),
            actions: "keeps 35 s".to_owned(),
            ..FiringRow::default()
        };
        assert_eq!(text(&row), "stall on n1: cpu.usage was 0 per second; keeps 35 s");
        row.nodes_missing.insert("n7".to_owned(), "no answer".to_owned());
        assert!(text(&row).ends_with("; keeps 35 s; 1 node is missing: n7: no answer"), "{}", text(&row));
        for node in ["n2", "n3", "n4"] {
            row.nodes_missing.insert(node.to_owned(), "no ring".to_owned());
        }
        let expected = "4 nodes are missing: n2: no ring, n3: no ring, n4: no ring and 1 more";
        assert_eq!(missing(&row, &[]).as_deref(), Some(expected));
        let kept: Vec<String> = ["n2", "n3", "n4", "n7"].map(str::to_owned).into();
        assert_eq!(missing(&row, &kept), None);
    }
}
