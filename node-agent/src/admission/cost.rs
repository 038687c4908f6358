//! The cost of sampling, predicted from the cost of one read of each source. Pure.
//!
//! The constants were fitted to one machine; `polymeter-bench control` compares the prediction with
//! measurements. The calibration scales them to this machine, and the governor corrects the rest.

use polymeter_proto::period::{Period, Sampling};

use crate::request::Cost;

/// Assumed time of an unmeasured read.
const READ_NS: f64 = 5_000.0;
/// Cost of a read beside its own time: finding its groups, taking the time, recording the row.
const ROW_NS: f64 = 300.0;
/// Cost of a wake-up and of cold caches beside the reads, by the period in microseconds: the longer the
/// sleep, the more is cold.
const WAKE_NS: [(f64, f64); 5] = [
    (100.0, 4_000.0),
    (1_000.0, 8_000.0),
    (10_000.0, 17_000.0),
    (100_000.0, 45_000.0),
    (1_000_000.0, 120_000.0),
];
/// Time of a read at a period, in microseconds, as a multiple of its time in a tight loop. The slowness of
/// the machine multiplies the part above 1.
const COLD: [(f64, f64); 4] = [(100.0, 1.1), (1_000.0, 1.4), (10_000.0, 2.4), (100_000.0, 4.0)];
/// Cost of a value from its text to the wire.
const VALUE_NS: f64 = 40.0;
/// Cost of a value from its text into a window.
const INNER_VALUE_NS: f64 = 20.0;
/// Cost of a sample of a call stack for the agent: to read it, and to count it by its functions.
pub(super) const STACK_NS: f64 = 4_000.0;
/// Cost of a sample whose callers the agent finds itself. An estimate, which was not fitted: once the source
/// is read, its measured time takes its place.
pub(super) const STACK_DWARF_NS: f64 = 20_000.0;
/// Size of a value on the wire at high rates.
const VALUE_BYTES: f64 = 0.5;
/// Size of a series' part of a row of windows on the wire.
const WINDOW_BYTES: f64 = 12.0;
/// Size of the histogram of a series in a window: some twenty buckets with samples.
const HISTOGRAM_BYTES: f64 = 60.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ReadCost {
    /// Measured at the period in question.
    Measured(f64),
    /// Measured in a tight loop.
    Warm(f64),
    Unknown,
}

/// Slowness of the machine: points of a curve, each a period in microseconds and the time as a multiple of
/// the constants here.
pub(super) type Slowness = [(f64, f64); 2];

#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    machine: Slowness,
    ns_per_s: f64,
    samples_per_s: f64,
    bytes_per_s: f64,
    wakes_per_s: f64,
}

impl Sum {
    pub(super) const fn on(machine: Slowness) -> Self {
        Self { machine, ns_per_s: 0.0, samples_per_s: 0.0, bytes_per_s: 0.0, wakes_per_s: 0.0 }
    }

    /// Adds a source with the samplings of what is `sent` and of what is `held` in the ring. Periods that
    /// divide one another share reads. What is sent counts as samples: of a window one.
    pub(super) fn add(&mut self, sent: &[Sampling], held: &[Sampling], read: ReadCost) {
        let per_second = |period: Period| 1e6 / micros(period);
        let Some(fastest) = sent.iter().chain(held).map(|sampling| sampling.period).min() else { return };
        let slowness = between(&self.machine, micros(fastest));
        let read_ns = match read {
            ReadCost::Measured(read_ns) => read_ns,
            ReadCost::Warm(read_ns) => read_ns * (1.0 + (between(&COLD, micros(fastest)) - 1.0) * slowness),
            ReadCost::Unknown => READ_NS * slowness,
        };
        self.ns_per_s += per_second(fastest) * (read_ns + ROW_NS * slowness);
        for sampling in held {
            self.ns_per_s += per_second(sampling.period) * VALUE_NS;
        }
        for sampling in sent {
            let rows = per_second(sampling.row_period());
            let (inner, bytes) = match sampling.window {
                None => (0.0, VALUE_BYTES),
                Some(_) if sampling.has_histogram => {
                    (per_second(sampling.period), WINDOW_BYTES + HISTOGRAM_BYTES)
                }
                Some(_) => (per_second(sampling.period), WINDOW_BYTES),
            };
            self.ns_per_s += rows * VALUE_NS + inner * INNER_VALUE_NS;
            self.samples_per_s += rows;
            self.bytes_per_s += rows * bytes;
        }
        self.wakes_per_s = self.wakes_per_s.max(per_second(fastest));
    }

