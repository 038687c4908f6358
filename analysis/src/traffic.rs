//! Traffic of a job's nodes with networks and file systems. Pure.
//!
//! The counters are of the node. On a node that the job had alone their increase during the job is the job's;
//! on a shared one it cannot be divided, and is left out.

use std::collections::BTreeMap;

use polymeter_store::reader::JobNodeRow;

use crate::energy::NodeCounters;
use crate::model::{Report, Traffic};

struct Source {
    name: &'static str,
    is_network: bool,
    received: &'static str,
    sent: &'static str,
}

const SOURCES: [Source; 7] = [
    Source {
        name: "infiniband",
        is_network: true,
        received: "node.infiniband.receive.bytes",
        sent: "node.infiniband.transmit.bytes",
    },
    Source {
        name: "slingshot",
        is_network: true,
        received: "node.slingshot.receive.bytes",
        sent: "node.slingshot.transmit.bytes",
    },
    Source {
        name: "interfaces",
        is_network: true,
        received: "node.network.receive.bytes",
        sent: "node.network.transmit.bytes",
    },
    Source {
        name: "lustre",
        is_network: false,
        received: "node.lustre.read.bytes",
        sent: "node.lustre.write.bytes",
    },
    Source {
        name: "nfs",
        is_network: false,
        received: "node.nfs.server.read.bytes",
        sent: "node.nfs.server.write.bytes",
    },
    Source {
        name: "gpfs",
        is_network: false,
        received: "node.gpfs.read.bytes",
        sent: "node.gpfs.write.bytes",
    },
    Source {
        name: "beegfs",
        is_network: false,
        received: "node.beegfs.read.bytes",
        sent: "node.beegfs.write.bytes",
    },
];

pub(crate) fn metrics() -> Vec<&'static str> {
    SOURCES.iter().flat_map(|source| [source.received, source.sent]).collect()
}

/// Adds the traffic of the nodes that the job had alone to a report.
pub(crate) fn add_to(report: &mut Report, rows: &[JobNodeRow], nodes: &BTreeMap<String, NodeCounters>) {
    let (start_ns, end_ns) = report.time_ns();
    for source in &SOURCES {
        let mut traffic = Traffic {
            name: source.name,
            is_network: source.is_network,
            received_bytes: 0.0,
            sent_bytes: 0.0,
            nodes: 0,
        };
        for row in rows.iter().filter(|row| !row.is_shared) {
            let span_ns =
                row.started_ns.max(start_ns)..row.ended_ns.map_or(end_ns, |ended_ns| ended_ns.min(end_ns));
            // A device or file system without values until the end was not there all the time: the others
            // count.
            let [received, sent] = [source.received, source.sent].map(|metric| {
                let counters = nodes.get(&row.node)?.get(metric)?.iter();
                counters.filter_map(|counter| counter.increase(&span_ns)).reduce(|sum, more| sum + more)
            });
            if received.is_some() || sent.is_some() {
                traffic.received_bytes += received.unwrap_or_default();
                traffic.sent_bytes += sent.unwrap_or_default();
                traffic.nodes += 1;
            }
        }
        if traffic.nodes > 0 {
            report.traffic.push(traffic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cumulative::Cumulative;
    use crate::testing::{START_S, busy, report};

    const S: i64 = 1_000_000_000;

    /// Has this increase per second, from a minute before the start of the job to `until` seconds after it.
    fn counter(per_second: f64, until: i64) -> Cumulative {
        let mut total = 5e9;
        let samples = (-6..=until / 10).map(|number| {
            total += per_second * 10.0;
            ((START_S + number * 10) * S, total)
        });
        Cumulative::of_samples(&samples.collect::<Vec<_>>())
    }

    fn row(node: &str, is_shared: bool) -> JobNodeRow {
        let time_ns = |second: i64| (START_S + second) * S;
        let (started_ns, ended_ns) = (time_ns(0), Some(time_ns(3600)));
        JobNodeRow { node: node.to_owned(), started_ns, ended_ns, is_shared, clock_offset_us: None }
    }

    #[test]
    fn a_job_has_the_traffic_of_its_own_nodes() {
        let mut report = report(60, 8, ["n1", "n2", "n3"].map(|node| busy(node, &[4.0; 60])).into());
        let nodes = ["n1", "n2", "n3"].map(|node| {
            let counters = [
                ("node.infiniband.receive.bytes", vec![counter(100.0, 3660), counter(50.0, 3660)]),
                ("node.infiniband.transmit.bytes", vec![counter(10.0, 3660)]),
                ("node.lustre.write.bytes", vec![counter(1.0, 3660), counter(7.0, 600)]),
            ];
            (
                node.to_owned(),
                NodeCounters::from(counters.map(|(name, counters)| (name.to_owned(), counters))),
            )
        });
        let nodes = nodes.into();
        add_to(&mut report, &[row("n1", false), row("n2", true), row("n3", false), row("n4", false)], &nodes);
        let [infiniband, lustre] = &report.traffic[..] else { panic!("{:?}", report.traffic) };
        let near = |value: f64, expected: f64| (value - expected).abs() < 0.001 * expected;
        assert_eq!((infiniband.name, infiniband.is_network, infiniband.nodes), ("infiniband", true, 2));
        assert!(near(infiniband.received_bytes, 2.0 * 150.0 * 3600.0), "{infiniband:?}");
        assert!(near(infiniband.sent_bytes, 2.0 * 10.0 * 3600.0), "{infiniband:?}");
        assert_eq!((lustre.name, lustre.is_network, lustre.received_bytes), ("lustre", false, 0.0));
        assert!(near(lustre.sent_bytes, 2.0 * 3600.0), "a mount that vanished is left out: {lustre:?}");
    }

    #[test]
    fn traffic_of_shared_nodes_is_left_out() {
        let mut report = report(60, 8, vec![busy("n1", &[4.0; 60])]);
        let node = NodeCounters::from([("node.gpfs.read.bytes".to_owned(), vec![counter(1.0, 3660)])]);
        let nodes = BTreeMap::from([("n1".to_owned(), node)]);
        add_to(&mut report, &[row("n1", true)], &nodes);
        assert_eq!(report.traffic, []);
        add_to(&mut report, &[row("n1", false)], &nodes);
        assert_eq!(report.traffic.len(), 1);
    }
}
