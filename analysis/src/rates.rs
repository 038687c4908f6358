//! Rates of counters over windows that are long enough for the granularity of the counter. Pure.

use polymeter_proto::catalogue;

use crate::cumulative::steps;
use crate::hardware::Limit;
use polymeter_proto::units;

/// Shortest window in granularities of the counter: one tick more or less changes a rate by at most a tenth.
const WINDOW_GRANULARITIES: i64 = 10;

/// Tolerance of a window's length is the length divided by this, at most half the time between two samples,
/// since samples are never taken exactly at their deadlines.
const TOLERANCE_PART: i64 = 20;

/// Longest time by which a counter may lag behind: a CPU without scheduler ticks counts its time once a
/// second. An increase that exceeds a limit by more shows that the limit does not hold.
const LAG_MAX_S: f64 = 1.0;

/// Increase per second of a counter, over windows that follow each other.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Time of each sample but the first, and the rate of the window that contains the time since the sample
    /// before.
    pub(crate) points: Vec<(i64, f64)>,
    /// Shortest window; none if each lies between two samples.
    pub(crate) window_ns: Option<i64>,
    /// True if the rate exceeded the limit even over all samples, and was lowered to it.
    pub(crate) is_clamped: bool,
}

/// Length of a window for a metric; 0 if every reading is exact.
pub fn window_ns(metric: &str) -> i64 {
    let granularity = catalogue::find(metric).and_then(|definition| definition.metric.granularity());
    let granularity_ns = granularity.map_or(0, |period| i64::try_from(period.as_nanos()).unwrap_or(i64::MAX));
    granularity_ns.saturating_mul(WINDOW_GRANULARITIES)
}

/// Some successive times between two samples of a counter.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    length_ns: i64,
    increase: f64,
    gaps: usize,
}

impl Window {
    fn length_s(&self) -> f64 {
        units::seconds_between(0, self.length_ns)
    }

    fn rate(&self) -> f64 {
        self.increase / self.length_s()
    }

    fn join(&mut self, other: &Self) {
        self.length_ns = self.length_ns.saturating_add(other.length_ns);
        self.increase += other.increase;
        self.gaps += other.gaps;
    }
}

/// Maximum of a rate, with the accuracy of the counter: an increase belongs to a window that is longer or
/// shorter by up to `accuracy_s`, since the counter lags behind by up to a granularity, and since it is read
/// a little later than the time of the sample says.
#[derive(Debug, Clone, Copy)]
struct Bound {
    rate: f64,
    accuracy_s: f64,
}

impl Bound {
    fn is_exceeded(&self, window: &Window) -> bool {
        window.increase > self.rate * (window.length_s() + self.accuracy_s)
    }

    /// Tells whether successive windows exceed the rate by more than any lag of a counter explains, as when a
    /// job uses more cores than the scheduler assigned.
    fn is_refuted(&self, windows: &[Window]) -> bool {
        let mut excess = 0.0_f64;
        windows.iter().any(|window| {
            excess = (excess + window.increase - self.rate * window.length_s()).max(0.0);
            excess > self.rate * LAG_MAX_S
        })
    }
}

/// Computes the rates of a counter over windows of at least `window_ns`. A window whose rate exceeds `limit`
/// is joined with others beside it: an increase was counted or read too late. A limit that the hardware does
/// not set is ignored if the counter exceeds it over all samples, or for so long that no lag explains it.
pub(crate) fn rates(values: &[(i64, f64)], window_ns: i64, limit: Option<Limit>) -> Rates {
    let (times, gaps) = gaps(values);
    let mut whole = Window::default();
    gaps.iter().for_each(|gap| whole.join(gap));
    let mean_gap_ns = whole.length_ns / i64::try_from(gaps.len()).unwrap_or(i64::MAX).max(1);
    let tolerance_ns = (window_ns / TOLERANCE_PART).min(mean_gap_ns / 2);
    let mut windows = joined(&gaps, window_ns - tolerance_ns);
    let accuracy_s = units::seconds_between(0, window_ns / WINDOW_GRANULARITIES);
    let bound = limit.and_then(|limit| {
        let bound = Bound { rate: limit.rate, accuracy_s };
        let holds = limit.is_hard || !(bound.is_exceeded(&whole) || bound.is_refuted(&windows));
        holds.then_some(bound)
    });
    if let Some(bound) = bound {
        windows = widened(windows, &bound);
    }
    let is_clamped = bound.is_some_and(|bound| bound.is_exceeded(&whole));
    let most = bound.filter(|_| is_clamped).map_or(f64::INFINITY, |bound| bound.rate);
    let is_between_samples = windows.len() == gaps.len();
    let length_ns = match windows.as_slice() {
        [only] => Some(only.length_ns),
        [..] if window_ns > 0 => Some(window_ns),
        several => several.iter().map(|window| window.length_ns).min(),
    };
    let rates = windows.iter().flat_map(|window| std::iter::repeat_n(window.rate().min(most), window.gaps));
    Rates {
        points: times.into_iter().zip(rates).collect(),
        window_ns: length_ns.filter(|_| !is_between_samples),
        is_clamped,
    }
}

