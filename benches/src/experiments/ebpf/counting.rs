//! The programs that count the events of a job.

use std::error::Error;
use std::fmt;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::sources::{Opened, ReadBuffer, Reading, SourceFactory, Target};
use polymeter_benches::job::Job;
use polymeter_proto::catalogue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Nothing,
    Job,
    /// A job without events.
    OtherJob,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Job => "the job",
            Self::OtherJob => "another job",
        })
    }
}

/// Programs that count. They end when it is dropped.
pub(crate) struct Counting(Opened);

/// Starts the programs for the metrics of a job that a pattern selects.
pub(crate) fn open(mounts: &Mounts, job: &Job, metrics: &str) -> Result<Counting, Box<dyn Error>> {
    let root = mounts.v2.as_ref().ok_or("cgroups of version 2 are not mounted")?;
    let v2 = job.directories().iter().find(|directory| directory.starts_with(root)).cloned();
    let target = Target::Cgroups(JobCgroups { v2, ..JobCgroups::default() });
    let wanted = catalogue::select(&metrics.parse()?);
    let (mut opened, unavailable) =
        SourceFactory { ebpf: true, ..SourceFactory::of(mounts) }.open(&target, &wanted);
    match (opened.pop(), unavailable.first()) {
        (Some(opened), None) => Ok(Counting(opened)),
        (_, Some(unavailable)) => Err(unavailable.to_string().into()),
        (None, None) => Err("no metrics".into()),
    }
}

impl Counting {
    pub(crate) fn events(&mut self, metric: &str) -> u64 {
        let mut reading = Reading::absent(self.0.source.slots().len());
        self.0.source.read(&mut ReadBuffer::default(), &mut reading);
        let mut slots = self.0.source.slots().iter().zip(reading.iter());
        slots.find(|(slot, _)| slot.definition.name() == metric).and_then(|(_, value)| value).unwrap_or(0)
    }
}
