//! The governor: when sampling exceeds its CPU budget, it doubles the periods of leases, and halves them
//! again when there is room. Pure: it takes the used CPU time, and returns the next step.

use crate::plan::MAX_STRETCH;

/// Part of a budget below which a lease may recover by one step, so that the governor does not oscillate.
const ROOM: f64 = 0.8;

/// Bounds of the real cost as a multiple of the predicted one.
const SLOWNESS: (f64, f64) = (0.25, 16.0);

/// Least predicted cost, in percent of a CPU, from which the governor learns.
const TELLING_PERCENT: f64 = 0.5;

const NEWEST: f64 = 0.3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Predicted CPU time of all its sampling, in percent of a CPU, without slowness.
    pub(super) percent: f64,
    /// CPU time if its leases were stretched by one step less.
    pub(super) relaxed_percent: f64,
    /// CPU time without its leases.
    pub(super) baseline_percent: f64,
    /// How often its leases were stretched.
    pub(super) stretch: u8,
    /// True if an ordinary user has any of its leases: administrators' leases do not count against the job's
    /// budget.
    pub(super) is_user: bool,
}

/// Budgets in percent of a CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budgets {
    pub(super) node_percent: f64,
    pub(super) job_percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Stretch(usize),
    Relax(usize),
}

#[derive(Debug)]
pub(super) struct Governor {
    slowness: f64,
}

impl Default for Governor {
    fn default() -> Self {
        Self { slowness: 1.0 }
    }
}

impl Governor {
    pub(super) const fn slowness(&self) -> f64 {
        self.slowness
    }

    /// Learns from the used CPU time, in percent of a CPU, and the time that was predicted without slowness.
    pub(super) fn learn(&mut self, used_percent: f64, predicted_percent: f64) {
        if predicted_percent >= TELLING_PERCENT {
            let now = (used_percent / predicted_percent).clamp(SLOWNESS.0, SLOWNESS.1);
            self.slowness += (now - self.slowness) * NEWEST;
        }
    }

    /// Next step, if one is needed. There is one step at a time, so that its effect is measured before the
    /// next.
    pub(super) fn step(&self, used_percent: f64, budgets: Budgets, loads: &[Load]) -> Option<Step> {
        let of_leases = |load: &Load| load.percent - load.baseline_percent;
        // Users' leases are slowed before administrators', and the most expensive first.
        let most_expensive = |wanted: &dyn Fn(&Load) -> bool| {
            let candidates = loads.iter().enumerate().filter(|(_, load)| {
                load.stretch < MAX_STRETCH && load.percent > load.baseline_percent && wanted(load)
            });
            candidates
                .max_by(|(_, a), (_, b)| {
                    (a.is_user, of_leases(a))
                        .partial_cmp(&(b.is_user, of_leases(b)))
                        .unwrap_or(std::cmp::Ordering::Equal)
                })
                .map(|(position, _)| position)
        };
        if used_percent > budgets.node_percent
            && let Some(position) = most_expensive(&|_| true)
        {
            return Some(Step::Stretch(position));
        }
        if let Some(position) =
            most_expensive(&|load| load.is_user && load.percent * self.slowness > budgets.job_percent)
        {
            return Some(Step::Stretch(position));
        }
        let relaxed =
            loads.iter().enumerate().filter(|(_, load)| self.may_relax(load, used_percent, budgets));
        relaxed.max_by_key(|(_, load)| load.stretch).map(|(position, _)| Step::Relax(position))
    }

    fn may_relax(&self, load: &Load, used_percent: f64, budgets: Budgets) -> bool {
        let more = (load.relaxed_percent - load.percent) * self.slowness;
        let node_fits = used_percent + more <= ROOM * budgets.node_percent;
        let job_fits = !load.is_user || load.relaxed_percent * self.slowness <= ROOM * budgets.job_percent;
        load.stretch > 0 && node_fits && job_fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGETS: Budgets = Budgets { node_percent: 20.0, job_percent: 5.0 };

    /// Load of a job whose leases cost `unstretched` percent, of a user or an administrator.
    fn load(unstretched: f64, stretch: u8, is_user: bool) -> Load {
        let at = |stretch: u8| 0.1 + unstretched / f64::from(1_u32 << stretch);
        Load {
            percent: at(stretch),
            relaxed_percent: at(stretch.saturating_sub(1)),
            baseline_percent: 0.1,
            stretch,
            is_user,
        }
    }

    #[test]
    fn stays_at_rest_within_the_budgets() {
        let governor = Governor::default();
        assert_eq!(governor.step(8.0, BUDGETS, &[load(4.0, 0, true), load(3.0, 0, true)]), None);
        assert_eq!(governor.step(99.0, BUDGETS, &[]), None, "the baseline is never touched");
        assert_eq!(governor.step(99.0, BUDGETS, &[load(0.0, 0, true)]), None);
    }

    #[test]
    fn most_expensive_lease_of_users_is_slowed_first() {
        let governor = Governor::default();
        let loads = [load(3.0, 0, true), load(4.0, 0, true), load(18.0, 0, false)];
        assert_eq!(governor.step(25.0, BUDGETS, &loads), Some(Step::Stretch(1)));
        assert_eq!(governor.step(25.0, BUDGETS, &[loads[2]]), Some(Step::Stretch(0)));
        // A job beyond its own budget is stretched although the node has room; an administrator's is not.
        assert_eq!(governor.step(10.0, BUDGETS, &[load(9.0, 0, true)]), Some(Step::Stretch(0)));
        assert_eq!(governor.step(10.0, BUDGETS, &[load(9.0, 0, false)]), None);
    }

    /// Settles within the budgets at any slowness of the machine, does not oscillate, and recovers when the
    /// machine does.
    #[test]
    fn settles_and_recovers() {
        for real in [0.5, 1.0, 3.0, 10.0] {
            let mut governor = Governor::default();
            let mut stretch = [0_u8; 2];
            let mut run = |real: f64, rounds: usize, stretch: &mut [u8; 2]| {
                let mut steps_late = 0;
                for round in 0..rounds {
                    let loads = [load(4.0, stretch[0], true), load(3.0, stretch[1], true)];
                    let predicted: f64 = loads.iter().map(|load| load.percent).sum();
                    governor.learn(predicted * real, predicted);
                    match governor.step(predicted * real, BUDGETS, &loads) {
                        Some(Step::Stretch(at)) => stretch[at] += 1,
                        Some(Step::Relax(at)) => stretch[at] -= 1,
                        None => continue,
                    }
                    steps_late += usize::from(round > rounds / 2);
                }
                steps_late
            };
            assert_eq!(run(real, 100, &mut stretch), 0, "oscillates at {real}: {stretch:?}");
            for (lease, stretch) in [4.0, 3.0].into_iter().zip(stretch) {
                assert!(load(lease, stretch, true).percent * real <= 5.0 * 1.01, "{real}: {stretch}");
            }
            run(0.5, 200, &mut stretch);
            assert_eq!(stretch, [0, 0], "no recovery from {real}");
        }
    }

    #[test]
    fn learns_the_slowness_from_significant_costs() {
        let mut governor = Governor::default();
        governor.learn(0.3, 0.01);
        assert!((governor.slowness() - 1.0).abs() < 1e-9);
        for _ in 0..50 {
            governor.learn(6.0, 2.0);
        }
        assert!((governor.slowness() - 3.0).abs() < 0.01);
    }
}