/// Times between samples of a counter, and the end of each.
fn gaps(values: &[(i64, f64)]) -> (Vec<i64>, Vec<Window>) {
    let (mut times, mut gaps) = (Vec::new(), Vec::<Window>::new());
    let mut begin_ns = None;
    for (time_ns, increase) in steps(values) {
        let length_ns = time_ns.saturating_sub(*begin_ns.get_or_insert(time_ns));
        if length_ns > 0 {
            times.push(time_ns);
            gaps.push(Window { length_ns, increase, gaps: 1 });
            begin_ns = Some(time_ns);
        } else if let Some(last) = gaps.last_mut() {
            last.increase += increase;
        }
    }
    (times, gaps)
}

/// Joins windows until each is at least `length_min_ns` long, unless all together are shorter.
fn joined(gaps: &[Window], length_min_ns: i64) -> Vec<Window> {
    let mut joined: Vec<Window> = Vec::new();
    for gap in gaps {
        match joined.last_mut().filter(|last| last.length_ns < length_min_ns) {
            Some(last) => last.join(gap),
            None => joined.push(*gap),
        }
    }
    if let Some(rest) = joined.pop_if(|last| last.length_ns < length_min_ns) {
        match joined.last_mut() {
            Some(last) => last.join(&rest),
            None => joined.push(rest),
        }
    }
    joined
}

