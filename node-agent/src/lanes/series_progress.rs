//! Counters that never decrease, even if their sources change.
//!
//! A series may be read from several sources in succession: cgroups of version 2 follow those of version 1,
//! and a file or a perf event may be opened anew, after which the latter counts from 0. The last value of the
//! series is kept, and the new source adds its counts from its first reading on. Within a source a value may
//! be lower than the previous one, too:
//!
//! - By half or more: the counter began anew, like that of a network interface that was removed and added
//!   again. The earlier count is kept.
//! - To the beginning of the range of a counter of 32 bits, from its end: the counter wrapped around, and
//!   continues.
//! - By less: the kernel has read several CPUs' counts one after the other. The value stays until the counter
//!   has passed it.
//!
//! A job that is tracked again is another job with series of its own, which begin with its cgroups.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::series::{Kind, Number};

use crate::sources::{Reading, Slot};

/// Last value of a series when its source was closed, for the next source of the series. Only the sampler's
/// thread reads and writes it; the supervisor merely keeps it.
#[derive(Debug, Default)]
pub struct SeriesProgress {
    /// Source of the last value, as a hash of its name; 0 before the first reading.
    origin: AtomicU64,
    raw: AtomicU64,
    offset: AtomicU64,
    last: AtomicU64,
}

/// Counter of one slot of a source. Its values are the bits of integers, or of doubles that are not negative,
/// which have the order of integers.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    slot: u32,
    is_float: bool,
    is_begun: bool,
    /// Highest value since the origin began to count.
    raw: u64,
    /// Count before `raw` began, to which wrap-arounds are added.
    offset: u64,
    last: u64,
    /// Value at which the kernel's counter begins at 0 again; 0 if it never does.
    wraps_at: u64,
}

/// A counter wraps around between two readings if it advanced by less than this part of its range. A range of
/// 32 bits in milliseconds takes 50 days.
const WRAP_PART: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct Counters {
    origin: u64,
    counters: Vec<Counter>,
    /// Kept apart, because no tick needs it.
    series: Vec<Arc<SeriesProgress>>,
}

/// True if the values of a slot are those of a counter.
fn is_counter(slot: &Slot) -> bool {
    slot.definition.metric.kind == Kind::Counter && slot.definition.metric.number != Number::Signed
}

fn is_float(slot: &Slot) -> bool {
    slot.definition.metric.number == Number::Float
}

impl Counters {
    pub(super) fn new(
        origin: &str,
        slots: &[Slot],
        mut progress: impl FnMut(&Slot) -> Arc<SeriesProgress>,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        origin.hash(&mut hasher);
        let numbered = || (0..).zip(slots).filter(|(_, slot)| is_counter(slot));
        Self {
            origin: hasher.finish().max(1),
            counters: numbered()
                .map(|(number, slot)| Counter {
                    slot: number,
                    is_float: is_float(slot),
                    wraps_at: slot.definition.metric.wraps_at.unwrap_or(0),
                    ..Counter::default()
                })
                .collect(),
            series: numbered().map(|(_, slot)| progress(slot)).collect(),
        }
    }

    /// Raises the counters of a reading to the values of their series. Does not allocate.
    pub(super) fn raise(&mut self, reading: &mut Reading) {
        for (number, counter) in self.counters.iter_mut().enumerate() {
            let Some(value) = reading.get(counter.slot) else { continue };
            // A negative double is no count.
            let double = f64::from_bits(value);
            if counter.is_float && (double.is_nan() || double.is_sign_negative()) {
                continue;
            }
            if !counter.is_begun {
                let series = self.series.get(number);
                *counter = counter.begin(value, self.origin, series.map(AsRef::as_ref));
            }
            reading.set(counter.slot, counter.advance(value));
        }
    }

    pub(super) fn store_progress(&self) {
        for (counter, series) in self.counters.iter().zip(&self.series) {
            if counter.is_begun {
                series.origin.store(self.origin, Relaxed);
                series.raw.store(counter.raw, Relaxed);
                series.offset.store(counter.offset, Relaxed);
                series.last.store(counter.last, Relaxed);
            }
        }
    }
}

impl Counter {
    /// Counter before the first value of this source.
    fn begin(self, value: u64, origin: u64, series: Option<&SeriesProgress>) -> Self {
        let begun = Self { is_begun: true, ..self };
        let Some(series) = series else { return begun };
        let last = series.last.load(Relaxed);
        match series.origin.load(Relaxed) {
            0 => begun,
            same if same == origin => {
                Self { raw: series.raw.load(Relaxed), offset: series.offset.load(Relaxed), last, ..begun }
            }
            _other => Self { offset: self.difference(last, value), last, ..begun },
        }
    }

