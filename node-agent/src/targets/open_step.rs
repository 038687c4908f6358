//! A step or task with open sources, and the sources that it lacks.

use std::sync::Arc;

use polymeter_proto::catalogue::Definition;

use crate::cgroups::Step;
use crate::sources::Unavailable;

#[derive(Debug)]
pub(super) struct OpenStep {
    pub(super) step: Arc<Step>,
    pub(super) files: Vec<Definition>,
    /// Perf events that were opened, or are unavailable. An event that is opened again counts from 0;
    /// therefore only new ones are opened.
    pub(super) perf: Vec<Definition>,
    /// Groups opened so far, so that each has a name of its own.
    pub(super) perf_groups: usize,
    pub(super) missing: Vec<Unavailable>,
    /// True if one of its files exists but cannot be read now.
    pub(super) may_recover: bool,
    /// True if its files must be opened anew.
    pub(super) is_stale: bool,
}

#[derive(Debug)]
pub(crate) struct WantedOfStep {
    pub(crate) definitions: Vec<Definition>,
    pub(crate) first_perf_group: usize,
    pub(super) files: Vec<Definition>,
    pub(super) new_perf: Vec<Definition>,
}
