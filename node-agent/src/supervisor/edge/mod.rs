//! The edge: all access of the state machines to the machine, without any decision. [`NodeEdge`] is that of
//! an agent; the simulation has another one.

mod job_access;
mod kept_triggers;
mod node;

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::Rule;

pub(super) use self::job_access::Search;
pub(crate) use self::node::Shared;
pub(super) use self::node::{NodeEdge, now};
use super::owner_lookups::{JobPurpose, LookedUp};
use crate::admission::{Descriptors, ReadTimes};
use crate::cgroups::Step;
use crate::lanes::Command;
use crate::lifecycle::{FoundJob, OwnerHint};
use crate::principal::Principal;
use crate::request::Availability;
use crate::sources::{Opened, Unavailable};
use crate::targets::{Now, SessionIds, SourceChanges, TargetKey, Targets, TrackedTarget, WantedOfStep};
use crate::triggers::AddError;

pub(crate) trait Edge {
    fn now(&self) -> Now;

    fn ids(&mut self) -> &mut SessionIds;

    fn read_times(&self) -> ReadTimes;

    fn open_sources(&mut self, key: &TargetKey, target: &mut TrackedTarget, is_anew: bool) -> SourceChanges;

    /// True if files of a target have appeared or changed since they were opened, or if another attempt may
    /// open the sources of these metrics.
    fn has_other_files(&mut self, target: &mut TrackedTarget, wanted: &[Definition]) -> bool;

    /// User, other than the agent's own, that has reserved the hardware's counters.
    fn counters_owner(&self) -> Option<u32>;

    fn probe(&self, target: &TrackedTarget, definitions: &[Definition]) -> BTreeMap<String, Availability>;

    fn steps_of(&self, target: &TrackedTarget) -> BTreeMap<String, Step>;

    /// Bounds the steps and tasks of a job, also by its descriptors.
    fn admits_step(&self, key: &TargetKey, target: &mut TrackedTarget, name: &str) -> bool;

    /// Opens the wanted sources of one step or task, of which perf events may take `perf_descriptors` less
    /// than the job has left.
    fn open_step(
        &self,
        target: &TrackedTarget,
        step: &Arc<Step>,
        wanted: &WantedOfStep,
        perf_descriptors: usize,
    ) -> (Vec<Opened>, Vec<Unavailable>);

    /// Lets the sources of a job that are sums over cgroups or processes find the current ones. True if more
    /// are to be found soon.
    fn scan_cgroups(&self, key: &TargetKey, target: &mut TrackedTarget) -> bool;

    /// Returns true if a process or cgroup of the job has ended meanwhile.
    fn watch_exits(&mut self, key: &TargetKey, target: &TrackedTarget) -> bool;

    fn unwatch_exits(&mut self, job_id: &Identifier);

    /// Jobs in which something has happened; true if a process or a cgroup has ended.
    fn exits(&mut self) -> BTreeMap<Identifier, bool>;

    /// Returns none while the name service is asked.
    fn identify(
        &mut self,
        found: FoundJob,
        needs_number: bool,
        owner: Option<Identifier>,
    ) -> Option<LookedUp<JobPurpose>>;

    /// Returns none while the name service is asked.
    fn look_up_owner(
        &mut self,
        key: TargetKey,
        target: &TrackedTarget,
        hint: OwnerHint,
    ) -> Option<LookedUp<JobPurpose>>;

    fn add_trigger(&self, job: &Arc<Job>, rule: Rule, by: Principal) -> Result<(), AddError>;

    /// Keeps the triggers of jobs beyond a restart.
    fn keep_triggers(&mut self, targets: &Targets);

    async fn command(&mut self, command: Command);

    fn count(&self, targets: &Targets);

    fn count_left_out(&mut self, jobs: usize, descriptors: Descriptors);
}
