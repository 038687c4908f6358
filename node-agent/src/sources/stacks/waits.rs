//! Waits of threads: from the switch at which a thread leaves its CPU to its return, with the stack at the
//! switch. Pure.
//!
//! Each wait becomes as many samples as it has periods. The rest of a wait is a sample or none, by a sequence
//! that is even for any part of the waits, so that the samples of a stack times the period are its time.
//!
//! Where switches were lost, threads may have run unseen: that time counts for no thread, so that shares are
//! those of the time that is known.

use std::collections::HashMap;

use polymeter_proto::period::Period;

use super::records::{Frame, Record, Timed};
use super::registers::UserState;

/// Bound of the threads whose waits are followed. Those of further ones are not known.
const THREADS_MAX: usize = 64 * 1024;

/// Fraction of the golden ratio, of 2^64: its multiples are spread most evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(super) struct Waits {
    threads: HashMap<u32, Thread>,
    /// Records of after the time until which all are known.
    later: Vec<Timed>,
    until_ns: u64,
    /// Time during which switches were unknown so far, and the end of the last such interval.
    blind_ns: u64,
    blind_until_ns: u64,
    fraction: u64,
}

#[derive(Debug)]
enum Thread {
    Waiting(Wait),
    /// It leaves its CPU for ever; true once it was so for a whole interval.
    Ended(bool),
}

#[derive(Debug)]
pub(super) struct Wait {
    /// Beginning of the part that is not yet counted, by [`Waits::known_ns`].
    since_ns: u64,
    /// True once the switch was recorded.
    is_out: bool,
    /// `None` if the sample was lost.
    pub(super) stack: Option<WaitStack>,
}

#[derive(Debug)]
pub(super) struct WaitStack {
    pub(super) pid: u32,
    pub(super) frames: Vec<Frame>,
    pub(super) is_cut: bool,
    /// What is not yet unwound.
    pub(super) user: Option<UserState>,
}

impl Waits {
    /// Replaces the switches in the records by samples of the waits that have ended. Records of `until_ns` or
    /// later are kept for the next call: some of the same time are not known yet.
    pub(super) fn samples(&mut self, records: Vec<Timed>, period: Period, until_ns: u64) -> Vec<Timed> {
        let mut all = std::mem::take(&mut self.later);
        all.extend(records);
        all.sort_by_key(|timed| timed.time_ns);
        let known = all.partition_point(|timed| timed.time_ns < until_ns);
        self.later = all.split_off(known);
        self.until_ns = until_ns;
        all.into_iter().filter_map(|Timed { time_ns, record }| self.sample(time_ns, record, period)).collect()
    }

    fn known_ns(&self, time_ns: u64) -> u64 {
        time_ns.max(self.blind_until_ns).saturating_sub(self.blind_ns)
    }

    fn sample(&mut self, time_ns: u64, record: Record, period: Period) -> Option<Timed> {
        let known_ns = self.known_ns(time_ns);
        let record = match record {
            Record::Sample { pid, tid, frames, is_cut, user, .. } => {
                let stack = Some(WaitStack { pid, frames, is_cut, user });
                self.begin(tid, Wait { since_ns: known_ns, is_out: false, stack });
                return None;
            }
            Record::Out { tid } => {
                match self.threads.get_mut(&tid) {
                    Some(Thread::Waiting(wait)) if !wait.is_out => wait.is_out = true,
                    _ => self.begin(tid, Wait { since_ns: known_ns, is_out: true, stack: None }),
                }
                return None;
            }
            Record::In { tid } => {
                let Some(Thread::Waiting(wait)) = self.threads.remove(&tid) else { return None };
                let count = self.count(known_ns.saturating_sub(wait.since_ns), period);
                if count == 0 {
                    return None;
                }
                match wait.stack {
                    Some(WaitStack { pid, frames, is_cut, user }) => {
                        Record::Sample { pid, tid, frames, is_cut, user, count }
                    }
                    None => Record::Lost(count),
                }
            }
            Record::Exit { tid } => {
                self.threads.insert(tid, Thread::Ended(false));
                return None;
            }
            Record::Fork { tid, .. } => {
                self.threads.remove(&tid);
                record
            }
            Record::Blind { until_ns } => {
                let blind_ns = until_ns.saturating_sub(time_ns.max(self.blind_until_ns));
                self.blind_ns += blind_ns;
                self.blind_until_ns = self.blind_until_ns.max(until_ns);
                let threads = u64::try_from(self.threads.len()).unwrap_or(u64::MAX);
                Record::Lost(self.count(blind_ns.saturating_mul(threads), period))
            }
            Record::Mapped { .. } | Record::Exec { .. } | Record::Lost(_) | Record::Throttled => record,
        };
        Some(Timed { time_ns, record })
    }

    fn begin(&mut self, tid: u32, wait: Wait) {
        let is_full = self.threads.len() >= THREADS_MAX;
        match self.threads.get_mut(&tid) {
            Some(Thread::Ended(_)) => {}
            Some(thread @ Thread::Waiting(_)) => *thread = Thread::Waiting(wait),
            None if is_full => {}
            None => drop(self.threads.insert(tid, Thread::Waiting(wait))),
        }
    }