    /// Value of the series when that of the origin is `value`.
    const fn advance(&mut self, value: u64) -> u64 {
        if value >= self.raw {
            self.raw = value;
        } else if self.has_wrapped(value) {
            self.raw = value;
            self.offset = self.offset.saturating_add(self.wraps_at);
        } else if value <= self.half(self.raw) {
            self.raw = value;
            self.offset = self.last;
        }
        let counted = self.sum(value, self.offset);
        if counted > self.last {
            self.last = counted;
        }
        self.last
    }

    /// True if a lower value is one behind the end of the range, and not that of a counter that began anew:
    /// it lies beyond the last one by a small part of the range.
    const fn has_wrapped(&self, value: u64) -> bool {
        match self.wraps_at.checked_sub(self.raw) {
            Some(rest) => rest.saturating_add(value) <= self.wraps_at / WRAP_PART,
            None => false,
        }
    }

    const fn half(&self, value: u64) -> u64 {
        if self.is_float { (f64::from_bits(value) / 2.0).to_bits() } else { value / 2 }
    }

    const fn sum(&self, a: u64, b: u64) -> u64 {
        if self.is_float { (f64::from_bits(a) + f64::from_bits(b)).to_bits() } else { a.saturating_add(b) }
    }

    /// Returns 0 for a negative difference.
    const fn difference(&self, a: u64, b: u64) -> u64 {
        if self.is_float {
            (f64::from_bits(a) - f64::from_bits(b)).max(0.0).to_bits()
        } else {
            a.saturating_sub(b)
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue;
    use polymeter_proto::series::Labels;
    use proptest::prelude::*;

    use super::*;

    fn slots() -> Vec<Slot> {
        ["memory.current", "cpu.usage"]
            .map(|name| Slot { definition: catalogue::find(name).unwrap(), labels: Labels::default() })
            .into()
    }

    fn read(counters: &mut Counters, values: &[u64]) -> Vec<u64> {
        let raised = values.iter().map(|value| {
            let mut reading = Reading::absent(2);
            reading.set(0, *value);
            reading.set(1, *value);
            counters.raise(&mut reading);
            assert_eq!(reading.get(0), Some(*value), "a gauge stays as it is");
            reading.get(1).unwrap()
        });
        raised.collect()
    }

    /// Reads the value of a source with one counter.
    fn raised(counters: &mut Counters, value: u64) -> u64 {
        let mut reading = Reading::absent(1);
        reading.set(0, value);
        counters.raise(&mut reading);
        reading.get(0).unwrap()
    }

    #[test]
    fn continues_when_another_source_gives_a_series() {
        let series = Arc::new(SeriesProgress::default());
        let source = |origin: &str| Counters::new(origin, &slots(), |_| Arc::clone(&series));
        let mut v1 = source("v1/cpuacct.usage");
        assert_eq!(read(&mut v1, &[1_000, 1_600]), [1_000, 1_600]);
        v1.store_progress();
        let mut v2 = source("v2/cpu.stat");
        assert_eq!(read(&mut v2, &[200, 300]), [1_600, 1_700], "it had counted less");
        v2.store_progress();
        let mut again = source("v2/cpu.stat");
        assert_eq!(read(&mut again, &[350, 360]), [1_750, 1_760], "opened anew it goes on");
        again.store_progress();
        let mut back = source("v1/cpuacct.usage");
        assert_eq!(read(&mut back, &[9_000, 9_001]), [9_000, 9_001], "it had counted more");
    }

    #[test]
    fn tells_a_reset_from_jitter() {
        let mut counters = Counters::new("proc/net/dev", &slots(), |_| Arc::default());
        assert_eq!(read(&mut counters, &[100, 97, 99, 101]), [100, 100, 100, 101]);
        assert_eq!(read(&mut counters, &[0, 5, 7]), [101, 106, 108]);
        assert_eq!(read(&mut counters, &[u64::MAX, 0, u64::MAX]), [u64::MAX; 3]);
    }

    #[test]
    fn a_counter_of_32_bits_wraps_around() {
        const MS: u64 = 1_000_000;
        const RANGE: u64 = (1 << 32) * MS;
        let slot = Slot {
            definition: catalogue::find("node.disk.weighted.time").unwrap(),
            labels: Labels::default(),
        };
        let series = Arc::new(SeriesProgress::default());
        let open = || Counters::new("proc/diskstats", std::slice::from_ref(&slot), |_| Arc::clone(&series));
        let read = |counters: &mut Counters, ms: u64| raised(counters, ms * MS);
        let mut counters = open();
        assert_eq!(read(&mut counters, 4_294_967_290), 4_294_967_290 * MS);
        assert_eq!(read(&mut counters, 5), RANGE + 5 * MS);
        counters.store_progress();
        let mut counters = open();
        assert_eq!(read(&mut counters, 4_294_967_200), RANGE + 4_294_967_200 * MS, "opened anew");
        assert_eq!(read(&mut counters, 4_294_967_190), RANGE + 4_294_967_200 * MS, "jitter");
        assert_eq!(read(&mut counters, 0), 2 * RANGE);
        assert_eq!(read(&mut counters, 7), 2 * RANGE + 7 * MS);
        // A disk that was added again, from the middle of the range.
        assert_eq!(read(&mut counters, 3_000_000_000), 2 * RANGE + 3_000_000_000 * MS);
        assert_eq!(read(&mut counters, 1), 2 * RANGE + 3_000_000_001 * MS);
    }

    #[test]
    fn counters_of_adapters_wrap_around() {
        for name in ["node.lnet.transmit.messages", "node.infiniband.hw.rx_write_requests"] {
            let slot = Slot { definition: catalogue::find(name).unwrap(), labels: Labels::default() };
            let mut counters = Counters::new("adapter", &[slot], |_| Arc::default());
            assert_eq!(
                [4_294_967_000, 500, 700].map(|value| raised(&mut counters, value)),
                [4_294_967_000, 4_294_967_796, 4_294_967_996]
            );
            // Beyond the range it is one of 64 bits.
            assert_eq!(
                [1 << 40, (1 << 40) + 1].map(|value| raised(&mut counters, value)),
                [(1 << 40) + (1 << 32), (1 << 40) + (1 << 32) + 1]
            );
        }
    }

    #[test]
    fn counters_of_doubles_continue() {
        let slot =
            Slot { definition: catalogue::find("node.energy.package").unwrap(), labels: Labels::default() };
        let series = Arc::new(SeriesProgress::default());
        let source =
            |origin: &str| Counters::new(origin, std::slice::from_ref(&slot), |_| Arc::clone(&series));
        let read = |counters: &mut Counters, values: &[f64]| -> Vec<f64> {
            values.iter().map(|value| f64::from_bits(raised(counters, value.to_bits()))).collect()
        };
        let mut first = source("rapl/package");
        assert_eq!(read(&mut first, &[0.0, 1.5, 100.25]), [0.0, 1.5, 100.25]);
        assert_eq!(read(&mut first, &[100.0, 0.25, 1.0]), [100.25, 100.5, 101.25]);
        first.store_progress();
        let mut anew = source("rapl/package");
        assert_eq!(read(&mut anew, &[0.0, 0.5]), [101.25, 101.75], "opened anew it counts from 0");
        anew.store_progress();
        let mut other = source("hwmon");
        assert_eq!(read(&mut other, &[7.0, 8.0]), [101.75, 102.75]);
        assert_eq!(read(&mut other, &[-1.0, 8.5]), [-1.0, 103.25], "a negative value is no count");
    }

    #[test]
    fn absent_values_stay_absent() {
        let mut counters = Counters::new("v2/cpu.stat", &slots(), |_| Arc::default());
        read(&mut counters, &[5]);
        let mut reading = Reading::absent(2);
        counters.raise(&mut reading);
        assert_eq!(reading.get(1), None);
        assert_eq!(read(&mut counters, &[6]), [6]);
    }

    proptest! {
        #[test]
        fn counters_never_decrease(
            lives in prop::collection::vec(
                (0_u8..3, prop::collection::vec(prop_oneof![0..50_u64, 0..1_000_000_u64, any::<u64>()], 0..12)), 0..12)
        ) {
            let series = Arc::new(SeriesProgress::default());
            let mut last = 0;
            for (origin, values) in lives {
                let mut counters = Counters::new(&origin.to_string(), &slots(), |_| Arc::clone(&series));
                for value in read(&mut counters, &values) {
                    prop_assert!(value >= last, "{value} after {last}");
                    last = value;
                }
                counters.store_progress();
            }
        }

        #[test]
        fn every_count_of_an_origin_counts_once(
            lives in prop::collection::vec((0..1_000_u64, prop::collection::vec(0..1_000_u64, 0..12)), 1..12)
        ) {
            // Each origin has counted something before and rises from then on, as perf events and cgroups do.
            let series = Arc::new(SeriesProgress::default());
            let mut expected: Option<u64> = None;
            for (number, (first, steps)) in lives.into_iter().enumerate() {
                let mut counters = Counters::new(&number.to_string(), &slots(), |_| Arc::clone(&series));
                let mut value = first;
                let begun = expected.map_or(first, |last| last.max(first));
                prop_assert_eq!(read(&mut counters, &[value]), [begun]);
                let mut counted = begun;
                for step in steps {
                    value += step;
                    counted += step;
                    prop_assert_eq!(read(&mut counters, &[value]), [counted]);
                }
                expected = Some(counted);
                counters.store_progress();
            }
        }
    }
}
