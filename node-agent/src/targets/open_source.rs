//! A source in the sampler, and the changes of sources for the sampler.

use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::period::Period;

use super::ids::Ids;
use super::key::TargetKey;
use super::source_ids::SourceIds;
use crate::cgroups::Step;
use crate::lanes::{Command, SourceId};
use crate::plan::Plan;
use crate::sources::{Descendants, Slot};

/// The ids of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionIds {
    pub(crate) series: Ids,
    pub(crate) sources: SourceIds,
}

/// The properties of a target that changes of its sources need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceOwner<'a> {
    pub(crate) key: &'a TargetKey,
    pub(crate) job: Option<&'a Arc<Job>>,
    pub(crate) plan: &'a Plan,
}

/// A source in the sampler.
#[derive(Debug)]
pub(crate) struct OpenSource {
    pub(crate) id: SourceId,
    pub(crate) slots: Vec<Slot>,
    /// The step or task of the source; none for the whole target.
    pub(crate) step: Option<Arc<Step>>,
    /// True if it stays open when files are opened anew: [`Source::is_lasting`].
    pub(super) is_lasting: bool,
    /// The finder of cgroups that must be read with it.
    pub(super) below: Option<Descendants>,
}

impl OpenSource {
    /// Returns the period of one of its metrics in a plan.
    pub(crate) fn period(&self, plan: &Plan, name: &str) -> Option<Period> {
        match &self.step {
            None => plan.period(name).map(|(period, _)| period),
            Some(step) => plan.step_period(step.level, name),
        }
    }
}

/// The changes of sources for the sampler.
#[derive(Debug, Default)]
pub(crate) struct SourceChanges {
    /// The commands, in order.
    pub(crate) commands: Vec<Command>,
    /// The sources of a job that are read at once, before their first deadline.
    pub(crate) first_reading: Vec<SourceId>,
}
