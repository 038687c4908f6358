//! Traffic of a job's nodes in a line. Pure.

use polymeter_analysis::model::{Report, Traffic};
use polymeter_proto::units;

use super::figures::on_nodes;

/// None if the traffic is unknown on all nodes.
pub(crate) fn network(report: &Report) -> Option<String> {
    line(report, true, "received", "sent")
}

/// None if the traffic is unknown on all nodes.
pub(crate) fn file_systems(report: &Report) -> Option<String> {
    line(report, false, "read", "written")
}

fn line(report: &Report, is_network: bool, received: &str, sent: &str) -> Option<String> {
    let of = report.traffic.iter().filter(|traffic| traffic.is_network == is_network);
    let parts: Vec<String> = of.map(|traffic| part(report, traffic, received, sent)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn part(report: &Report, traffic: &Traffic, received: &str, sent: &str) -> String {
    format!(
        "{} {} {received}, {} {sent}{}",
        name(traffic.name),
        units::value("bytes", traffic.received_bytes),
        units::value("bytes", traffic.sent_bytes),
        on_nodes(traffic.nodes, report)
    )
}

fn name(name: &str) -> &str {
    match name {
        "infiniband" => "InfiniBand",
        "slingshot" => "Slingshot",
        "lustre" => "Lustre",
        "nfs" => "NFS",
        "gpfs" => "GPFS",
        "beegfs" => "BeeGFS",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(name: &'static str, is_network: bool, nodes: u64) -> Traffic {
        Traffic { name, is_network, received_bytes: 1024.0, sent_bytes: 3.0 * 1024.0 * 1024.0, nodes }
    }

    #[test]
    fn a_line_names_each_network_and_file_system() {
        let nodes = ["n1", "n2"].map(str::to_owned).to_vec();
        let mut report = Report { nodes, ..Report::default() };
        assert_eq!((network(&report), file_systems(&report)), (None, None));
        report.traffic =
            vec![traffic("infiniband", true, 2), traffic("lustre", false, 2), traffic("nfs", false, 1)];
        assert_eq!(network(&report).as_deref(), Some("InfiniBand 1 KiB received, 3 MiB sent"));
        assert_eq!(
            file_systems(&report).as_deref(),
            Some("Lustre 1 KiB read, 3 MiB written; NFS 1 KiB read, 3 MiB written on 1 of 2 nodes")
        );
    }
}
