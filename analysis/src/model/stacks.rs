//! The call stacks of a job in a report.

use serde::Serialize;

/// The functions in which a job spent its time, by one metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StackReport {
    /// The metric, such as `stacks.cpu`.
    pub metric: String,
    /// The time that all samples stand for, in seconds.
    pub time_s: f64,
    /// The number of samples.
    pub samples: u64,
    /// The time between two samples of a CPU, in seconds; the longest one if it changed.
    pub period_s: f64,
    /// The number of processes with samples.
    pub processes: usize,
    /// The share of the time in functions without a symbol, in percent.
    pub without_symbol_percent: f64,
    /// Samples that did not arrive at the agent.
    pub lost: u64,
    /// The number of times that the kernel slowed the sampling.
    pub throttled: u64,
    /// Samples without their outermost functions.
    pub cut: u64,
    /// What the time was used for, as far as names of functions tell it; the one with the most time first.
    pub activities: Vec<ActivityReport>,
    /// The function whose time differs most between processes of the same program; none if none differs by
    /// more than chance.
    pub imbalance: Option<FunctionImbalance>,
    /// The functions with the most time of their own, then those with the most time in all.
    pub functions: Vec<FunctionReport>,
    /// The phases with samples, the one that took longest first.
    pub phases: Vec<StackPart>,
    /// The nodes with samples, the one with the most time first.
    pub nodes: Vec<StackPart>,
    /// The processes with much of the time, the one with the most first.
    pub by_process: Vec<StackPart>,
}

/// The time of an activity, such as waiting for locks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ActivityReport {
    /// The name, such as `locks`.
    pub activity: String,
    /// Percent of all samples.
    pub percent: f64,
    /// The functions by whose names it is known, with their shares of all samples; those with the most time.
    pub functions: Vec<FunctionShare>,
}

/// A function in which one process spends more time than the others of the same program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionImbalance {
    /// Its name.
    pub function: String,
    /// The base name of its file.
    pub module: String,
    /// The number of processes of the program.
    pub processes: usize,
    /// The most time of a process in the function itself, in seconds.
    pub most_s: f64,
    /// The mean over the processes, in seconds.
    pub mean_s: f64,
    /// The difference of both in percent of the mean time of a process in all functions.
    pub percent: f64,
    /// The node of the process with the most.
    pub node: String,
    /// The id of that process.
    pub process: u32,
}

/// The time of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionReport {
    /// Its name, or its module in brackets where it has no symbol.
    pub function: String,
    /// The base name of its file, `[kernel]` or `[jit]`; empty if unknown.
    pub module: String,
    /// Seconds in the function itself.
    pub self_s: f64,
    /// Percent of all samples.
    pub self_percent: f64,
    /// Seconds in the function and in what it called.
    pub total_s: f64,
    /// Percent of all samples.
    pub total_percent: f64,
    /// The spread of the time in the function itself among the processes; none for a single one.
    pub processes: Option<FunctionSpread>,
}

/// The least and the most time that a process spent in a function itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionSpread {
    /// The least, in seconds.
    pub least_s: f64,
    /// The most, in seconds.
    pub most_s: f64,
    /// The node of the process with the most.
    pub most_node: String,
    /// The id of that process; none if it is not told apart from others.
    pub most_process: Option<u32>,
}

/// The functions with the most time of their own in a part of a job: a phase, a node or a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StackPart {
    pub name: String,
    /// The time that its samples stand for, in seconds.
    pub time_s: f64,
    pub functions: Vec<FunctionShare>,
}

/// A function with its share of a part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FunctionShare {
    /// Its name, or its module in brackets where it has no symbol.
    pub function: String,
    /// The base name of its file.
    pub module: String,
    /// The share of the function itself in percent.
    pub self_percent: f64,
}
