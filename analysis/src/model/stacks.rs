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
    /// The functions with the most time of their own, then those with the most time in all.
    pub functions: Vec<FunctionReport>,
    /// The phases with samples, the one that took longest first.
    pub phases: Vec<StackPart>,
    /// The nodes with samples, the one with the most time first.
    pub nodes: Vec<StackPart>,
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

/// The functions with the most time of their own in a part of a job: a phase or a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StackPart {
    /// The name.
    pub name: String,
    /// The time that its samples stand for, in seconds.
    pub time_s: f64,
    /// The functions.
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
