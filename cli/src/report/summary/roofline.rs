//! Texts about the roofline of a job.

use polymeter_analysis::model::{Report, RooflinePart};
use polymeter_proto::units;

use super::figure;

/// A name, and numbers.
pub(crate) const ROOFLINE_HEAD: [&str; 7] =
    ["phase", "time", "FLOP/s", "memory", "FLOP/byte", "bound by", "of the roof"];

pub(crate) fn roofline_row(part: &RooflinePart) -> [String; 7] {
    [
        part.phase.clone().unwrap_or_else(|| "(whole job)".to_owned()),
        units::elapsed(part.time_s),
        units::value("flop/s", part.flop_per_s),
        units::value("bytes/s", part.bytes_per_s),
        figure(part.flop_per_byte, units::number),
        part.bound.name().to_owned(),
        units::value("percent", part.roof_percent),
    ]
}

/// Roofs, and the nodes that are left out.
pub(crate) fn roofline_remarks(report: &Report) -> Vec<String> {
    let Some(roofline) = &report.roofline else { return Vec::new() };
    let mut remarks = Vec::new();
    if let (Some(memory), Some(double), Some(single)) =
        (roofline.memory_bytes_per_s, roofline.double_flop_per_s, roofline.single_flop_per_s)
    {
        let [double, single] = [double, single].map(|peak| units::value("flop/s", peak));
        let memory = units::value("bytes/s", memory);
        remarks.push(format!(
            "rates are means of a node; its roofs: memory {memory}, double precision {double}, single precision \
             {single}; shares are those of double precision"
        ));
    }
    for left_out in &roofline.left_out {
        let nodes = match left_out.nodes {
            1 => left_out.node.clone(),
            more => format!("{} and {}", left_out.node, units::counted(more - 1, "more node")),
        };
        remarks.push(format!("without {nodes}: {}", left_out.reason));
    }
    remarks
}
