//! Rates of counters over windows that are long enough for the granularity of the counter. Pure.

use polymeter_proto::catalogue;

use polymeter_proto::units;

/// The minimum length of a window in granularities of the counter: one tick more or less changes a rate by at
/// most a tenth.
const WINDOW_GRANULARITIES: i64 = 10;

/// The divisor of a window's length that gives its tolerance (at most half the time between two samples),
/// since samples are never taken exactly at their deadlines.
const TOLERANCE_PART: i64 = 20;

/// The increase per second of a counter, over windows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// The rate of each window, dated at its end.
    pub(crate) points: Vec<(i64, f64)>,
    /// The minimum length of a window, in nanoseconds; none if each lies between two samples.
    pub(crate) window_ns: Option<i64>,
    /// True if a rate exceeded the limit even over all samples, and was lowered to it.
    pub(crate) is_clamped: bool,
}

/// Returns the length of a window for a metric, in nanoseconds; 0 if every reading is exact.
pub fn window_ns(metric: &str) -> i64 {
    let granularity = catalogue::find(metric).and_then(|definition| definition.metric.granularity());
    let granularity_ns = granularity.map_or(0, |period| i64::try_from(period.as_nanos()).unwrap_or(i64::MAX));
    granularity_ns.saturating_mul(WINDOW_GRANULARITIES)
}

/// Computes the rates of a counter over windows of at least `window_ns`. If one exceeds `limit`, the counter
/// is less accurate than its granularity says, and the windows are made longer.
pub(crate) fn rates(values: &[(i64, f64)], window_ns: i64, limit: Option<f64>) -> Rates {
    let ends = values.first().zip(values.last());
    let span_ns = ends.map_or(0, |((first_ns, _), (last_ns, _))| last_ns.saturating_sub(*first_ns));
    let gaps_count = i64::try_from(values.len()).unwrap_or(i64::MAX).saturating_sub(1).max(1);
    let half_gap_ns = span_ns / gaps_count / 2;
    let mut window_ns = window_ns.min(span_ns);
    loop {
        let mut points = over(values, window_ns, (window_ns / TOLERANCE_PART).min(half_gap_ns));
        let above = |rate: f64| limit.is_some_and(|limit| rate > limit);
        let is_above = points.iter().any(|(_, rate)| above(*rate));
        if is_above && window_ns < span_ns {
            // The window is doubled, and is at least twice the shortest time between two samples.
            let shortest_ns = gaps(values).min().unwrap_or(1).max(window_ns);
            window_ns = shortest_ns.saturating_mul(2).min(span_ns);
            continue;
        }
        if let (true, Some(limit)) = (is_above, limit) {
            points.iter_mut().for_each(|(_, rate)| *rate = rate.min(limit));
        }
        let is_between_samples = points.len() + 1 >= values.len();
        let window_ns = (window_ns > 0 && !is_between_samples).then_some(window_ns);
        return Rates { points, window_ns, is_clamped: is_above };
    }
}

/// Computes, for each value, the rate over the shortest window of at least `window_ns` that ends there; none
/// if the window would begin before the first value.
fn over(values: &[(i64, f64)], window_ns: i64, tolerance_ns: i64) -> Vec<(i64, f64)> {
    let length_min_ns = window_ns - tolerance_ns;
    let mut begins = values.iter().peekable();
    let mut begin: Option<&(i64, f64)> = None;
    let mut points = Vec::new();
    for (end_ns, end) in values {
        let fits = |(begin_ns, _): &(i64, f64)| begin_ns < end_ns && end_ns - begin_ns >= length_min_ns;
        while let Some(next) = begins.next_if(|next| fits(next)) {
            begin = Some(next);
        }
        // A counter that decreased was restarted.
        if let Some((begin_ns, begin)) = begin.filter(|(_, begin)| end >= begin) {
            points.push((*end_ns, (end - begin) / units::seconds_between(*begin_ns, *end_ns)));
        }
    }
    points
}

/// Returns the times between successive values, in nanoseconds.
fn gaps(values: &[(i64, f64)]) -> impl Iterator<Item = i64> {
    let pairs = values.iter().zip(values.iter().skip(1));
    pairs.map(|((before_ns, _), (after_ns, _))| after_ns - before_ns).filter(|gap_ns| *gap_ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// The counter of two busy CPUs at 1 ms, which advances every 4 ms by the ticks of both.
    fn ticks(count: i64) -> Vec<(i64, f64)> {
        let charged = |ms: i64| units::to_f64(8_000_000 * u64::try_from(ms / 4).unwrap());
        (0..count).map(|ms| (ms * MS, charged(ms))).collect()
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
        let limited = rates(&ticks(1000), 30 * MS, Some(2.02e9));
        assert!(max(&limited) <= 2.02e9 && !limited.is_clamped, "{}", max(&limited));
        assert!(
            limited.window_ns > Some(30 * MS) && limited.window_ns < Some(500 * MS),
            "{:?}",
            limited.window_ns
        );
    }

    #[test]
    fn a_window_is_found_for_the_limit() {
        let limited = rates(&ticks(1000), 0, Some(2.2e9));
        assert!(max(&limited) <= 2.2e9 && limited.window_ns.is_some() && !limited.is_clamped, "{limited:?}");
    }

    #[test]
    fn a_rate_above_the_limit_over_all_samples_is_clamped() {
        let values = [(0, 0.0), (100 * MS, 5e8), (200 * MS, 1e9)];
        let limited = rates(&values, 40 * MS, Some(2e9));
        assert_eq!(
            limited,
            Rates { points: vec![(200 * MS, 2e9)], window_ns: Some(200 * MS), is_clamped: true }
        );
    }

    #[test]
    fn a_job_shorter_than_a_window_has_one_rate() {
        let short = rates(&ticks(5), 40 * MS, None);
        assert_eq!((short.points.len(), short.window_ns), (1, Some(4 * MS)));
        assert!((1.99e9..2.01e9).contains(&max(&short)), "{short:?}");
        assert_eq!(rates(&ticks(1), 40 * MS, None).points, []);
        assert_eq!(rates(&[], 40 * MS, Some(1.0)).points, []);
        assert_eq!(rates(&[(7, 1.0), (7, 2.0)], 0, Some(1.0)).points, []);
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

    #[test]
    fn windows_depend_on_the_granularity_in_the_catalogue() {
        assert_eq!(window_ns("perf.task_clock"), 0);
        assert_eq!(window_ns("user.loss"), 0);
        assert!(window_ns("cpu.usage") >= 40 * MS);
        assert!(window_ns("process.cpu.usage") >= 100 * MS);
    }
}
