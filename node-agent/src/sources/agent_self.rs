//! The agent's own counts: what measuring costs, for the node and for each job, and what was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::Definition;

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;
use crate::clock;
use crate::counters::{Counters, CpuAccount};

const KIND: &str = "agent";

const JOB_CPU_TIME: &str = "job_cpu_time";

type Compute = fn(&Counters) -> u64;

const FIELDS: [(&str, Compute); 16] = [
    ("cpu_time", |_| clock::process_cpu_ns()),
    ("resident", |_| resident_bytes()),
    ("due", |counters| counters.due.load(Relaxed)),
    ("taken", |counters| counters.taken.load(Relaxed)),
    ("late", |counters| counters.late.load(Relaxed)),
    ("missed", |counters| counters.missed.load(Relaxed)),
    ("absent", |counters| counters.absent.load(Relaxed)),
    ("dropped", Counters::all_dropped),
    ("refused", |counters| counters.refused.load(Relaxed)),
    ("frames_sent", |counters| counters.frames_sent.load(Relaxed)),
    ("bytes_sent", |counters| counters.bytes_sent.load(Relaxed)),
    ("frames_acknowledged", |counters| counters.frames_acknowledged.load(Relaxed)),
    ("outbox_bytes", |counters| counters.outbox_bytes.load(Relaxed)),
    ("spool_bytes", |counters| counters.spool_bytes.load(Relaxed)),
    ("jobs", |counters| counters.jobs.load(Relaxed)),
    ("sources", |counters| counters.sources.load(Relaxed)),
];

pub(super) struct AgentKind;

impl SourceKind for AgentKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|(field, _)| *field).chain([JOB_CPU_TIME]).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        match (request.target, request.host.cpu_account) {
            (Target::Node(counters), _) => {
                let source = AgentSource::new(Arc::clone(counters), &request.wanted);
                opening.push_custom(KIND.to_owned(), Box::new(source));
            }
            (Target::Cgroups(_) | Target::Processes(_), Some(account)) => {
                let slots = request.wanted.iter().cloned().map(Slot::unlabelled).collect();
                let source = AccountSource { account: Arc::clone(account), slots };
                opening.push_custom(KIND.to_owned(), Box::new(source));
            }
            (Target::Cgroups(_) | Target::Processes(_), None) => {
                opening.unavailable_all(&request.wanted, "only for whole jobs");
            }
        }
    }
}

/// True if a source with these slots reads the CPU time of the agent for a job.
pub(crate) fn reads_cpu_account(slots: &[Slot]) -> bool {
    slots.iter().any(|slot| slot.definition.metric.field_of(KIND) == Some(JOB_CPU_TIME))
}

#[derive(Debug)]
struct AccountSource {
    account: Arc<CpuAccount>,
    slots: Vec<Slot>,
}

impl CustomSource for AccountSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        (0..).zip(&self.slots).for_each(|(slot, _)| reading.set(slot, self.account.total_ns()));
        Outcome::Read
    }
}

#[derive(Debug)]
struct AgentSource {
    counters: Arc<Counters>,
    slots: Vec<Slot>,
    compute: Vec<Compute>,
}

impl AgentSource {
    fn new(counters: Arc<Counters>, wanted: &[Definition]) -> Self {
        let of_slots = wanted.iter().filter_map(|definition| {
            let name = definition.metric.field_of(KIND)?;
            let (_, compute) = FIELDS.iter().find(|(known, _)| *known == name)?;
            Some((Slot::unlabelled(definition.clone()), *compute))
        });
        let (slots, compute) = of_slots.unzip();
        Self { counters, slots, compute }
    }
}

impl CustomSource for AgentSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        for (slot, compute) in (0..).zip(&self.compute) {
            reading.set(slot, compute(&self.counters));
        }
        Outcome::Read
    }
}

/// Resident memory of this process in bytes: the second word of `/proc/self/statm` is in pages.
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