    /// Adds call stacks, which the kernel samples on `cpus` CPUs, and which are read once a second at most.
    /// A sample takes `stack_ns`; `measured_ns` is the time that all samples of a second took at this period,
    /// if it is known.
    pub(super) fn add_stacks(
        &mut self,
        period: Period,
        cpus: usize,
        stack_ns: f64,
        measured_ns: Option<f64>,
    ) {
        let samples = 1e6 / micros(period) * f64::from(u32::try_from(cpus).unwrap_or(u32::MAX));
        let slowness = between(&self.machine, 1e6);
        self.ns_per_s += measured_ns.unwrap_or(samples * stack_ns * slowness);
        self.samples_per_s += samples;
        self.bytes_per_s += samples * VALUE_BYTES;
        self.wakes_per_s = self.wakes_per_s.max((1e6 / micros(period)).min(1.0));
    }

    pub(super) fn cost(&self, learnt: f64) -> Cost {
        let wake_ns = if self.wakes_per_s > 0.0 {
            let period_us = 1e6 / self.wakes_per_s;
            between(&WAKE_NS, period_us) * between(&self.machine, period_us)
        } else {
            0.0
        };
        Cost {
            cpu_percent: (self.ns_per_s + self.wakes_per_s * wake_ns) * learnt / 1e7,
            samples_per_s: self.samples_per_s,
            bytes_per_s: self.bytes_per_s,
        }
    }
}

pub(super) fn micros(period: Period) -> f64 {
    f64::from(u32::try_from(period.as_micros()).unwrap_or(u32::MAX))
}

