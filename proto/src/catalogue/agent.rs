//! The agent's own metrics: what the measuring cost, and what was lost.

use super::{Metric, Origin, Scope};
use crate::series::Unit::{Bytes, Count, Nanoseconds};
use crate::series::{Kind, Unit};

/// What the agent knows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentField {
    /// CPU time of the whole process.
    CpuTime,
    /// Resident memory.
    Resident,
    /// Samples that had a deadline.
    Due,
    /// Samples that were read.
    Taken,
    /// Samples that were read late.
    Late,
    /// Samples that were never read.
    Missed,
    /// Samples that a source did not have.
    Absent,
    /// Samples that found no room.
    Dropped,
    /// Samples that the collector refused.
    Refused,
    /// Frames that were sent, repetitions included.
    FramesSent,
    /// Bytes that were sent, repetitions included.
    BytesSent,
    /// Frames that were acknowledged.
    FramesAcknowledged,
    /// Bytes that wait for an acknowledgement.
    OutboxBytes,
    /// Bytes that lie in the spool.
    SpoolBytes,
    /// Jobs that are followed.
    Jobs,
    /// Sources that are open.
    Sources,
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
        &[Origin::Agent(AgentField::CpuTime)],
        "CPU time of the agent, all threads, user and system.",
    ),
    own(
        "agent.memory.resident",
        Bytes,
        Kind::Gauge,
        &[Origin::Agent(AgentField::Resident)],
        "Resident memory of the agent.",
    ),
    own(
        "agent.samples.due",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Due)],
        "Samples that had a deadline.",
    ),
    own(
        "agent.samples.taken",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Taken)],
        "Samples that were read.",
    ),
    own(
        "agent.samples.late",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Late)],
        "Samples that were read later than a tenth of their period after the deadline.",
    ),
    own(
        "agent.samples.missed",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Missed)],
        "Samples that were never read, because the next deadline had passed already.",
    ),
    own(
        "agent.samples.absent",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Absent)],
        "Samples that their source did not have when it was read.",
    ),
    own(
        "agent.samples.dropped",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Dropped)],
        "Samples that were read and found no room on the way to the collector.",
    ),
    own(
        "agent.samples.refused",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::Refused)],
        "Samples of frames that the collector refused until they were given up.",
    ),
    own(
        "agent.frames.sent",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::FramesSent)],
        "Frames that were sent, repetitions included.",
    ),
    own(
        "agent.frames.acknowledged",
        Count,
        Kind::Counter,
        &[Origin::Agent(AgentField::FramesAcknowledged)],
        "Frames that the collector has committed.",
    ),
    own(
        "agent.bytes.sent",
        Bytes,
        Kind::Counter,
        &[Origin::Agent(AgentField::BytesSent)],
        "Bytes of frames that were sent, repetitions included.",
    ),
    own(
        "agent.outbox.bytes",
        Bytes,
        Kind::Gauge,
        &[Origin::Agent(AgentField::OutboxBytes)],
        "Bytes of frames that wait for an acknowledgement.",
    ),
    own(
        "agent.spool.bytes",
        Bytes,
        Kind::Gauge,
        &[Origin::Agent(AgentField::SpoolBytes)],
        "Bytes on the disk that wait for an acknowledgement, of this life of the agent and of earlier ones.",
    ),
    own("agent.jobs", Count, Kind::Gauge, &[Origin::Agent(AgentField::Jobs)], "Jobs that are followed."),
    own("agent.sources", Count, Kind::Gauge, &[Origin::Agent(AgentField::Sources)], "Sources that are open."),
];
