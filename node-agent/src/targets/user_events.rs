//! Limits of users' additions to the data of a target: marks, values of metrics of their own, and changes
//! of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::MarkKind;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::suggest::nearest;
use polymeter_proto::units;

use crate::lanes::SourceId;
use crate::principal::Principal;
use crate::request::{AnnotateError, LeaseError};
use polymeter_service::token_bucket::TokenBucket;

pub(crate) const USER_SUPPLIED: &str = "pushed";

const SERIES: usize = 256;

/// Limit of marks of one target: per second in the long run, and in a burst. Each is a row of text.
const MARKS: (u32, u32) = (10, 10_000);

/// Limit of user-supplied values of one target: per second in the long run, and in a burst.
const VALUES: (u32, u32) = (1_000, 5_000);

/// Most regions of processes of one target. Each has five series.
const REGION_SHAPES: usize = 4_096;

/// Limit of sums of regions of one target: per second in the long run, and in a burst. A process sends those
/// that have changed once a second, and less often when they are refused.
const REGION_SUMS: (u32, u32) = (500, 4_096);

/// Limit of the last sums of processes, which are kept when those before them use up the other limit.
const LAST_REGION_SUMS: (u32, u32) = (100, 8_192);

/// Limit of changes of the plan of one target that leases cause: per second in the long run, and in a burst.
/// Each is a row, one for each metric whose period changes, also when the lease ends: a lease of all metrics
/// causes some 200.
const PLAN_CHANGES: (u32, u32) = (5, 5_000);

/// Most phases of one target that are known to have begun. Beyond, their ends are not checked.
const PHASES: usize = 1_024;

/// Most metrics that a user names in all jobs together. Each name is a row of the store that stays.
const NAMES: usize = 1_024;

const NAME_NS: u64 = 86_400_000_000_000;

/// Names of the metrics that each user supplies, over all jobs.
#[derive(Debug, Default)]
pub(crate) struct UserNames(BTreeMap<u32, BTreeMap<Identifier, u64>>);

