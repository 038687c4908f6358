//! The agent's own counts and cost.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::origin::Origin;
use crate::period::Period;
use crate::series::Unit::{Bytes, Count, Nanoseconds};
use crate::series::{Kind, Unit};

/// The shortest time between two divisions of the agent's CPU time among the jobs.
const SHARES_PERIOD: Period = Period::TEN_MILLISECONDS;

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
    Metric::counter(
        "agent.job.cpu.time",
        Nanoseconds,
        &[agent("job_cpu_time")],
        "CPU time that the agent spent for the job: its share of `agent.cpu.time`, by the time of its reads.",
    )
    .updated_every(SHARES_PERIOD),
    own("agent.memory.resident", Bytes, Kind::Gauge, &[agent("resident")], "Resident memory of the agent."),
    own("agent.samples.due", Count, Kind::Counter, &[agent("due")], "Samples that were due."),
    own("agent.samples.taken", Count, Kind::Counter, &[agent("taken")], "Samples that were taken."),
    own(
        "agent.samples.late",
        Count,
        Kind::Counter,
        &[agent("late")],
        "Samples that were taken late, by more than a tenth of their period.",
    ),
    own(
        "agent.samples.missed",
        Count,
        Kind::Counter,
        &[agent("missed")],
        "Samples that were not taken, because the next one was already due.",
    ),
    own(
        "agent.samples.absent",
        Count,
        Kind::Counter,
        &[agent("absent")],
        "Samples for which the source had no value.",
    ),
    own(
        "agent.samples.dropped",
        Count,
        Kind::Counter,
        &[agent("dropped")],
        "Samples that were taken and dropped because a queue to the collector was full.",
    ),
    own(
        "agent.samples.refused",
        Count,
        Kind::Counter,
        &[agent("refused")],
        "Samples of frames that were dropped because the collector refused them repeatedly.",
    ),
    own(
        "agent.frames.sent",
        Count,
        Kind::Counter,
        &[agent("frames_sent")],
        "Frames that were sent, including retransmissions.",
    ),
    own(
        "agent.frames.acknowledged",
        Count,
        Kind::Counter,
        &[agent("frames_acknowledged")],
        "Frames that the collector acknowledged.",
    ),
    own(
        "agent.bytes.sent",
        Bytes,
        Kind::Counter,
        &[agent("bytes_sent")],
        "Bytes of frames that were sent, including retransmissions.",
    ),
    own(
        "agent.outbox.bytes",
        Bytes,
        Kind::Gauge,
        &[agent("outbox_bytes")],
        "Bytes of frames in memory that the collector has not acknowledged.",
    ),
    own(
        "agent.spool.bytes",
        Bytes,
        Kind::Gauge,
        &[agent("spool_bytes")],
        "Bytes of frames in the spool that the collector has not acknowledged, including those of earlier sessions.",
    ),
    own("agent.jobs", Count, Kind::Gauge, &[agent("jobs")], "Jobs that are tracked."),
    own("agent.sources", Count, Kind::Gauge, &[agent("sources")], "Sources that are open."),
];
