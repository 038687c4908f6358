//! Pace of reads: while ingest is behind, all reads together get a part of one core, so that they wait
//! rather than samples.
//!
//! A database server knows no priorities: its processes for readers compete with those for writers. So a read
//! pauses between its rows and between its statements, as long as it has used more than its part. What a
//! statement computes before its first row cannot be paced, but the next one waits accordingly longer: that
//! of the same user for all of it, those of others for a short time.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polymeter_proto::read::Query;
use polymeter_service::clock;
use polymeter_service::token_bucket::TokenBucket;
use polymeter_store::StoreError;
use polymeter_store::reader::{Read, RowBlock};

use super::read_stop::ReadStop;
use crate::limits;
use crate::links::IsBehind;

pub(crate) struct Pace {
    is_behind: Arc<IsBehind>,
    /// False if the reads are done by threads of this process, which have a low priority.
    is_needed: bool,
    work: Mutex<Work>,
}

/// Seconds of work that reads may do while ingest is behind.
#[derive(Debug)]
struct Work {
    all: TokenBucket,
    by_user: HashMap<u32, TokenBucket>,
}

const fn unused() -> TokenBucket {
    TokenBucket::new(limits::BEHIND_READ_SHARE, limits::BEHIND_READ_BURST_S)
}

/// Takes work from a bucket, but no more than causes the longest pause. Returns the pause.
fn take(bucket: &mut TokenBucket, worked: Duration, longest: Duration, now_ns: u64) -> Duration {
    let most_s = bucket.tokens(now_ns) + longest.as_secs_f64() * limits::BEHIND_READ_SHARE;
    bucket.charge(worked.as_secs_f64().min(most_s.max(0.0)), now_ns);
    Duration::from_nanos(bucket.debt_ns(now_ns))
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("work", &self.work).finish_non_exhaustive()
    }
}

impl Pace {
    pub(crate) fn new(is_behind: Arc<IsBehind>, is_needed: bool) -> Self {
        Self { is_behind, is_needed, work: Mutex::new(Work { all: unused(), by_user: HashMap::new() }) }
    }

    /// Records work of a user's read. Returns the time for which it must pause.
    fn charge(&self, uid: u32, worked: Duration, now_ns: u64) -> Duration {
        if !self.is_needed || !(self.is_behind)() {
            return Duration::ZERO;
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Work { all, by_user } = &mut *work;
        if by_user.len() >= limits::PRINCIPALS && !by_user.contains_key(&uid) {
            by_user.retain(|_, bucket| !bucket.is_full(now_ns));
        }
        let of_user = by_user.entry(uid).or_insert_with(unused);
        let own = take(of_user, worked, limits::BEHIND_OWN_PAUSE, now_ns);
        own.max(take(all, worked, limits::BEHIND_COMMON_PAUSE, now_ns))
    }
}

/// Reader that pauses while ingest is behind.
#[derive(Debug)]
pub(crate) struct PacedReader<'a, R> {
    reader: R,
    turn: Turn<'a>,
}

/// Counts work of one read that was not charged yet.
#[derive(Debug)]
struct Turn<'a> {
    pace: &'a Pace,
    uid: u32,
    stop: &'a ReadStop,
    worked_ns: u64,
}

impl Turn<'_> {
    /// Adds work, and pauses if the read has worked for some time. Returns false if it is cancelled.
    fn add(&mut self, worked_ns: u64) -> bool {
        self.worked_ns = self.worked_ns.saturating_add(worked_ns);
        self.worked_ns < limits::BEHIND_READ_SLICE_NS || self.give_way()
    }

    /// Pauses for as long as the work of all reads requires, or until ingest is no longer behind. Returns
    /// false if the read is cancelled.
    fn give_way(&mut self) -> bool {
        let mut worked = Duration::from_nanos(std::mem::take(&mut self.worked_ns));
        loop {
            let pause = self.pace.charge(self.uid, worked, clock::monotonic_ns());
            if pause.is_zero() {
                return true;
            }
            worked = Duration::ZERO;
            if !self.stop.pause(pause.min(limits::BEHIND_READ_PAUSE)) {
                return false;
            }
        }
    }
}

impl<'a, R> PacedReader<'a, R> {
    /// Pauses end when `stop` cancels the read.
    pub(crate) const fn new(reader: R, pace: &'a Pace, uid: u32, stop: &'a ReadStop) -> Self {
        Self { reader, turn: Turn { pace, uid, stop, worked_ns: 0 } }
    }
}