impl UserNames {
    /// Notes the use of a name. Fails if the user has used too many others in the last day, unless an
    /// administrator asks.
    pub(crate) fn note(
        &mut self,
        principal: Principal,
        name: &str,
        now_ns: u64,
    ) -> Result<(), AnnotateError> {
        let Some(name) = Identifier::try_from(name).ok().filter(|_| !principal.administrator) else {
            return Ok(());
        };
        let is_recent = |used_ns: &u64| now_ns.saturating_sub(*used_ns) < NAME_NS;
        if !self.0.contains_key(&principal.uid) {
            // Users without a recent name take no memory.
            self.0.retain(|_, names| names.values().any(is_recent));
        }
        let names = self.0.entry(principal.uid).or_default();
        if names.len() >= NAMES && !names.contains_key(&name) {
            names.retain(|_, used_ns| is_recent(used_ns));
            if names.len() >= NAMES {
                return Err(AnnotateError::TooManyNames(NAMES));
            }
        }
        names.insert(name, now_ns);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct UserEvents {
    marks: TokenBucket,
    values: TokenBucket,
    plan_changes: TokenBucket,
    /// Changes of the plan of devices for jobs, by the user. Those of users that changed none lately are left
    /// out.
    demands: BTreeMap<u32, TokenBucket>,
    region_sums: TokenBucket,
    last_region_sums: TokenBucket,
    /// How many times each phase has begun and not ended.
    phases: BTreeMap<Identifier, u32>,
    /// Counts the values; none before the first.
    pub(crate) source: Option<SourceId>,
    series: BTreeMap<(String, Labels), Arc<Shape>>,
    regions: BTreeMap<Labels, Arc<Shape>>,
}

impl Default for UserEvents {
    fn default() -> Self {
        let full = |(per_second, at_once)| TokenBucket::new(f64::from(per_second), f64::from(at_once));
        Self {
            marks: full(MARKS),
            values: full(VALUES),
            plan_changes: full(PLAN_CHANGES),
            demands: BTreeMap::new(),
            region_sums: full(REGION_SUMS),
            last_region_sums: full(LAST_REGION_SUMS),
            phases: BTreeMap::new(),
            source: None,
            series: BTreeMap::new(),
            regions: BTreeMap::new(),
        }
    }
}

impl UserEvents {
    /// Fails if there were too many marks recently.
    pub(crate) fn take_mark(&mut self, now_ns: u64) -> Result<(), AnnotateError> {
        let fits = self.marks.try_take(1.0, now_ns);
        if fits { Ok(()) } else { Err(AnnotateError::TooFast { per_second: MARKS.0 }) }
    }

    /// Notes a mark: the begin or the end of a phase. Fails for the end of a phase that has not begun, if all
    /// begins are known.
    pub(crate) fn note_mark(
        &mut self,
        name: &Identifier,
        kind: MarkKind,
        knows_begins: bool,
    ) -> Result<(), AnnotateError> {
        match kind {
            MarkKind::Instant => {}
            MarkKind::Begin if self.phases.len() < PHASES || self.phases.contains_key(name) => {
                let begun = self.phases.entry(name.clone()).or_default();
                *begun = begun.saturating_add(1);
            }
            MarkKind::Begin => {}
            MarkKind::End => {
                if let Some(begun) = self.phases.get_mut(name) {
                    *begun = begun.saturating_sub(1);
                } else if knows_begins && self.phases.len() < PHASES {
                    let begun = self.phases.keys().map(Identifier::as_str);
                    let similar = nearest(name.as_str(), begun).map(str::to_owned);
                    return Err(AnnotateError::NotBegun { name: name.clone(), similar });
                }
                self.phases.retain(|_, begun| *begun > 0);
            }
        }
        Ok(())
    }

    /// Fails if there were too many values recently.
    pub(crate) fn take_value(&mut self, now_ns: u64) -> Result<(), AnnotateError> {
        let fits = self.values.try_take(1.0, now_ns);
        if fits { Ok(()) } else { Err(AnnotateError::TooFast { per_second: VALUES.0 }) }
    }

    /// `is_last` is true if their process ends. Fails if there were too many recently.
    pub(crate) fn take_regions(
        &mut self,
        count: usize,
        is_last: bool,
        now_ns: u64,
    ) -> Result<(), AnnotateError> {
        let (bucket, per_second) = if is_last {
            (&mut self.last_region_sums, LAST_REGION_SUMS.0)
        } else {
            (&mut self.region_sums, REGION_SUMS.0)
        };
        let fits = bucket.try_take(units::to_f64(count as u64), now_ns);
        if fits { Ok(()) } else { Err(AnnotateError::TooFast { per_second }) }
    }

    /// Shape of a region of a process, which `assign` creates for its first sums. Fails if there are too
    /// many.
    pub(crate) fn region_shape(
        &mut self,
        labels: &Labels,
        assign: impl FnOnce() -> Shape,
    ) -> Result<Arc<Shape>, AnnotateError> {
        if let Some(shape) = self.regions.get(labels) {
            return Ok(Arc::clone(shape));
        }
        if self.regions.len() >= REGION_SHAPES {
            return Err(AnnotateError::TooManyRegions(REGION_SHAPES));
        }
        let shape = Arc::new(assign());
        self.regions.insert(labels.clone(), Arc::clone(&shape));
        Ok(shape)
    }

    pub(crate) fn charge_plan_changes(&mut self, count: u32, now_ns: u64) {
        self.plan_changes.charge(f64::from(count), now_ns);
    }

    /// Fails if leases have changed the plan too often, unless an administrator asks. The error holds the
    /// limit, and the time until the next change is allowed.
    pub(crate) fn check_plan_changes(&self, principal: Principal, now_ns: u64) -> Result<(), LeaseError> {
        if principal.administrator {
            return Ok(());
        }
        check_debt(self.plan_changes, now_ns)
    }

    /// As [`Self::check_plan_changes`], of the demands of one user, so that none excludes another.
    pub(crate) fn check_demands(&self, principal: Principal, now_ns: u64) -> Result<(), LeaseError> {
        self.demands.get(&principal.uid).map_or(Ok(()), |changes| check_debt(*changes, now_ns))
    }

    pub(crate) fn charge_demand(&mut self, principal: Principal, count: u32, now_ns: u64) {
        self.demands.retain(|_, changes| !changes.is_full(now_ns));
        let changes = self.demands.entry(principal.uid);
        let (per_second, at_once) = PLAN_CHANGES;
        let changes = changes.or_insert(TokenBucket::new(f64::from(per_second), f64::from(at_once)));
        changes.charge(f64::from(count), now_ns);
    }

    /// Fails if a user's series would be one too many. The error holds the limit.
    pub(crate) fn check_room(&self, series: &(String, Labels)) -> Result<(), AnnotateError> {
        let fits = self.series.len() < SERIES || self.series.contains_key(series);
        if fits { Ok(()) } else { Err(AnnotateError::TooManySeries(SERIES)) }
    }

    /// Shape of a series, which `assign` creates for its first value. Fails if the series is bounded, as
    /// those of users are, and there are too many.
    pub(crate) fn shape(
        &mut self,
        series: (String, Labels),
        is_bounded: bool,
        assign: impl FnOnce() -> Shape,
    ) -> Result<Arc<Shape>, AnnotateError> {
        if let Some(shape) = self.series.get(&series) {
            return Ok(Arc::clone(shape));
        }
        if is_bounded {
            self.check_room(&series)?;
        }
        let shape = Arc::new(assign());
        self.series.insert(series, Arc::clone(&shape));
        Ok(shape)
    }
}

fn check_debt(mut changes: TokenBucket, now_ns: u64) -> Result<(), LeaseError> {
    match changes.debt_ns(now_ns).div_ceil(1_000_000_000) {
        0 => Ok(()),
        wait_s => Err(LeaseError::TooFast { per_minute: 60 * PLAN_CHANGES.0, wait_s }),
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::period::Period;
    use polymeter_proto::series::ShapeId;

    use super::*;

    fn shape(id: u32) -> Shape {
        let source = Identifier::try_from(USER_SUPPLIED).unwrap();
        Shape {
            id: ShapeId(id),
            job: None,
            source,
            period: Period::SECOND,
            window: None,
            columns: Vec::new(),
        }
    }

    #[test]
    fn marks_values_and_series_are_bounded() {
        let mut events = UserEvents::default();
        assert_eq!((0..20_000).filter(|_| events.take_mark(1).is_ok()).count(), 10_000);
        assert_eq!((0..9_000).filter(|_| events.take_value(1).is_ok()).count(), 5_000);
        assert_eq!(events.take_mark(1), Err(AnnotateError::TooFast { per_second: 10 }));
        let name = |number: u32| (format!("user.m{number}"), Labels::default());
        for number in 0..300 {
            let made = events.shape(name(number), true, || shape(number));
            assert_eq!(made.is_ok(), number < 256, "{number}");
        }
        assert_eq!(events.check_room(&name(700)), Err(AnnotateError::TooManySeries(256)));
        assert_eq!(events.check_room(&name(7)), Ok(()));
        let kept = events.shape(name(3), true, || shape(999)).unwrap();
        assert_eq!(kept.id, ShapeId(3), "a series keeps its shape");
        assert!(events.shape(name(999), false, || shape(999)).is_ok(), "a series of the program itself");
    }

    #[test]
    fn regions_are_bounded_and_the_last_sums_have_a_budget_of_their_own() {
        let mut events = UserEvents::default();
        let taken = [false, true]
            .map(|is_last| (0..1_000).filter(|_| events.take_regions(100, is_last, 1).is_ok()).count());
        assert_eq!(taken, [40, 81]);
        let of = |number: u32| Labels::new(vec![("region".to_owned(), number.to_string())]).unwrap();
        let made = (0..5_000).filter(|number| events.region_shape(&of(*number), || shape(*number)).is_ok());
        assert_eq!(made.count(), 4_096);
        assert_eq!(events.region_shape(&of(7), || shape(0)).unwrap().id, ShapeId(7));
        assert!(events.shape(("user.x".to_owned(), Labels::default()), true, || shape(1)).is_ok());
    }

    #[test]
    fn the_names_of_a_user_are_bounded_over_all_jobs() {
        let mut names = UserNames::default();
        let mut note = |uid, number: u32, now_ns| {
            names.note(Principal { uid, administrator: uid == 0 }, &format!("user.m{number}"), now_ns)
        };
        for number in 0..2_000 {
            assert_eq!(note(7, number, 5).is_ok(), number < 1_024, "{number}");
            assert_eq!(note(0, number, 5), Ok(()));
        }
        assert_eq!(note(8, 1, 5), Ok(()), "another user");
        assert_eq!(note(7, 1_023, 9), Ok(()), "a known name");
        assert_eq!(note(7, 3_000, NAME_NS), Err(AnnotateError::TooManyNames(1_024)));
        // A day later the names that were not used are free again.
        assert_eq!((1_024..3_000).filter(|number| note(7, *number, NAME_NS + 6).is_ok()).count(), 1_023);
        assert_eq!(note(9, 1, 3 * NAME_NS), Ok(()));
        assert_eq!(names.0.len(), 1);
    }

    #[test]
    fn the_changes_of_a_plan_in_a_long_time_are_bounded() {
        let (user, root) = (1_000, 0);
        let of = |uid| Principal { uid, administrator: uid == root };
        let mut events = UserEvents::default();
        let (mut rows, mut refused) = (0, 0);
        // A lease of 100 metrics each second for an hour.
        for now_ns in (1..3_600).map(|second| second * 1_000_000_000) {
            match events.check_plan_changes(of(user), now_ns) {
                Ok(()) => {
                    events.charge_plan_changes(100, now_ns);
                    rows += 100;
                }
                Err(LeaseError::TooFast { per_minute: 300, wait_s: 1..=20 }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(events.check_plan_changes(of(root), now_ns).is_ok());
        }
        assert!((20_000..=23_100).contains(&rows) && refused > 3_000, "{rows} rows, {refused} refused");
        // A user who changes ten metrics every ten seconds never waits.
        let mut events = UserEvents::default();
        for now_ns in (1..36_000).map(|step| step * 10_000_000_000) {
            assert!(events.check_plan_changes(of(user), now_ns).is_ok());
            events.charge_plan_changes(10, now_ns);
        }
    }

    #[test]
    fn a_phase_ends_after_its_begin() {
        let mut events = UserEvents::default();
        let mut note = |name: &str, kind| events.note_mark(&name.try_into().unwrap(), kind, true);
        let end = note("solver", MarkKind::End).unwrap_err().to_string();
        assert!(end.contains("`solver`") && end.contains("--begin"), "{end}");
        // Nested phases of one name, and an instant of the same name.
        for kind in [MarkKind::Begin, MarkKind::Instant, MarkKind::Begin, MarkKind::End] {
            note("solver", kind).unwrap();
        }
        let end = note("slover", MarkKind::End).unwrap_err().to_string();
        assert!(end.contains("did you mean `solver`"), "{end}");
        note("solver", MarkKind::End).unwrap();
        assert!(note("solver", MarkKind::End).is_err());
        // A phase may have begun before the agent.
        assert!(events.note_mark(&"solver".try_into().unwrap(), MarkKind::End, false).is_ok());
    }
}
