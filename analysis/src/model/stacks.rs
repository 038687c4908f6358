//! Call stacks of a job in a report.

use polymeter_proto::units;
use serde::Serialize;

/// Functions in which a job spent its time, by one metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StackReport {
    /// Such as `stacks.cpu`.
    pub metric: String,
    /// All samples stand for this time.
    pub time_s: f64,
    pub samples: u64,
    /// Period: CPU time between two samples; the longest one if it changed.
    pub period_s: f64,
    pub processes: usize,
    pub without_symbol_percent: f64,
    /// Samples that did not arrive at the agent.
    pub lost: u64,
    /// Last readings that were given up. How many samples they would have had is unknown.
    pub unread: u64,
    /// Samples that were taken, and lost before they were stored.
    pub not_stored: u64,
    /// Losses of unknown sources, and gaps without contact to the agent, during the samples.
    pub unexplained: u64,
    /// How often the kernel slowed the sampling.
    pub throttled: u64,
    /// Samples without their outermost functions.
    pub cut: u64,
    /// What the time was used for, as far as names of functions tell it; the one with the most time first.
    pub activities: Vec<ActivityReport>,
    /// Function whose time differs most between processes of the same program; none if none differs by more
    /// than chance.
    pub imbalance: Option<FunctionImbalance>,
    /// Those with the most time of their own, then those with the most time in all.
    pub functions: Vec<FunctionReport>,
    /// Phases with samples, the one that took longest first.
    pub phases: Vec<StackPart>,
    /// Nodes with samples, the one with the most time first.
    pub nodes: Vec<StackPart>,
    /// Processes with much of the time, the one with the most first.
    pub by_process: Vec<StackPart>,
}

impl StackReport {
    /// Says what is missing.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let lost = self.lost.saturating_add(self.not_stored);
        if lost > 0 {
            remarks.push(format!("{} lost", units::counted(lost, "sample")));
        }
        if self.unread > 0 {
            let readings = units::counted(self.unread, "last reading");
            remarks.push(format!("{readings} given up: how many samples are missing is unknown"));
        }
        if self.unexplained > 0 {
            let losses = units::counted(self.unexplained, "loss");
            remarks.push(format!("{losses} of unknown sources at this time: samples may be missing"));
        }
        if self.throttled > 0 {
            let times = units::counted(self.throttled, "time");
            remarks.push(format!("the kernel slowed the sampling {times}: it took too long"));
        }
        if self.cut > 0 {
            remarks.push(format!("{} without the outermost functions", units::counted(self.cut, "sample")));
        }
        remarks
    }
}

/// Time of an activity, such as waiting for locks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ActivityReport {
    /// Such as `locks`.
    pub activity: String,
    /// Share of all samples.
    pub percent: f64,
    /// Functions by whose names the activity is known, with their shares of all samples; those with the most
    /// time.
    pub functions: Vec<FunctionShare>,
}

/// Function in which one process spends more time than the others of the same program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionImbalance {
    pub function: String,
    /// Base name of its file.
    pub module: String,
    pub processes: usize,
    pub most_s: f64,
    pub mean_s: f64,
    /// Difference of both, relative to the mean time of a process in all functions.
    pub percent: f64,
    pub node: String,
    pub process: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionReport {
    /// Its name, or its module in brackets where it has no symbol.
    pub function: String,
    /// Base name of its file, `[kernel]` or `[jit]`; empty if unknown.
    pub module: String,
    /// Time in the function itself.
    pub self_s: f64,
    /// Share of all samples.
    pub self_percent: f64,
    /// Time with what it called.
    pub total_s: f64,
    pub total_percent: f64,
    /// Spread of the time in the function itself; none for a single process.
    pub processes: Option<FunctionSpread>,
}

/// Least and most time that a process spent in a function itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionSpread {
    pub least_s: f64,
    pub most_s: f64,
    /// Node of the process with the most.
    pub most_node: String,
    /// Id of that process; none if it is not told apart from others.
    pub most_process: Option<u32>,
}

/// Functions with the most time of their own in a part of a job: a phase, a node or a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StackPart {
    pub name: String,
    /// Its samples stand for this time.
    pub time_s: f64,
    pub functions: Vec<FunctionShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionShare {
    /// Its name, or its module in brackets where it has no symbol.
    pub function: String,
    /// Base name of its file.
    pub module: String,
    pub self_percent: f64,
}
