//! Quantities of jobs that resctrl monitors (Intel RDT, AMD QoS, Arm MPAM). Source:
//! `Documentation/filesystems/resctrl.rst` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::Bytes;

const fn event(field: &'static str, place: &'static str) -> Origin {
    Origin::source("resctrl", field, place)
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "resctrl.l3.occupancy",
        Bytes,
        &[event("llc_occupancy", "`mon_data/mon_L3_*/llc_occupancy` of resctrl")],
        "Cache that the job's data occupy, in each L3 domain.",
    ),
    Metric::counter(
        "resctrl.memory.total.bytes",
        Bytes,
        &[event("mbm_total_bytes", "`mon_data/mon_L3_*/mbm_total_bytes` of resctrl")],
        "Bytes that the job moved between the cache of each L3 domain and any memory, since the first reading.",
    ),
    Metric::counter(
        "resctrl.memory.local.bytes",
        Bytes,
        &[event("mbm_local_bytes", "`mon_data/mon_L3_*/mbm_local_bytes` of resctrl")],
        "Those of them that the memory of the domain's own NUMA node delivered or took.",
    ),
];
