//! A tracked target: one job, or the node, with its plan, its sources, and the periods that the data contain.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::{Definition, Origin, Scope};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::JobHandle;
use polymeter_proto::step_level::StepLevel;

use super::owner_search::OwnerSearch;
use super::source_set::SourceSet;
use super::user_events::UserEvents;
use crate::cgroups::{JobCgroups, Mounts, StepCounts};
use crate::plan::{Plan, Release, choose_of_steps, is_of_devices, select, selects};
use crate::request::{Availability, RefusedRequest};
use crate::sources::Target;
use polymeter_service::token_bucket::TokenBucket;

/// Refused requests of one job that are kept: enough for any reader.
const REFUSED_REQUESTS: usize = 64;

/// Rescans of one job because something happened in it: per second in the long run, and in a burst. The begin
/// and the end of a step cause some ten. A job above the limit is rescanned together with all others.
const RESCANS: (u32, u32) = (20, 200);

/// How long findings are valid: devices and events rarely change.
const FINDINGS_AGE_NS: u64 = 60_000_000_000;

/// Results of trial reads, by the names of metrics.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    since_ns: Option<u64>,
    found: BTreeMap<String, Availability>,
    /// Steps and tasks of the target when they were last counted.
    step_counts: StepCounts,
}

impl Findings {
    pub(crate) const fn found(&self) -> &BTreeMap<String, Availability> {
        &self.found
    }

    pub(crate) fn add(&mut self, mut found: BTreeMap<String, Availability>, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
        self.found.append(&mut found);
    }

    pub(crate) const fn step_counts(&self) -> StepCounts {
        self.step_counts
    }

    pub(crate) const fn set_step_counts(&mut self, counts: StepCounts) {
        self.step_counts = counts;
    }

