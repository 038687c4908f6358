//! The agent's own counts and cost.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::origin::Origin;
use crate::series::Unit::{Bytes, Count, Nanoseconds};
use crate::series::{Kind, Unit};

/// A count of the agent, by the name of its field in the kind `agent`.
const fn agent(field: &'static str) -> Origin {
    Origin::source("agent", field, "the agent")
}

const fn own(
    name: &'static str,
    unit: Unit,
    kind: Kind,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    Metric::new(name, unit, kind, Scope::Agent, origins, help)
}

pub(crate) static METRICS: &[Metric] = &[
    own(
        "agent.cpu.time",
        Nanoseconds,
        Kind::Counter,
        &[agent("cpu_time")],
        "CPU time of the agent, all threads, user and system.",
    ),
    own("agent.memory.resident", Bytes, Kind::Gauge, &[agent("resident")], "Resident memory of the agent."),
    own("agent.samples.due", Count, Kind::Counter, &[agent("due")], "Samples that had a deadline."),
    own("agent.samples.taken", Count, Kind::Counter, &[agent("taken")], "Samples that were read."),
    own(
        "agent.samples.late",
        Count,
        Kind::Counter,
        &[agent("late")],
        "Samples that were read later than a tenth of their period after the deadline.",
    ),
    own(
        "agent.samples.missed",
        Count,
        Kind::Counter,
        &[agent("missed")],
        "Samples that were never read, because the next deadline had passed already.",
    ),
    own(
        "agent.samples.absent",
        Count,
        Kind::Counter,
        &[agent("absent")],
        "Samples that their source did not have when it was read.",
    ),
    own(
        "agent.samples.dropped",
        Count,
        Kind::Counter,
        &[agent("dropped")],
        "Samples that were read and found no room on the way to the collector.",
    ),
    own(
        "agent.samples.refused",
        Count,
        Kind::Counter,
        &[agent("refused")],
        "Samples of frames that the collector refused until they were given up.",
    ),
    own(
        "agent.frames.sent",
        Count,
        Kind::Counter,
        &[agent("frames_sent")],
        "Frames that were sent, repetitions included.",
    ),
    own(
        "agent.frames.acknowledged",
        Count,
        Kind::Counter,
        &[agent("frames_acknowledged")],
        "Frames that the collector has committed.",
    ),
    own(
        "agent.bytes.sent",
        Bytes,
        Kind::Counter,
        &[agent("bytes_sent")],
        "Bytes of frames that were sent, repetitions included.",
    ),
    own(
        "agent.outbox.bytes",
        Bytes,
        Kind::Gauge,
        &[agent("outbox_bytes")],
        "Bytes of frames that wait for an acknowledgement.",
    ),
    own(
        "agent.spool.bytes",
        Bytes,
        Kind::Gauge,
        &[agent("spool_bytes")],
        "Bytes on the disk that wait for an acknowledgement, of this life of the agent and of earlier ones.",
    ),
    own("agent.jobs", Count, Kind::Gauge, &[agent("jobs")], "Jobs that are followed."),
    own("agent.sources", Count, Kind::Gauge, &[agent("sources")], "Sources that are open."),
];