    /// Waits under way with the number of samples of their time so far, which then counts as sampled.
    pub(super) fn lasting(&mut self, period: Period) -> impl Iterator<Item = (&mut Wait, u64)> {
        self.threads.retain(|_, thread| match thread {
            Thread::Waiting(_) => true,
            Thread::Ended(is_old) => !std::mem::replace(is_old, true),
        });
        let (until_ns, fraction) = (self.known_ns(self.until_ns), &mut self.fraction);
        self.threads.values_mut().filter_map(move |thread| {
            let Thread::Waiting(wait) = thread else { return None };
            let waited_ns = until_ns.saturating_sub(wait.since_ns);
            wait.since_ns = wait.since_ns.max(until_ns);
            Some((wait, count(fraction, waited_ns, period)))
        })
    }

    fn count(&mut self, waited_ns: u64, period: Period) -> u64 {
        count(&mut self.fraction, waited_ns, period)
    }
}

fn count(fraction: &mut u64, waited_ns: u64, period: Period) -> u64 {
    *fraction = fraction.wrapping_add(GOLDEN);
    let periods = (u128::from(waited_ns) << 64) / u128::from(period.as_nanos().max(1));
    u64::try_from((periods + u128::from(*fraction)) >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Period = Period::TEN_MILLISECONDS;
    const MS: u64 = 1_000_000;

    fn at(time_ms: u64, record: Record) -> Timed {
        Timed { time_ns: time_ms * MS, record }
    }

    fn sample(time_ms: u64, tid: u32) -> Timed {
        let frames = vec![Frame { address: u64::from(tid), is_kernel: false }];
        at(time_ms, Record::Sample { pid: 7, tid, frames, is_cut: false, user: None, count: 1 })
    }

    /// Samples, each as its thread and count, and the number of lost ones.
    fn counts(records: &[Timed]) -> (Vec<(u32, u64)>, u64) {
        let (mut counts, mut all_lost) = (Vec::new(), 0);
        for Timed { record, .. } in records {
            if let Record::Sample { tid, count, .. } = record {
                counts.push((*tid, *count));
            } else if let Record::Lost(lost) = record {
                all_lost += lost;
            }
        }
        (counts, all_lost)
    }

    #[test]
    fn a_wait_lasts_from_its_sample_to_the_return_of_the_thread() {
        let mut waits = Waits::default();
        let records = vec![
            at(110, Record::In { tid: 1 }),
            sample(10, 1),
            at(10, Record::Out { tid: 1 }),
            // The sample was lost, but the time is known.
            at(20, Record::Out { tid: 2 }),
            at(220, Record::In { tid: 2 }),
            // One that waited before the begin.
            at(30, Record::In { tid: 3 }),
            // The last switch of a thread.
            sample(40, 4),
            at(41, Record::Out { tid: 4 }),
            at(45, Record::Exit { tid: 5 }),
            sample(46, 5),
            at(47, Record::Out { tid: 5 }),
        ];
        let (found, lost) = counts(&waits.samples(records, PERIOD, 1000 * MS));
        assert_eq!((found, lost), (vec![(1, 10)], 20));
        let lasting: Vec<u64> = waits.lasting(PERIOD).map(|(_, count)| count).collect();
        assert_eq!(lasting, [96]);
        let records = vec![at(1100, Record::In { tid: 4 })];
        let (found, lost) = counts(&waits.samples(records, PERIOD, 2000 * MS));
        assert_eq!((found, lost), (vec![(4, 10)], 0), "the part that was not counted yet");
        assert!(waits.threads.contains_key(&5));
        assert_eq!(waits.lasting(PERIOD).count(), 0);
        assert!(waits.threads.is_empty(), "the state of an ended thread is forgotten");
    }

    #[test]
    fn a_return_that_is_read_before_its_switch_waits_for_it() {
        let mut waits = Waits::default();
        let early = waits.samples(vec![at(110, Record::In { tid: 1 })], PERIOD, 5 * MS);
        assert!(early.is_empty());
        let records = vec![sample(10, 1), at(10, Record::Out { tid: 1 })];
        assert_eq!(counts(&waits.samples(records, PERIOD, 1000 * MS)).0, [(1, 10)]);
    }

    #[test]
    fn the_time_during_which_switches_are_unknown_counts_for_no_thread() {
        let mut waits = Waits::default();
        let blind = |from_ms, until_ms: u64| at(from_ms, Record::Blind { until_ns: until_ms * MS });
        let records = vec![
            sample(10, 1),
            at(10, Record::Out { tid: 1 }),
            blind(110, 510),
            // That of another CPU.
            blind(310, 610),
            sample(510, 2),
            at(510, Record::Out { tid: 2 }),
            at(710, Record::In { tid: 1 }),
            at(810, Record::In { tid: 2 }),
            blind(910, 1500),
            sample(950, 3),
        ];
        let (found, lost) = counts(&waits.samples(records, PERIOD, 1000 * MS));
        assert_eq!((found, lost), (vec![(1, 20), (2, 20)], 40 + 10));
        waits.samples(vec![at(1550, Record::Out { tid: 3 })], PERIOD, 1600 * MS);
        assert_eq!(waits.lasting(PERIOD).map(|(_, count)| count).collect::<Vec<_>>(), [10]);
    }

    proptest! {
        #[test]
        fn short_waits_have_as_many_samples_as_their_time(waited_ns in 1_000_u64..30_000_000, every in 1_usize..5) {
            let mut fraction = 0;
            // Each one in `every` waits is looked at, as those of one stack.
            let counts = (0..4000).map(|_| count(&mut fraction, waited_ns, PERIOD)).step_by(every);
            let (number, sum) = counts.fold((0, 0), |(number, sum), count| (number + 1, sum + count));
            let expected = number * waited_ns / PERIOD.as_nanos();
            prop_assert!(sum.abs_diff(expected) < 20, "{sum} for {expected}");
        }
    }
}
