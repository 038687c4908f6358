//! What the ledger knows about samples of call stacks that are not stored.

use std::ops::Range;

use polymeter_proto::catalogue::{stacks_source, unread_source};
use polymeter_store::StoreError;
use polymeter_store::reader::{LedgerRow, LossRow, Read};

use super::profile::Spans;

/// Samples of one metric that are missing in a choice of nodes and times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Last readings that were given up on the nodes. Their times are unknown.
    pub unread: u64,
    /// Samples that were taken on the nodes and lost before they were stored. Those of a loss that overlaps
    /// the times all count, and so do those that found no room in a queue, whose times are unknown.
    pub not_stored: u64,
    /// Losses of unknown sources, and gaps without contact to the agent, that overlap the times. Call stacks
    /// may be among what they lack.
    pub unexplained: u64,
}

impl Missing {
    /// Reads what is missing of a metric in spans, each with its node, or none for all.
    pub fn read(
        reader: &mut dyn Read,
        job_key: i64,
        metric: &str,
        spans: &Spans,
    ) -> Result<Self, StoreError> {
        let ledger = reader.ledger(job_key)?;
        Ok(Self::of(&ledger, &reader.losses(job_key)?, metric, spans))
    }

    fn of(ledger: &[LedgerRow], losses: &[LossRow], metric: &str, spans: &Spans) -> Self {
        let source = stacks_source(metric);
        let unread = unread_source(source);
        let mut missing = Self::default();
        for row in ledger.iter().filter(|row| is_on_node(spans, &row.node)) {
            if row.source == source {
                missing.not_stored = missing.not_stored.saturating_add(row.tally.dropped);
            } else if row.source == unread {
                missing.unread = missing.unread.saturating_add(row.tally.missed);
            }
        }
        for loss in losses.iter().filter(|loss| overlaps(spans, loss)) {
            match &loss.source {
                Some(of) if of == source => {
                    missing.not_stored = missing.not_stored.saturating_add(loss.samples);
                }
                Some(_) => {}
                None => missing.unexplained += 1,
            }
        }
        missing
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_of(wanted: Option<&String>, node: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == node)
}

fn is_on_node(spans: &Spans, node: &str) -> bool {
    spans.iter().any(|(wanted, _)| is_of(wanted.as_ref(), node))
}

fn overlaps(spans: &Spans, loss: &LossRow) -> bool {
    let is_within =
        |span_ns: &Range<i64>| loss.first_time_ns < span_ns.end && loss.last_time_ns >= span_ns.start;
    spans.iter().any(|(wanted, span_ns)| is_of(wanted.as_ref(), &loss.node) && is_within(span_ns))
}

#[cfg(test)]
mod tests {
    use polymeter_proto::ledger::Tally;

    use super::*;

    fn row(node: &str, source: &str, missed: u64, dropped: u64) -> LedgerRow {
        LedgerRow {
            session_id: "s".to_owned(),
            node: node.to_owned(),
            source: source.to_owned(),
            tally: Tally { due: missed + dropped, taken: dropped, missed, dropped, ..Tally::default() },
            skipped: 0,
            rejected: 0,
            quarantined: 0,
            stored: 0,
            unknown: 0,
        }
    }

    fn loss(
        node: &str,
        source: Option<&str>,
        samples: u64,
        (first_time_ns, last_time_ns): (i64, i64),
    ) -> LossRow {
        LossRow {
            time_ns: 0,
            node: node.to_owned(),
            session_id: "s".to_owned(),
            job_key: Some(1),
            source: source.map(str::to_owned),
            samples,
            reason: "outbox_full".to_owned(),
            first_time_ns,
            last_time_ns,
        }
    }

    #[test]
    fn what_is_missing_belongs_to_the_metric_the_nodes_and_the_times() {
        let ledger = [
            row("n1", "stacks", 9, 5),
            row("n1", "stacks.unread", 1, 0),
            row("n1", "stacks_dwarf.unread", 4, 0),
            row("n2", "stacks.unread", 2, 0),
            row("n2", "stacks_wait", 0, 7),
            row("n2", "v2/cpu.stat", 8, 8),
        ];
        let losses = [
            loss("n1", Some("stacks"), 30, (100, 200)),
            loss("n2", Some("stacks"), 400, (300, 300)),
            loss("n2", Some("stacks_dwarf"), 5_000, (0, 999)),
            loss("n2", Some("v2/cpu.stat"), 60_000, (0, 999)),
            loss("n1", None, 0, (150, 160)),
        ];
        let missing = |metric: &str, spans: &[(Option<&str>, Range<i64>)]| {
            let spans =
                spans.iter().map(|(node, span_ns)| (node.map(str::to_owned), span_ns.clone())).collect();
            let Missing { unread, not_stored, unexplained } = Missing::of(&ledger, &losses, metric, &spans);
            (unread, not_stored, unexplained)
        };
        let all = [(None, 0..1000)];
        assert_eq!(missing("stacks.cpu", &all), (3, 435, 1));
        assert_eq!(missing("stacks.cpu_dwarf", &all), (4, 5_000, 1));
        assert_eq!(missing("stacks.wait", &all), (0, 7, 1));
        assert_eq!(missing("stacks.cpu", &[(Some("n2"), 0..1000)]), (2, 400, 0));
        assert_eq!(missing("stacks.cpu", &[(Some("n2"), 0..300)]), (2, 0, 0));
        assert_eq!(missing("stacks.cpu", &[(Some("n1"), 0..50), (Some("n1"), 200..250)]), (1, 35, 0));
        assert_eq!(missing("stacks.cpu", &[]), (0, 0, 0));
        assert!(Missing::default().is_empty());
    }
}
