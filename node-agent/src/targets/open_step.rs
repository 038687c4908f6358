//! A step or task with open sources, and the sources that it lacks.

use std::sync::Arc;

use polymeter_proto::catalogue::Definition;

use crate::cgroups::Step;
use crate::sources::Unavailable;

/// A step or task whose sources are open.
#[derive(Debug)]
pub(super) struct OpenStep {
    pub(super) step: Arc<Step>,
    /// The metrics for which its files were opened.
    pub(super) files: Vec<Definition>,
    /// The perf events that were opened, or are unavailable. An event that is opened again counts from 0;
    /// therefore only new ones are opened.
    pub(super) perf: Vec<Definition>,
    /// The number of groups opened so far, so that each has a name of its own.
    pub(super) perf_groups: usize,
    /// The perf events that cannot be counted.
    pub(super) missing: Vec<Unavailable>,
    /// True if one of its files exists but cannot be read now.
    pub(super) may_recover: bool,
    /// True if its files must be opened anew.
    pub(super) is_stale: bool,
}

/// The sources that must be opened for a step or task.
#[derive(Debug)]
pub(crate) struct WantedOfStep {
    /// The metrics that they must provide.
    pub(crate) definitions: Vec<Definition>,
    /// The number of its first perf group.
    pub(crate) first_perf_group: usize,
    pub(super) files: Vec<Definition>,
    pub(super) new_perf: Vec<Definition>,
}
