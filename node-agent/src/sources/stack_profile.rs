//! Call stacks of one job during an interval, by functions.

use std::sync::Arc;

use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::stacks::FunctionName;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// `None` if there is no symbol.
    pub name: Option<Arc<FunctionName>>,
    pub module: Option<Identifier>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackProfile {
    /// Beginning and end, in microseconds since the epoch.
    pub span_us: (i64, i64),
    pub period: Option<Period>,
    pub functions: Vec<Function>,
    /// Number of the caller's stack, which is smaller, and number of the function.
    pub stacks: Vec<(Option<u32>, u32)>,
    /// Process, number of the stack, and number of samples.
    pub counts: Vec<(u32, u32, u64)>,
    /// Processes whose ranks became known, with their ranks.
    pub ranks: Vec<(u32, u32)>,
    pub lost: u64,
    /// How often the kernel paused sampling.
    pub throttled: u64,
    /// Samples whose outermost functions are missing.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

impl StackProfile {
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|(_, _, count)| count).sum()
    }
}
