//! Targets, and the sources that were opened for them.

use std::sync::Arc;

use polymeter_proto::series::Role;

use super::finder::Finder;
use super::source::Source;
use crate::cgroups::{JobCgroups, Step};
use crate::counters::Counters;

/// An object whose sources are opened.
#[derive(Debug, Clone)]
pub enum Target {
    /// A job with cgroups, or a step or task of one.
    Cgroups(JobCgroups),
    /// A job that is a process and its descendants.
    Processes(u32),
    /// The node and the agent itself.
    Node(Arc<Counters>),
}

/// An open source with its name.
#[derive(Debug)]
pub struct Opened {
    /// The name: `v1/memory.stat`, `perf/0`, `processes`, `agent`. That of a step or task is preceded by the
    /// step's name.
    pub name: String,
    /// The source.
    pub source: Source,
    /// The step or task of the source; none for the whole target.
    pub step: Option<Arc<Step>>,
    /// The finder of cgroups or processes that must be read with it, if it is a sum over them.
    pub below: Option<Finder>,
    /// The roles of the devices that its slots are of, by the positions of the slots.
    pub roles: Vec<(usize, Role)>,
}