/// Joins each window that exceeds the bound with the one beside it that has the lower rate, until it does not
/// exceed it, or contains all.
fn widened(windows: Vec<Window>, bound: &Bound) -> Vec<Window> {
    let mut widened: Vec<Window> = Vec::with_capacity(windows.len());
    let mut rest = windows.into_iter().peekable();
    while let Some(mut window) = rest.next() {
        while bound.is_exceeded(&window) {
            let (before, after) = (widened.last().map(Window::rate), rest.peek().map(Window::rate));
            let is_after = after.is_some_and(|after| before.is_none_or(|before| after < before));
            let Some(lower) = (if is_after { rest.next() } else { widened.pop() }) else { break };
            window.join(&lower);
        }
        widened.push(window);
    }
    widened
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    #[expect(clippy::unnecessary_wraps, reason = "a limit is optional")]
    const fn hard(rate: f64) -> Option<Limit> {
        Some(Limit { rate, is_hard: true })
    }

    /// Two busy CPUs at 1 ms, whose counter advances every 4 ms by the ticks of both.
    fn ticks(count: i64) -> Vec<(i64, f64)> {
        (0..count).map(|ms| (ms * MS, units::to_f64(8_000_000 * u64::try_from(ms / 4).unwrap()))).collect()
    }

    fn max(rates: &Rates) -> f64 {
        rates.points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    #[test]
    fn ticks_do_not_cause_impossible_rates() {
        let between_samples = rates(&ticks(1000), 0, None);
        assert_eq!((max(&between_samples), between_samples.window_ns), (8e9, None));
        let over_windows = rates(&ticks(1000), 30 * MS, None);
        assert!((2e9..2.3e9).contains(&max(&over_windows)), "{}", max(&over_windows));
        let limited = rates(&ticks(1000), 30 * MS, hard(2.02e9));
        // The limit has the accuracy of the counter, a tenth of the window.
        assert!(max(&limited) <= 2.02e9 * 1.1 && !limited.is_clamped, "{}", max(&limited));
        assert_eq!(limited.window_ns, Some(30 * MS));
    }

    #[test]
    fn a_window_is_found_for_the_limit() {
        let limited = rates(&ticks(1000), 0, hard(2.2e9));
        assert!(max(&limited) <= 2.2e9 && limited.window_ns.is_some() && !limited.is_clamped, "{limited:?}");
    }

    #[test]
    fn a_rate_above_the_limit_over_all_samples_is_clamped() {
        let values = [(0, 0.0), (100 * MS, 5e8), (200 * MS, 1e9)];
        let limited = rates(&values, 40 * MS, hard(2e9));
        let points = vec![(100 * MS, 2e9), (200 * MS, 2e9)];
        assert_eq!(limited, Rates { points, window_ns: Some(200 * MS), is_clamped: true });
    }

    #[test]
    fn a_job_shorter_than_a_window_has_one_rate() {
        let short = rates(&ticks(5), 40 * MS, None);
        assert_eq!((short.points.len(), short.window_ns), (4, Some(4 * MS)));
        assert!(short.points.iter().all(|(_, rate)| *rate == short.points[0].1), "{short:?}");
        assert!((1.99e9..2.01e9).contains(&max(&short)), "{short:?}");
        assert_eq!(rates(&ticks(1), 40 * MS, None).points, []);
        assert_eq!(rates(&[], 40 * MS, hard(1.0)).points, []);
        assert_eq!(rates(&[(7, 1.0), (7, 2.0)], 0, hard(1.0)).points, []);
    }

    #[test]
    fn samples_at_the_period_of_the_window_give_a_rate_each() {
        let values = [(0, 0.0), (99 * MS, 1.0), (201 * MS, 3.0), (300 * MS, 4.0)];
        let between_samples = rates(&values, 100 * MS, None);
        let times: Vec<i64> = between_samples.points.iter().map(|(at, _)| *at / MS).collect();
        assert_eq!((times.as_slice(), between_samples.window_ns), ([99, 201, 300].as_slice(), None));
    }

    #[test]
    fn a_restarted_counter_has_no_negative_rate() {
        let values = [(0, 5.0), (10 * MS, 9.0), (20 * MS, 1.0), (30 * MS, 2.0)];
        assert!(rates(&values, 0, None).points.iter().all(|(_, rate)| *rate > 0.0));
    }

    type Load = [(f64, f64)];

    /// CPU time until a time, in nanoseconds.
    fn used(load: &Load, time_s: f64) -> f64 {
        let mut begin_s = 0.0;
        let mut used_s = 0.0;
        for (length_s, cores) in load {
            used_s += cores * (time_s - begin_s).clamp(0.0, *length_s);
            begin_s += length_s;
        }
        used_s * 1e9
    }

    /// How the counter of a load is sampled, in nanoseconds: around deadlines, up to a delay after the time
    /// of the sample. The counter advances with each tick.
    #[derive(Debug, Clone, Copy)]
    struct Sampling {
        period: i64,
        tick: i64,
        delay: i64,
    }

    fn sampled(load: &Load, Sampling { period, tick, delay }: Sampling) -> Vec<(i64, f64)> {
        let length_s: f64 = load.iter().map(|(length_s, _)| length_s).sum();
        let mut state = 7_u64;
        let mut up_to = |most: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 33).unwrap() % (most + 1)
        };
        let mut samples = Vec::new();
        let mut deadline_ns = 0;
        while units::seconds_between(0, deadline_ns) < length_s {
            let time_ns = deadline_ns + up_to(period / 10);
            let read_ns = (time_ns + up_to(delay)) / tick * tick;
            samples.push((time_ns, used(load, units::seconds_between(0, read_ns))));
            deadline_ns += period;
        }
        samples
    }

    #[test]
    fn phases_of_full_load_keep_their_rates_and_their_ends() {
        for cores in [1.0, 4.0, 32.0, 192.0] {
            for (period, tick, delay) in
                [(1000, 10, 0), (1000, 4, 5), (1000, 4, 300), (50, 4, 2), (250, 1, 20), (7000, 10, 10)]
            {
                let sampling = Sampling { period: period * MS, tick: tick * MS, delay: delay * MS };
                let [period_s, tick_s, delay_s] =
                    [period, tick, delay].map(|ms| units::seconds_between(0, ms * MS));
                for phase_s in [20.0, 60.0, 660.0] {
                    let load = [(30.0, 0.2), (phase_s, cores), (100.0, 0.01 * cores)];
                    let samples = sampled(&load, sampling);
                    let found = rates(&samples, 100 * MS, hard(cores * 1e9));
                    let case = format!("{cores} cores for {phase_s} s, {sampling:?}");
                    assert!(max(&found) <= cores * 1e9 * 1.1 && !found.is_clamped, "{case}: {}", max(&found));
                    // The rates are those of the load except near the ends of its phases.
                    let edge_s = 3.0 * period_s.max(0.1);
                    let error = cores * (tick_s + 2.0 * delay_s) / period_s.max(0.1) + 1e-6;
                    let mut begin_ns = samples[0].0;
                    for (end_ns, rate) in &found.points {
                        let (begin_s, end_s) =
                            (units::seconds_between(0, begin_ns), units::seconds_between(0, *end_ns));
                        let near = |at_s: f64| begin_s < at_s + edge_s && end_s > at_s - edge_s;
                        let mean = (used(&load, end_s) - used(&load, begin_s)) / (end_s - begin_s);
                        if !near(30.0) && !near(30.0 + phase_s) {
                            assert!(
                                (rate - mean).abs() <= error * 1e9,
                                "{case}: {rate}, not {mean} at {end_s} s"
                            );
                        }
                        begin_ns = *end_ns;
                    }
                }
            }
        }
    }

    #[test]
    fn a_late_sample_widens_two_windows_only() {
        let mut samples: Vec<(i64, f64)> =
            (0..20_i32).map(|at| (i64::from(at) * 1000 * MS, 3e9 * f64::from(at))).collect();
        // The counter of 3 busy cores of 4 was read half a second after the time of its sample.
        samples[9].1 += 1.5e9;
        let found = rates(&samples, 100 * MS, hard(4e9));
        assert!(found.points.iter().all(|(_, rate)| *rate == 3e9), "{found:?}");
    }

    #[test]
    fn cores_beyond_those_of_the_scheduler_are_shown_if_no_lag_explains_them() {
        let assigned = Some(Limit { rate: 2e9, is_hard: false });
        let sampling = Sampling { period: 1000 * MS, tick: 4 * MS, delay: 2 * MS };
        let of = |load: &Load| max(&rates(&sampled(load, sampling), 100 * MS, assigned)) / 1e9;
        let near = |found: f64, cores: f64| (found - cores).abs() < 0.05;
        assert!(near(of(&[(60.0, 3.99), (600.0, 1.0)]), 3.99));
        assert!(near(of(&[(10.0, 0.1), (3.0, 8.0), (100.0, 1.0)]), 8.0));
        assert!(near(of(&[(60.0, 3.99)]), 3.99));
        assert!(near(of(&[(60.0, 2.0), (60.0, 0.1)]), 2.0));
        // The windows of nodes that really have two CPUs contain the excess and as much idle time.
        let found = rates(&sampled(&[(60.0, 2.5), (600.0, 1.0)], sampling), 100 * MS, hard(2e9));
        assert!(max(&found) <= 2.02e9 && !found.is_clamped, "{}", max(&found));
    }

    proptest! {
        #[test]
        fn rates_contain_the_increase_and_keep_the_limit(
            gaps in proptest::collection::vec((1_i64..300, prop_oneof![Just(0.0), 0.0..1e9_f64]), 1..60),
            window_ms in prop_oneof![Just(0_i64), 1_i64..500],
            limit in 1e8..8e9_f64,
            is_hard: bool,
        ) {
            let mut samples = vec![(0, 5.0)];
            for (gap_ms, step) in gaps {
                let (time_ns, value) = samples[samples.len() - 1];
                samples.push((time_ns + gap_ms * MS, value + step));
            }
            let found = rates(&samples, window_ms * MS, Some(Limit { rate: limit, is_hard }));
            prop_assert_eq!(found.points.len() + 1, samples.len());
            let (end_ns, last) = samples[samples.len() - 1];
            let increase = last - 5.0;
            let mut integral = 0.0;
            let mut before_ns = 0;
            for (time_ns, rate) in &found.points {
                integral += rate * units::seconds_between(before_ns, *time_ns);
                before_ns = *time_ns;
            }
            let span_s = units::seconds_between(0, end_ns);
            let accuracy_s = units::seconds_between(0, window_ms * MS) / 10.0;
            let is_above = increase > limit * (span_s + accuracy_s);
            prop_assert_eq!(found.is_clamped, is_above && is_hard);
            if found.is_clamped {
                prop_assert!((integral - limit * span_s).abs() <= 1e-9 * integral);
            } else {
                prop_assert!((integral - increase).abs() <= 1e-9 * increase.max(1.0));
            }
            if is_hard {
                // A window is at least as long as two times between samples or its minimum, unless it has
                // no tolerance.
                let length_s = units::seconds_between(0, (window_ms * MS).min(end_ns)) * 0.95;
                let most = if window_ms > 0 { limit * (1.0 + accuracy_s / length_s) } else { limit };
                prop_assert!(max(&found) <= most * (1.0 + 1e-9), "{} > {}", max(&found), most);
            }
        }
    }

    #[test]
    fn windows_depend_on_the_granularity_in_the_catalogue() {
        assert_eq!(window_ns("perf.task_clock"), 0);
        assert_eq!(window_ns("user.loss"), 0);
        assert!(window_ns("cpu.usage") >= 40 * MS);
        assert!(window_ns("process.cpu.usage") >= 100 * MS);
    }
}
