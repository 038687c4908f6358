//! Counters that never decrease, even if their sources change.
//!
//! A series may be read from several sources in succession: cgroups of version 2 follow those of version 1, and a file
//! or a perf event may be opened anew, after which the latter counts from 0. The last value of the series is kept, and
//! the new source adds its counts from its first reading on. Within a source a value may be lower than the previous
//! one, too:
//!
//! - By half or more: the counter began anew, like that of a network interface that was removed and added again. The
//!   earlier count is kept.
//! - By less: the kernel has read several CPUs' counts one after the other. The value stays until the counter has
//!   passed it.
//!
//! A job that is tracked again is another job with series of its own, which begin with its cgroups.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::series::{Kind, Number};

use crate::sources::{Reading, Slot};

/// The last value of a series when its source was closed, for the next source of the series. Only the sampler's thread
/// reads and writes it; the supervisor merely keeps it.
#[derive(Debug, Default)]
pub struct SeriesProgress {
    /// The source of the last value, as a hash of its name; 0 before the first reading.
    origin: AtomicU64,
    raw: AtomicU64,
    offset: AtomicU64,
    last: AtomicU64,
}

/// The counter of one slot of a source.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    slot: u32,
    is_begun: bool,
    /// The highest value since the origin began to count.
    raw: u64,
    /// The count before that.
    offset: u64,
    /// The last value that was returned.
    last: u64,
}

/// The counters of one source.
#[derive(Debug, Default)]
pub(super) struct Counters {
    origin: u64,
    counters: Vec<Counter>,
    /// The progress of each counter: apart, because no tick needs it.
    series: Vec<Arc<SeriesProgress>>,
}

/// True if the values of a slot are those of a counter. The kernel does not promise that non-integers never decrease.
fn is_counter(slot: &Slot) -> bool {
    slot.definition.metric.kind == Kind::Counter && slot.definition.metric.number == Number::Unsigned
}

impl Counters {
    /// Creates the counters among the slots of the source `origin`, each of which continues from the progress of its series.
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
            counters: numbered().map(|(slot, _)| Counter { slot, ..Counter::default() }).collect(),
            series: numbered().map(|(_, slot)| progress(slot)).collect(),
        }
    }

    /// Raises the counters of a reading to the values of their series. Does not allocate.
    pub(super) fn raise(&mut self, reading: &mut Reading) {
        for (number, counter) in self.counters.iter_mut().enumerate() {
            let Some(value) = reading.get(counter.slot) else { continue };
            if !counter.is_begun {
                let series = self.series.get(number);
                *counter = counter.begin(value, self.origin, series.map(AsRef::as_ref));
            }
            reading.set(counter.slot, counter.advance(value));
        }
    }

    /// Stores the progress of the series.
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
    /// Returns the counter before the first value of this source.
    fn begin(self, value: u64, origin: u64, series: Option<&SeriesProgress>) -> Self {
        let begun = Self { is_begun: true, ..self };
        let Some(series) = series else { return begun };
        let last = series.last.load(Relaxed);
        match series.origin.load(Relaxed) {
            0 => begun,
            same if same == origin => {
                Self { raw: series.raw.load(Relaxed), offset: series.offset.load(Relaxed), last, ..begun }
            }
            _other => Self { offset: last.saturating_sub(value), last, ..begun },
        }
    }

    /// Returns the value of the series when that of the origin is `value`.
    const fn advance(&mut self, value: u64) -> u64 {
        if value >= self.raw {
            self.raw = value;
        } else if value <= self.raw / 2 {
            self.raw = value;
            self.offset = self.last;
        }
        let counted = value.saturating_add(self.offset);
        if counted > self.last {
            self.last = counted;
        }
        self.last
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

    /// Returns the values of a sequence of readings.
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
