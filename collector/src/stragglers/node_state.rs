//! What is known of one node for one rule: its values in the open intervals, and how the last ones compared.

use polymeter_proto::series::Kind;

/// Length of an interval. Metrics with a longer period are compared in each interval that has samples.
pub(super) const INTERVAL_US: i64 = 5_000_000;

/// Intervals that may have samples and are not compared yet: those within the time for late samples and for
/// other collectors, and one more for clocks that are ahead.
pub(super) const OPEN: i64 = 5;
const PLACES: usize = 5;

/// Longest time over which the rate of a counter is computed.
const GAP_US: i64 = 120_000_000;

/// Sum of samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) amount: f64,
    /// Seconds of a counter, samples of a gauge.
    pub(super) weight: f64,
}

impl Sum {
    /// False for what a broken program may have stored.
    pub(super) fn is_valid(self) -> bool {
        self.amount.is_finite() && self.weight.is_finite() && self.weight > 0.0
    }

    fn add(&mut self, other: Self) {
        self.amount += other.amount;
        self.weight += other.weight;
    }
}

/// Sums of the samples of one interval. A node that moves has some at two collectors.
#[derive(Debug, Clone, Copy, Default)]
struct OpenInterval {
    number: i64,
    /// Of this collector.
    own: Sum,
    /// Of other collectors.
    others: Sum,
}

#[derive(Debug)]
pub(super) struct NodeState {
    /// Time in microseconds since the epoch, and value. None for a node of other collectors.
    last: Option<(i64, f64)>,
    /// End of the last interval with samples of other collectors, in microseconds since the epoch.
    elsewhere_us: Option<i64>,
    open: [OpenInterval; PLACES],
    /// Intervals in which it was compared.
    pub(super) compared: u32,
    /// First of the successive intervals in which it was far from the others, and their number.
    pub(super) far: Option<(i64, u32)>,
    /// Successive intervals in which it was not.
    near: u32,
    /// A straggler that was reported is so again only after it was near.
    pub(super) is_reported: bool,
}

/// Number of the interval of a time. Its borders lie between the samples of the usual periods, which are
/// taken at multiples of the period since the epoch.
pub(super) const fn interval_of(time_us: i64) -> i64 {
    time_us.saturating_add(INTERVAL_US / 2).div_euclid(INTERVAL_US)
}

/// End of an interval, in microseconds since the epoch.
pub(super) const fn end_of(number: i64) -> i64 {
    number.saturating_mul(INTERVAL_US).saturating_add(INTERVAL_US / 2)
}

fn place(number: i64) -> usize {
    usize::try_from(number.rem_euclid(OPEN)).unwrap_or_default()
}

fn seconds(duration_us: i64) -> f64 {
    u32::try_from(duration_us).map_or(f64::INFINITY, f64::from) / 1e6
}

impl NodeState {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            elsewhere_us: None,
            open: [OpenInterval::default(); PLACES],
            compared: 0,
            far: None,
            near: 0,
            is_reported: false,
        }
    }

    /// Time of the newest sample, or end of its interval at other collectors, in microseconds since the epoch.
    pub(super) fn newest_us(&self) -> Option<i64> {
        self.last.map(|(time_us, _)| time_us).max(self.elsewhere_us)
    }

    /// Tells whether it sends to this collector, or did.
    pub(super) const fn is_own(&self) -> bool {
        self.last.is_some()
    }

    /// Takes a sample. Samples of intervals before `next` are too late, and count only as the begin of a
    /// rate.
    pub(super) fn sample(&mut self, kind: Kind, time_us: i64, value: f64, next: i64) {
        if !value.is_finite() || self.last.is_some_and(|(last_us, _)| time_us <= last_us) {
            return;
        }
        let last = self.last.replace((time_us, value));
        let (amount, weight) = match (kind, last) {
            (Kind::Gauge, _) => (value, 1.0),
            (Kind::Counter, None) => return,
            (Kind::Counter, Some((last_us, before))) => {
                let lasted_us = time_us.saturating_sub(last_us);
                // A counter that decreases has begun anew.
                if value < before || lasted_us > GAP_US {
                    return;
                }
                (value - before, seconds(lasted_us))
            }
        };
        let number = interval_of(time_us);
        if let Some(open) = self.open(number, next) {
            open.own.add(Sum { amount, weight });
        }
    }

    /// Takes what another collector has of an interval.
    pub(super) fn add_other(&mut self, number: i64, sum: Sum, next: i64) {
        if let Some(open) = self.open(number, next) {
            open.others.add(sum);
            self.elsewhere_us = self.elsewhere_us.max(Some(end_of(number)));
        }
    }

    fn open(&mut self, number: i64, next: i64) -> Option<&mut OpenInterval> {
        if !(next..next.saturating_add(OPEN)).contains(&number) {
            return None;
        }
        let open = self.open.get_mut(place(number))?;
        if open.number != number {
            *open = OpenInterval { number, ..OpenInterval::default() };
        }
        Some(open)
    }

    /// Samples of this collector in an interval; none without.
    pub(super) fn own(&self, number: i64) -> Option<Sum> {
        let open = self.open.get(place(number)).filter(|open| open.number == number)?;
        Some(open.own).filter(|sum| sum.weight > 0.0)
    }

    /// Value in an interval; none without samples.
    pub(super) fn value(&self, number: i64) -> Option<f64> {
        let OpenInterval { mut own, others, .. } =
            self.open.get(place(number)).copied().filter(|open| open.number == number)?;
        own.add(others);
        (own.weight > 0.0).then(|| own.amount / own.weight).filter(|value| value.is_finite())
    }

    /// Takes whether it was far from the others in an interval. After `rearmed` intervals in which it was
    /// not it may be reported again.
    pub(super) fn compare(&mut self, number: i64, is_far: bool, rearmed: u32) {
        self.compared = self.compared.saturating_add(1);
        if is_far {
            let (since, count) = self.far.unwrap_or((number, 0));
            self.far = Some((since, count.saturating_add(1)));
            self.near = 0;
        } else {
            self.far = None;
            self.near = self.near.saturating_add(1);
            self.is_reported &= self.near < rearmed;
        }
    }

    /// An interval without a value, or in which the job is idle.
    pub(super) fn skip(&mut self) {
        self.far = None;
    }
}
