//! A finding about a job. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most severe last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Note,
    /// Resources were wasted, or the job was slower than necessary.
    Warning,
    /// The job failed, or most of its resources were wasted.
    Critical,
}

impl Severity {
    /// Most severe first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Warning, Self::Note];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A rule may have a remedy for each. `Any` is for all others, and for an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    Any,
    Slurm,
    Oar,
}

impl Scheduler {
    pub const ALL: [Self; 3] = [Self::Any, Self::Slurm, Self::Oar];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Slurm => "slurm",
            Self::Oar => "oar",
        }
    }
}

/// Resource that a meter shows, and that a rule may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Cpu,
    Memory,
    Gpu,
    Time,
}

impl Resource {
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Gpu, Self::Time];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
            Self::Time => "time",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub id: String,
    /// None if the finding is not about one.
    pub resource: Option<Resource>,
    pub sentence: String,
    /// Text of the evidence.
    pub evidence: String,
    /// Numeric facts and thresholds of the condition and the evidence.
    pub figures: BTreeMap<String, f64>,
    /// Command or directive for next time, by scheduler.
    pub remedies: BTreeMap<Scheduler, String>,
}

impl Finding {
    /// Returns the remedy for a scheduler; if it is unknown or has none, that for all schedulers, or else
    /// those of all.
    pub fn remedy(&self, scheduler: Option<Scheduler>) -> Option<String> {
        let own = scheduler.and_then(|scheduler| self.remedies.get(&scheduler));
        if let Some(found) = own.or_else(|| self.remedies.get(&Scheduler::Any)) {
            return Some(found.clone());
        }
        let others = self.remedies.iter().filter(|_| scheduler.is_none());
        let named: Vec<String> =
            others.map(|(scheduler, text)| format!("{}: {text}", scheduler.name())).collect();
        (!named.is_empty()).then(|| named.join("; "))
    }
}