    /// Clears the findings: the target's files have changed.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn forget_old(&mut self, now_ns: u64) {
        if self.since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > FINDINGS_AGE_NS) {
            self.forget();
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct RefusedRequests {
    /// Refused for good, and recorded in the data.
    recorded: Vec<RefusedRequest>,
    /// Not granted yet, by level, those for the ring apart: the cgroup of another controller may follow, with
    /// which they can be granted.
    deferred: BTreeMap<(Option<StepLevel>, bool), Vec<RefusedRequest>>,
}

impl RefusedRequests {
    pub(crate) fn all(&self) -> Vec<RefusedRequest> {
        self.recorded.iter().chain(self.deferred.values().flatten()).cloned().collect()
    }

    /// Adds a request that is refused for good, unless it is known or there are too many. True if it was
    /// added.
    pub(crate) fn add(&mut self, refused: &RefusedRequest) -> bool {
        let is_added = self.recorded.len() < REFUSED_REQUESTS && !self.recorded.contains(refused);
        if is_added {
            self.recorded.push(refused.clone());
        }
        is_added
    }

    pub(crate) fn defer(&mut self, part: (Option<StepLevel>, bool), refused: Vec<RefusedRequest>) {
        self.deferred.insert(part, refused);
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<RefusedRequest> {
        std::mem::take(&mut self.deferred).into_values().flatten().collect()
    }
}

#[derive(Debug)]
pub(crate) struct RescanBudget {
    bucket: TokenBucket,
    is_missed: bool,
}

impl Default for RescanBudget {
    fn default() -> Self {
        let bucket = TokenBucket::new(f64::from(RESCANS.0), f64::from(RESCANS.1));
        Self { bucket, is_missed: false }
    }
}

impl RescanBudget {
    /// Takes one rescan from the budget, or records a missed one.
    pub(crate) fn try_take(&mut self, now_ns: u64) -> bool {
        let is_taken = self.bucket.try_take(1.0, now_ns);
        self.is_missed |= !is_taken;
        is_taken
    }

    pub(crate) const fn note_missed(&mut self) {
        self.is_missed = true;
    }

    /// True once if a rescan was missed.
    pub(crate) const fn take_missed(&mut self) -> bool {
        std::mem::replace(&mut self.is_missed, false)
    }
}

#[derive(Debug)]
pub(crate) struct TrackedTarget {
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) target: Target,
    pub(crate) plan: Plan,
    pub(crate) sources: SourceSet,
    pub(crate) findings: Findings,
    /// Place where discovery found it; none for a registered job.
    pub(crate) found_at: Option<PathBuf>,
    /// Known perhaps only later than the job.
    pub(crate) owner_uid: Option<u32>,
    /// Its GPUs on this node according to the scheduler.
    pub(crate) gpu_devices: Option<Arc<str>>,
    pub(crate) owner_search: OwnerSearch,
    pub(crate) refused: RefusedRequests,
    pub(crate) rescans: RescanBudget,
    pub(crate) user_events: UserEvents,
    pub(crate) node_release: Option<Release>,
    pub(super) recorded: BTreeMap<(Option<StepLevel>, String), Sampling>,
}

impl TrackedTarget {
    pub(crate) fn new(job: Option<Arc<Job>>, target: Target, plan: Plan, found_at: Option<PathBuf>) -> Self {
        let owner_uid = job.as_ref().and_then(|job| job.descriptor.owner_uid);
        Self {
            job,
            target,
            plan,
            sources: SourceSet::default(),
            findings: Findings::default(),
            found_at,
            owner_uid,
            gpu_devices: None,
            owner_search: OwnerSearch::default(),
            refused: RefusedRequests::default(),
            rescans: RescanBudget::default(),
            user_events: UserEvents::default(),
            node_release: None,
            recorded: BTreeMap::new(),
        }
    }

    /// Release that is in force; of several the one that ends last.
    pub(crate) fn release(&self) -> Option<Release> {
        let all = self.plan.releases.iter().copied().chain(self.node_release);
        all.max_by_key(|release| release.ends_ns)
    }

    /// Excludes hardware events while they are released.
    pub(crate) fn step_definitions(&self, level: StepLevel) -> Vec<Definition> {
        let mut definitions = self.plan.step_definitions(level);
        if self.release().is_some() {
            definitions.retain(|definition| !definition.is_of_hardware());
        }
        definitions
    }

    /// None for the node.
    pub(crate) fn handle(&self) -> Option<JobHandle> {
        self.job.as_ref().map(|job| job.handle)
    }

    /// True if neither the owner nor the owner's name is known.
    pub(crate) fn lacks_owner_name(&self) -> bool {
        let has_name = self.job.as_ref().is_some_and(|job| job.descriptor.owner.is_some());
        self.owner_uid.is_none() && !has_name
    }

    /// None for targets without cgroups.
    pub(crate) const fn cgroups(&self) -> Option<&JobCgroups> {
        match &self.target {
            Target::Cgroups(cgroups) => Some(cgroups),
            Target::Processes(_) | Target::Node(_) => None,
        }
    }

    /// Wanted metrics: perf events, and the rest.
    pub(crate) fn definitions(&self) -> (Vec<Definition>, Vec<Definition>) {
        let scopes: &[Scope] = if self.job.is_some() { &[Scope::Job] } else { &[Scope::Node, Scope::Agent] };
        let wanted = scopes.iter().flat_map(|scope| self.plan.definitions(*scope));
        wanted.partition(|definition| matches!(definition.metric.origins, [Origin::Perf(_)]))
    }

    pub(crate) fn perf_cgroup(&self, mounts: &Mounts) -> Option<PathBuf> {
        self.cgroups().and_then(|cgroups| cgroups.perf_directory(mounts)).map(ToOwned::to_owned)
    }

    /// True if steps and tasks must be checked: some are wanted, or some are open.
    pub(crate) fn may_have_steps(&self) -> bool {
        self.plan.wants_steps() || self.sources.has_steps()
    }

    /// Metrics of this target, or of its steps or tasks, that match a selector.
    pub(crate) fn choose(&self, level: Option<StepLevel>, selector: &Selector) -> Vec<Definition> {
        if level.is_some() {
            return choose_of_steps(self.plan.machine, selector);
        }
        let is_job = self.job.is_some();
        let machine = self.plan.machine;
        let mut chosen = select(machine, selector);
        chosen.retain(|definition| {
            // A pattern of devices selects some of their family.
            let is_part = definition.is_family() && is_of_devices(selector);
            (definition.metric.scope == Scope::Job) == is_job
                && (is_part || selects(machine, selector, &definition.name()))
        });
        chosen
    }

    /// Returns those of some metrics whose availability and read time are unknown. perf events that are open
    /// already are left alone.
    pub(crate) fn unprobed(&mut self, mut wanted: Vec<Definition>, now_ns: u64) -> Vec<Definition> {
        self.findings.forget_old(now_ns);
        let found = self.findings.found();
        wanted.retain(|metric| !self.sources.counts(metric) && !found.contains_key(&metric.name()));
        wanted
    }

    pub(crate) fn samples(&self, name: &str) -> bool {
        let mut slots = self.sources.whole().flat_map(|(_, source)| source.slots.iter());
        slots.any(|slot| slot.definition.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::text::Text;

    use super::*;

    fn refused(number: usize) -> RefusedRequest {
        RefusedRequest { request: Text::of(&format!("m{number}")), period: None, reason: Text::of("") }
    }

    #[test]
    fn refused_requests_are_kept_once_and_bounded() {
        let mut kept = RefusedRequests::default();
        assert!(kept.add(&refused(0)));
        assert!(!kept.add(&refused(0)));
        let added = (0..2 * REFUSED_REQUESTS).filter(|number| kept.add(&refused(*number))).count();
        assert_eq!(added, REFUSED_REQUESTS - 1);
        assert_eq!(kept.all().len(), REFUSED_REQUESTS);
        assert_eq!(kept.all()[0].reason.as_str(), "not stated");
    }

    #[test]
    fn rescans_beyond_the_budget_are_missed() {
        let mut budget = RescanBudget::default();
        let taken = (0..1_000).filter(|_| budget.try_take(1)).count();
        assert_eq!(taken, 200);
        assert!(budget.take_missed() && !budget.take_missed());
        assert!(budget.try_take(2_000_000_000));
    }

    #[test]
    fn findings_are_forgotten_when_they_are_old() {
        let mut findings = Findings::default();
        findings.add(BTreeMap::from([("a".to_owned(), Availability::NotNow)]), 5);
        findings.forget_old(FINDINGS_AGE_NS);
        assert_eq!(findings.found().len(), 1);
        findings.forget_old(FINDINGS_AGE_NS + 6);
        assert!(findings.found().is_empty());
    }
}