impl<R: Read> Read for PacedReader<'_, R> {
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let Self { reader, turn } = self;
        if !turn.give_way() {
            return Err(cancelled());
        }
        let mut begun_ns = clock::monotonic_ns();
        let mut is_cancelled = false;
        reader.read(query, &mut |block| {
            // The database has worked until the rows arrived. A client may be slow to take them, which is no
            // work.
            let (arrived_ns, cpu_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
            let flow = each(block);
            let used_ns = clock::thread_cpu_ns().saturating_sub(cpu_ns);
            is_cancelled = !turn.add(arrived_ns.saturating_sub(begun_ns).saturating_add(used_ns));
            begun_ns = clock::monotonic_ns();
            if is_cancelled { ControlFlow::Break(()) } else { flow }
        })?;
        turn.add(clock::monotonic_ns().saturating_sub(begun_ns));
        if is_cancelled { Err(cancelled()) } else { Ok(()) }
    }
}

fn cancelled() -> StoreError {
    StoreError::Unusable("the read was cancelled".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use polymeter_proto::read::SampleRow;

    use super::*;

    /// Answers each query with some blocks, for each of which it works.
    struct Works(Duration);

    impl Read for Works {
        fn read(
            &mut self,
            _: &Query,
            each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            for time_ns in 0..BLOCKS {
                clock::sleep(self.0);
                if each(RowBlock::Samples(vec![SampleRow {
                    series_id: 1,
                    time_ns,
                    value: 0.0,
                    window: None,
                }]))
                .is_break()
                {
                    break;
                }
            }
            Ok(())
        }
    }

    const BLOCKS: i64 = 5;
    const QUERY: Query = Query::Marks { job_key: 1 };

    fn pace(is_behind: &Arc<AtomicBool>) -> Pace {
        let is_behind = Arc::clone(is_behind);
        Pace::new(Arc::new(move || is_behind.load(Ordering::Relaxed)), true)
    }

    #[test]
    fn all_reads_together_get_a_part_of_a_core_while_ingest_is_behind() {
        let is_behind = Arc::new(AtomicBool::new(true));
        let pace = pace(&is_behind);
        let burst = Duration::from_secs_f64(limits::BEHIND_READ_BURST_S);
        assert_eq!(pace.charge(1, burst, 1), Duration::ZERO);
        let short = Duration::from_millis(10);
        let pause = pace.charge(1, short, 1);
        let part = short.as_secs_f64() / pause.as_secs_f64();
        assert!((part / limits::BEHIND_READ_SHARE - 1.0).abs() < 0.01, "{pause:?}");
        assert!(pace.charge(2, short, 1) > pause, "the reads of another user");
        is_behind.store(false, Ordering::Relaxed);
        assert_eq!(pace.charge(1, short, 1), Duration::ZERO);
        let of_threads = Pace::new(Arc::new(|| true), false);
        assert_eq!(of_threads.charge(1, Duration::from_secs(9), 1), Duration::ZERO);
    }

    #[test]
    fn a_long_statement_delays_its_own_user() {
        let pace = pace(&Arc::new(AtomicBool::new(true)));
        let long = Duration::from_secs(3);
        let own = pace.charge(1, long, 1);
        assert!(own > Duration::from_secs(20) && own <= limits::BEHIND_OWN_PAUSE, "{own:?}");
        assert_eq!(pace.charge(2, Duration::ZERO, 1), limits::BEHIND_COMMON_PAUSE);
        assert!(pace.charge(1, Duration::from_secs(1000), 1) <= limits::BEHIND_OWN_PAUSE);
        let later_ns = 1 + u64::try_from(limits::BEHIND_COMMON_PAUSE.as_nanos()).unwrap();
        assert_eq!(pace.charge(2, Duration::ZERO, later_ns), Duration::ZERO);
        assert!(pace.charge(1, Duration::ZERO, later_ns) > Duration::from_secs(20));
    }

    #[test]
    fn a_read_pauses_between_its_rows_and_loses_none() {
        let is_behind = Arc::new(AtomicBool::new(true));
        let (pace, stop) = (pace(&is_behind), ReadStop::default());
        let mut rows = 0;
        let mut reader =
            PacedReader::new(Works(Duration::from_nanos(2 * limits::BEHIND_READ_SLICE_NS)), &pace, 1, &stop);
        // Without a backlog nothing is paused; with one, only what exceeds the burst.
        for behind in [false, true, true, true] {
            is_behind.store(behind, Ordering::Relaxed);
            reader
                .read(&QUERY, &mut |_| {
                    rows += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert!(behind || stop.take_paused().is_zero());
        }
        assert_eq!(rows, 4 * BLOCKS);
        assert!(!stop.take_paused().is_zero());
    }

    #[test]
    fn a_cancelled_read_asks_the_store_nothing_more() {
        let is_behind = Arc::new(AtomicBool::new(true));
        let (pace, stop) = (pace(&is_behind), ReadStop::default());
        pace.charge(1, Duration::from_secs(1000), clock::monotonic_ns());
        stop.cancel(false);
        let mut reader = PacedReader::new(Works(Duration::ZERO), &pace, 1, &stop);
        let mut blocks = 0;
        let read = reader.read(&QUERY, &mut |_| {
            blocks += 1;
            ControlFlow::Continue(())
        });
        assert!(read.is_err() && blocks == 0);
    }
}
