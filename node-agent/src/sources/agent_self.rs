//! The agent's own metrics: what the measuring cost, and what was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::{AgentField, Definition, Origin};
use polymeter_proto::series::Labels;

use super::layout::Slot;
use super::reading::Reading;
use super::text_file::Outcome;
use crate::clock;
use crate::counters::Counters;

/// The agent itself, as a source.
#[derive(Debug)]
pub struct AgentSelfSource {
    counters: Arc<Counters>,
    slots: Vec<Slot>,
    fields: Vec<AgentField>,
}

impl AgentSelfSource {
    /// The wanted metrics of the agent.
    pub fn new(counters: Arc<Counters>, wanted: &[Definition]) -> Self {
        let mut slots = Vec::new();
        let mut fields = Vec::new();
        for definition in wanted {
            for origin in definition.metric.origins {
                if let Origin::Agent(field) = origin {
                    fields.push(*field);
                    slots.push(Slot { definition: definition.clone(), labels: Labels::default() });
                }
            }
        }
        Self { counters, slots, fields }
    }

    /// Reads the counters. Does not allocate.
    pub fn read(&mut self, reading: &mut Reading) -> Outcome {
        for (slot, field) in (0..).zip(&self.fields) {
            reading.set(slot, self.value(*field));
        }
        Outcome::Read
    }

    fn value(&self, field: AgentField) -> u64 {
        let counter = match field {
            AgentField::CpuTime => return clock::process_cpu_ns(),
            AgentField::Resident => return resident_bytes(),
            AgentField::Due => &self.counters.due,
            AgentField::Taken => &self.counters.taken,
            AgentField::Late => &self.counters.late,
            AgentField::Missed => &self.counters.missed,
            AgentField::Absent => &self.counters.absent,
            AgentField::Dropped => return self.counters.all_dropped(),
            AgentField::Refused => &self.counters.refused,
            AgentField::FramesSent => &self.counters.frames_sent,
            AgentField::BytesSent => &self.counters.bytes_sent,
            AgentField::FramesAcknowledged => &self.counters.frames_acknowledged,
            AgentField::OutboxBytes => &self.counters.outbox_bytes,
            AgentField::SpoolBytes => &self.counters.spool_bytes,
            AgentField::Jobs => &self.counters.jobs,
            AgentField::Sources => &self.counters.sources,
        };
        counter.load(Relaxed)
    }

    /// What the values of a reading are.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// Resident memory of this process: the second word of `/proc/self/statm`, in pages.
pub(crate) fn resident_bytes() -> u64 {
    let mut buffer = [0; 128];
    let opened = rustix::fs::open(
        "/proc/self/statm",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let read = opened.and_then(|file| rustix::io::read(file, &mut buffer)).unwrap_or(0);
    let text = buffer.get(..read).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let pages: u64 = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