/// Value at `at` of the curve through `points`, in order: linear on a logarithmic scale between them, and
/// constant beyond its ends.
fn between(points: &[(f64, f64)], at: f64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let at = at.clamp(first.0, last.0);
    let segment = points.windows(2).find_map(|pair| match pair {
        [from, to] if at <= to.0 => Some((*from, *to)),
        _ => None,
    });
    let Some((from, to)) = segment else { return last.1 };
    let part = (at / from.0).ln() / (to.0 / from.0).ln();
    from.1 + part * (to.1 - from.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: Slowness = [(1_000.0, 1.0), (10_000.0, 1.0)];

    #[test]
    fn sources_share_reads_but_not_values() {
        let mut sum = Sum::on(REFERENCE);
        sum.add(
            &[Sampling::raw(Period::MILLISECOND), Sampling::raw(Period::SECOND)],
            &[],
            ReadCost::Measured(10_000.0),
        );
        let cost = sum.cost(1.0);
        assert!((cost.samples_per_s - 1001.0).abs() < 0.01);
        let wake_ns = between(&WAKE_NS, 1_000.0);
        let expected = (1000.0 * (10_000.0 + ROW_NS + wake_ns) + 1001.0 * VALUE_NS) / 1e7;
        assert!((cost.cpu_percent - expected).abs() < 0.001, "{cost:?}");
        assert!((sum.cost(2.0).cpu_percent - 2.0 * expected).abs() < 0.001);
        // Another source at the same period causes no wake-up.
        sum.add(&[Sampling::raw(Period::MILLISECOND)], &[], ReadCost::Measured(0.0));
        let more = sum.cost(1.0).cpu_percent - cost.cpu_percent;
        assert!((more - (ROW_NS + VALUE_NS) * 1000.0 / 1e7).abs() < 1e-6, "{more}");
        assert_eq!(Sum::on(REFERENCE).cost(1.0), Cost::default());
    }

    #[test]
    fn windows_cost_their_reads_and_the_rows_that_are_sent() {
        let cost = |text: &str| {
            let mut sum = Sum::on(REFERENCE);
            sum.add(&[text.parse().unwrap()], &[], ReadCost::Measured(10_000.0));
            sum.cost(1.0)
        };
        let (raw, windows) = (cost("1ms"), cost("1ms/1s"));
        assert!((windows.samples_per_s - 1.0).abs() < 1e-9 && windows.bytes_per_s < 0.05 * raw.bytes_per_s);
        let less_percent = (1000.0 * (VALUE_NS - INNER_VALUE_NS) - VALUE_NS) / 1e7;
        assert!((raw.cpu_percent - windows.cpu_percent - less_percent).abs() < 1e-9, "{windows:?}");
    }

    #[test]
    fn the_ring_costs_reads_and_values_but_nothing_is_sent() {
        let cost = |sent: &[&str], held: &[&str]| {
            let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
            let mut sum = Sum::on(REFERENCE);
            sum.add(&of(sent), &of(held), ReadCost::Measured(10_000.0));
            sum.cost(1.0)
        };
        let (sent, held) = (cost(&["1ms"], &[]), cost(&[], &["1ms"]));
        assert!((sent.cpu_percent - held.cpu_percent).abs() < 1e-12 && held.cpu_percent > 1.0, "{held:?}");
        assert!(held.samples_per_s.abs() + held.bytes_per_s.abs() < 1e-12, "{held:?}");
        let both = cost(&["1s"], &["1ms"]);
        assert!((both.samples_per_s - 1.0).abs() < 1e-9);
        let more_percent = VALUE_NS / 1e7;
        assert!((both.cpu_percent - held.cpu_percent - more_percent).abs() < 1e-9, "they share reads");
    }

    fn stacks(period: &str, cpus: usize, measured_ns: Option<f64>) -> Cost {
        let mut sum = Sum::on(REFERENCE);
        sum.add_stacks(period.parse().unwrap(), cpus, STACK_NS, measured_ns);
        sum.cost(1.0)
    }

    fn cpu_percent(machine: Slowness, period: Period, read: ReadCost) -> f64 {
        let mut sum = Sum::on(machine);
        sum.add(&[Sampling::raw(period)], &[], read);
        sum.cost(1.0).cpu_percent
    }

    #[test]
    fn call_stacks_cost_by_the_sample() {
        assert!((stacks("10ms", 8, None).samples_per_s - 800.0).abs() < 1e-9);
        let wake_percent = between(&WAKE_NS, 1e6) / 1e7;
        let percent =
            |period, cpus, measured_ns| stacks(period, cpus, measured_ns).cpu_percent - wake_percent;
        assert!((percent("1ms", 1, None) - 1000.0 * STACK_NS / 1e7).abs() < 1e-9);
        assert!((percent("1ms", 2, None) - 20.0 * percent("10ms", 1, None)).abs() < 1e-9);
        assert!((percent("1ms", 2, Some(5e6)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn rare_reads_are_cold() {
        let [ms, ten_ms, second, hour, day] = ["1ms", "10ms", "1s", "1h", "1d"]
            .map(|period| cpu_percent(REFERENCE, period.parse().unwrap(), ReadCost::Warm(1_000.0)));
        assert!(ten_ms > ms / 10.0);
        assert!(second > ten_ms / 100.0);
        assert!(day < hour);
    }

    #[test]
    fn slowness_does_not_apply_to_measured_reads() {
        let slow = [(1_000.0, 3.0), (10_000.0, 5.0)];
        let (warm, measured) = (ReadCost::Warm(10_000.0), ReadCost::Measured(10_000.0));
        let [more_measured, more_warm] = [measured, warm].map(|read| {
            cpu_percent(slow, Period::MILLISECOND, read) - cpu_percent(REFERENCE, Period::MILLISECOND, read)
        });
        let others_ns = ROW_NS + between(&WAKE_NS, 1_000.0);
        assert!((more_measured - 2.0 * others_ns * 1000.0 / 1e7).abs() < 1e-9);
        let cold_ns = 10_000.0 * (between(&COLD, 1_000.0) - 1.0);
        assert!((more_warm - 2.0 * (others_ns + cold_ns) * 1000.0 / 1e7).abs() < 1e-9);
    }

    #[test]
    fn curves_pass_through_their_points() {
        let curve = [(1.0, 10.0), (100.0, 20.0), (1000.0, 50.0)];
        for (at, value) in
            [(0.1, 10.0), (1.0, 10.0), (10.0, 15.0), (100.0, 20.0), (1000.0, 50.0), (1e9, 50.0)]
        {
            assert!((between(&curve, at) - value).abs() < 1e-9, "{at}");
        }
    }
}
