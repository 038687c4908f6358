//! The call stacks of one job during an interval, by functions.

use std::sync::Arc;

use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::stacks::FunctionName;

/// A function in a profile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name; none if there is no symbol.
    pub name: Option<Arc<FunctionName>>,
    pub module: Option<Identifier>,
}

/// The samples of an interval, by functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackProfile {
    /// The begin and the end, in microseconds since the epoch.
    pub span_us: (i64, i64),
    /// The period of the samples.
    pub period: Option<Period>,
    pub functions: Vec<Function>,
    /// The stacks: the number of the caller's, which is smaller, and the number of the function.
    pub stacks: Vec<(Option<u32>, u32)>,
    /// The process, the number of the stack, and the number of samples.
    pub counts: Vec<(u32, u32, u64)>,
    /// The processes whose ranks became known, each with its rank.
    pub ranks: Vec<(u32, u32)>,
    /// Samples that were lost.
    pub lost: u64,
    /// The number of times that the kernel paused sampling.
    pub throttled: u64,
    /// Samples whose outermost functions are missing.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

impl StackProfile {
    /// Returns the number of its samples.
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|(_, _, count)| count).sum()
    }
}
