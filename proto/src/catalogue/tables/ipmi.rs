//! Power of the node, as its management controller measures it. Source: "Data Center Manageability Interface
//! Specification" 1.5.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::period::Period;
use crate::series::Unit::Watts;

/// The node's controller, which measures about once a second.
pub(crate) static METRICS: &[Metric] = &[Metric::gauge(
    "node.ipmi.power",
    Watts,
    &[Origin::lagging_source(
        "ipmi",
        "power",
        "`Get Power Reading` of DCMI, over the first device of `ipmi_devintf`",
        Period::SECOND,
    )],
    "Power of the node, power supplies included.",
)
.of_node()];
