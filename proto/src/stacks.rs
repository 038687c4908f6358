//! Call stacks of jobs: functions, stacks as nodes of a tree, and the samples of an interval.
//!
//! Ids belong to the session, and each is announced before its first use. Functions and stacks belong to a
//! job, since their names are the job's data: two jobs that run the same program share none.

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;
use crate::period::Period;
use crate::series::{Identifier, JobHandle, MetricId};
use crate::text::{Unprintable, escape, shorten};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StackId(pub u32);

/// Demangled name of a function: at most [`limits::FUNCTION_NAME_BYTES`], not empty, without [`Unprintable`]
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FunctionName(String);

impl FunctionName {
    /// Returns the name for any text of a symbol table, [escaped](escape) and shortened where it must be;
    /// none for an empty text.
    pub fn escaped(raw: &[u8]) -> Option<Self> {
        (!raw.is_empty()).then(|| Self(shorten(escape(raw), limits::FUNCTION_NAME_BYTES)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for FunctionName {
    /// Makes any text valid: each refused character becomes `?`, and so does an empty text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let name = if text.is_empty() {
            "?".to_owned()
        } else {
            text.replace(|c: char| Unprintable::of(c).is_some(), "?")
        };
        Ok(Self(shorten(name, limits::FUNCTION_NAME_BYTES)))
    }
}

/// Dictionary entry of a function. All addresses of a module that have no symbol are one function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionDescriptor {
    pub job: JobHandle,
    /// None if there is no symbol.
    pub name: Option<FunctionName>,
    /// Name of the file without its directory, `[kernel]` or `[jit]`; none if the address belongs to no file.
    pub module: Option<Identifier>,
}

/// Dictionary entry of a stack: a node of a tree. Its function names its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackDescriptor {
    /// Stack of the caller; none for the outermost function.
    pub parent: Option<StackId>,
    pub function: FunctionId,
}

/// Samples of one process in one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCount {
    /// Process (thread group) id on the node.
    pub process: u32,
    pub stack: StackId,
    /// Samples whose innermost function is that of the stack.
    pub count: u64,
}

/// Samples of one job on this node during an interval. An interval with more than [`limits::STACK_COUNTS`]
/// counts is divided into several with the same times; the first has the numbers of what was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackInterval {
    /// A metric such as `stacks.cpu`.
    pub metric: MetricId,
    pub job: JobHandle,
    pub begin_us: i64,
    pub end_us: i64,
    /// CPU time between two samples of a CPU: the time of a stack is its count times this.
    pub period: Period,
    /// Counts to be added up: a process and a stack may occur several times.
    pub counts: Vec<StackCount>,
    /// Samples that the kernel took and could not deliver, or that found no room in the agent.
    pub lost: u64,
    /// How often the kernel paused sampling since it took too long.
    pub throttled: u64,
    /// Samples whose outermost functions are missing: the stack was deeper than the limit or could not be
    /// unwound, or the table of stacks was full.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

impl StackInterval {
    pub fn samples(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(count.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::envelope;

    fn decode(text: &str) -> String {
        let mut bytes = Vec::new();
        envelope::put(&mut bytes, &text);
        envelope::get::<FunctionName>(&bytes).unwrap().0
    }

    #[test]
    fn names_of_functions_are_printable_and_bounded() {
        let name = |raw: &[u8]| FunctionName::escaped(raw).map(|name| name.0);
        assert_eq!(name(b"void f<int>(std::vector<int>&)").unwrap(), "void f<int>(std::vector<int>&)");
        assert_eq!(name(b"a\x1b[31m\xff").unwrap(), r"a\x1b[31m\xff");
        assert_eq!(name(b""), None);
        let long = name(&[b'x'; 5000]).unwrap();
        assert_eq!(long.len(), limits::FUNCTION_NAME_BYTES);
        assert_eq!(decode("a\nb\u{202e}"), "a?b?");
        assert_eq!(decode(""), "?");
        assert_eq!(decode(&"é".repeat(5000)).len(), limits::FUNCTION_NAME_BYTES - 1);
        assert_eq!(decode(&long), long);
    }
}
