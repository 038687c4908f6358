//! Clocks of the nodes of jobs, where they differ from the collector's by much. All times of a job are
//! returned by the collector's clock, so that those of its nodes can be compared.

use std::collections::HashMap;
use std::ops::Range;
use std::ptr;

use polymeter_proto::read::{
    BucketRow, FiringRow, IdRanges, JobNodeRow, KeptIntervalRow, LossRow, MarkRow, PlanChangeRow, RefusedRow,
    SampleRow,
};

use super::read::SeriesScope;
use super::recorded_statements::Reader;
use crate::StoreError;
use crate::row::from_row;

#[derive(Debug)]
struct Session {
    job_key: i64,
    node: String,
    /// Time of the session by the clock of the node.
    started_ns: i64,
    last_ns: i64,
    /// How far the clock of the node was ahead of the collector's; none if it was not by much.
    offset_us: Option<i64>,
}

from_row!(Session { job_key, node, started_ns: TimeNs, last_ns: TimeNs, offset_us });

impl Session {
    fn offset_ns(&self) -> i64 {
        self.offset_us.unwrap_or(0).saturating_mul(1000)
    }

    /// Returns the time between the session and a time by the clock of the node; 0 if it lies in it.
    fn distance_ns(&self, time_ns: i64) -> i64 {
        self.started_ns.saturating_sub(time_ns).max(time_ns.saturating_sub(self.last_ns)).max(0)
    }
}

/// Clock of a node of a job: the sessions of its agent, the latest first. With each session the offset may be
/// another.
#[derive(Debug, Default)]
pub(super) struct NodeClock(Vec<Session>);

impl NodeClock {
    /// Returns a time of the node by the collector's clock. It belongs to the latest session that contains
    /// it, or to the nearest.
    pub(super) fn corrected_ns(&self, time_ns: i64) -> i64 {
        let session = self.0.iter().min_by_key(|session| session.distance_ns(time_ns));
        time_ns.saturating_sub(session.map_or(0, Session::offset_ns))
    }

    /// Returns a span of the node that contains all times whose corrected ones lie in `span_ns`.
    pub(super) fn raw_ns(&self, span_ns: &Range<i64>) -> Range<i64> {
        let offsets = || self.0.iter().map(Session::offset_ns);
        let (least, most) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        span_ns.start.saturating_add(least)..span_ns.end.saturating_add(most)
    }
}

/// Clocks of those nodes of jobs that differ from the collector's.
#[derive(Debug, Default)]
pub(super) struct Clocks(HashMap<i64, HashMap<String, NodeClock>>);

impl Clocks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, job_key: i64) -> bool {
        self.0.contains_key(&job_key)
    }

    pub(super) fn nodes(&self, job_key: i64) -> impl Iterator<Item = &str> {
        self.0.get(&job_key).into_iter().flatten().map(|(node, _)| node.as_str())
    }

    pub(super) fn of(&self, job_key: i64, node: &str) -> Option<&NodeClock> {
        self.0.get(&job_key)?.get(node)
    }

    pub(super) fn correct<T: NodeTimes>(&self, job_key: i64, row: &mut T) {
        if let Some(clock) = self.of(job_key, row.node()) {
            row.change(|time_ns| clock.corrected_ns(time_ns));
        }
    }

    pub(super) fn corrected<T: NodeTimes>(&self, job_key: i64, mut rows: Vec<T>) -> Vec<T> {
        rows.iter_mut().for_each(|row| self.correct(job_key, row));
        rows
    }

    /// Corrects the time of a job on a node, and states the offset of the latest session.
    pub(super) fn correct_node(&self, job_key: i64, row: &mut JobNodeRow) {
        if let Some(clock) = self.of(job_key, &row.node) {
            row.started_ns = clock.corrected_ns(row.started_ns);
            row.ended_ns = row.ended_ns.map(|ended_ns| clock.corrected_ns(ended_ns));
            row.clock_offset_us = clock.0.iter().find_map(|session| session.offset_us);
        }
    }
}

pub(super) trait NodeTimes {
    fn node(&self) -> &str;
    /// Returns the time by which rows are sorted.
    fn time_ns(&self) -> i64;
    fn change(&mut self, change: impl Fn(i64) -> i64);
}

macro_rules! node_times {
    ($($row:ty { $($time:ident),+ } $($optional:ident)?),+ $(,)?) => {$(
        impl NodeTimes for $row {
            fn node(&self) -> &str {
                &self.node
            }

            fn time_ns(&self) -> i64 {
                self.time_ns
            }

            fn change(&mut self, change: impl Fn(i64) -> i64) {
                $(self.$time = change(self.$time);)+
                $(self.$optional = self.$optional.map(&change);)?
            }
        }
    )+};
}

node_times! {
    MarkRow { time_ns },
    RefusedRow { time_ns },
    LossRow { first_time_ns, last_time_ns },
    PlanChangeRow { time_ns } until_ns,
}

impl NodeTimes for KeptIntervalRow {
    fn node(&self) -> &str {
        &self.node
    }

    fn time_ns(&self) -> i64 {
        self.begin_ns
    }

    fn change(&mut self, change: impl Fn(i64) -> i64) {
        self.begin_ns = change(self.begin_ns);
        self.end_ns = change(self.end_ns);
    }
}

impl NodeTimes for FiringRow {
    fn node(&self) -> &str {
        &self.node
    }

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn change(&mut self, change: impl Fn(i64) -> i64) {
        self.time_ns = change(self.time_ns);
        self.begin_ns = self.begin_ns.map(&change);
        self.end_ns = self.end_ns.map(&change);
    }
}

pub(super) trait SeriesTime: Copy {
    /// Returns the id of the series, and the time.
    fn of(&self) -> (i64, i64);

    /// Returns the row at another time.
    #[must_use]
    fn at(self, time_ns: i64) -> Self;
}

impl SeriesTime for SampleRow {
    fn of(&self) -> (i64, i64) {
        (self.series_id, self.time_ns)
    }

    fn at(self, time_ns: i64) -> Self {
        Self { time_ns, ..self }
    }
}

impl SeriesTime for BucketRow {
    fn of(&self) -> (i64, i64) {
        (self.series_id, self.time_ns)
    }

    fn at(self, time_ns: i64) -> Self {
        Self { time_ns, ..self }
    }
}

/// Series of one node, or of nodes whose clocks do not differ.
#[derive(Debug)]
pub(super) struct SeriesOfClock<'a> {
    pub(super) series: IdRanges,
    pub(super) clock: Option<&'a NodeClock>,
}

/// Passes rows on with corrected times, sorted by series and time. The rows of one series are held in memory,
/// since two sessions with different clocks may overlap.
pub(super) struct Corrected<'a, T, F> {
    clock: &'a NodeClock,
    span_ns: Range<i64>,
    /// Length of an interval that begins at the time of a row.
    length_ns: i64,
    rows: Vec<T>,
    each: F,
}

impl<'a, T: SeriesTime, E, F: FnMut(T) -> Result<(), E>> Corrected<'a, T, F> {
    /// Begins with the first series of a node.
    pub(super) fn new(clock: &'a NodeClock, span_ns: &Range<i64>, length_ns: i64, each: F) -> Self {
        Self { clock, span_ns: span_ns.clone(), length_ns, rows: Vec::new(), each }
    }

    pub(super) fn add(&mut self, row: T) -> Result<(), E> {
        let (series_id, time_ns) = row.of();
        if self.rows.first().is_some_and(|first| first.of().0 != series_id) {
            self.pass()?;
        }
        let time_ns = self.clock.corrected_ns(time_ns);
        if time_ns < self.span_ns.end && time_ns.saturating_add(self.length_ns) >= self.span_ns.start {
            self.rows.push(row.at(time_ns));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), E> {
        self.pass()
    }

    fn pass(&mut self) -> Result<(), E> {
        self.rows.sort_by_key(|row| row.of().1);
        self.rows.drain(..).try_for_each(&mut self.each)
    }
}

impl Reader {
    /// Returns the clocks of the nodes of jobs that differ from the collector's.
    pub(super) fn clocks(&mut self, job_keys: &[i64]) -> Result<Clocks, StoreError> {
        let mut clocks = Clocks::default();
        let skewed = "SELECT count(*) FROM (SELECT 1 FROM session WHERE clock_offset_us IS NOT NULL LIMIT 1) AS skewed";
        if job_keys.is_empty() || self.rows::<i64>(skewed, &[])? == [0] {
            return Ok(clocks);
        }
        let select = format!(
            "SELECT job_node.job_key, job_node.node, session.started, coalesce(session.last_sample, session.started),
                 session.clock_offset_us
             FROM job_node JOIN session ON session.node = job_node.node
             WHERE job_node.job_key {}
                 AND job_node.node IN (SELECT node FROM session WHERE clock_offset_us IS NOT NULL)
                 AND (session.session_id = job_node.session_id OR EXISTS (
                     SELECT 1 FROM ledger_line
                     WHERE ledger_line.session_key = session.session_key AND ledger_line.job_key = job_node.job_key))
             ORDER BY session.last_seen DESC",
            (self.dialect().is_one_of)(job_keys)
        );
        for session in self.rows::<Session>(&select, &[])? {
            let of_job = clocks.0.entry(session.job_key).or_default();
            of_job.entry(session.node.clone()).or_default().0.push(session);
        }
        // Another job may have had the session whose clock differed.
        clocks.0.retain(|_, nodes| {
            nodes.retain(|_, clock| clock.0.iter().any(|session| session.offset_us.is_some()));
            !nodes.is_empty()
        });
        Ok(clocks)
    }

    /// Returns the clocks of the owner of series. Those of a node itself keep its times.
    pub(super) fn clocks_of(&mut self, of: SeriesScope<'_>) -> Result<(i64, Clocks), StoreError> {
        match of {
            SeriesScope::Job(key) | SeriesScope::NodesOf(key) => Ok((key, self.clocks(&[key])?)),
            SeriesScope::Node(_) => Ok((0, Clocks::default())),
        }
    }

    /// Divides series by clock, in ascending order: a part for each node whose clock differs, and for the
    /// series between.
    pub(super) fn by_clock<'a>(
        &mut self,
        of: SeriesScope<'_>,
        series: &IdRanges,
        (job_key, clocks): (i64, &'a Clocks),
    ) -> Result<Vec<SeriesOfClock<'a>>, StoreError> {
        if clocks.is_empty() {
            return Ok(vec![SeriesOfClock { series: series.clone(), clock: None }]);
        }
        let mut blocks = self.blocks_of(of)?;
        blocks.sort_unstable_by_key(|(first_id, _)| *first_id);
        let mut parts: Vec<(Option<&'a NodeClock>, Vec<i64>)> = Vec::new();
        for id in series.ids() {
            let block = blocks.partition_point(|(first_id, _)| *first_id <= id).checked_sub(1);
            let node = block.and_then(|position| blocks.get(position)).map(|(_, node)| node.as_str());
            let clock = node.and_then(|node| clocks.of(job_key, node));
            match parts.last_mut().filter(|(known, _)| known.map(ptr::from_ref) == clock.map(ptr::from_ref)) {
                Some((_, ids)) => ids.push(id),
                None => parts.push((clock, vec![id])),
            }
        }
        Ok(parts
            .into_iter()
            .map(|(clock, ids)| SeriesOfClock { series: ids.into_iter().collect(), clock })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn session(started_s: i64, last_s: i64, offset_s: Option<i64>) -> Session {
        Session {
            job_key: 1,
            node: "n1".to_owned(),
            started_ns: started_s * S,
            last_ns: last_s * S,
            offset_us: offset_s.map(|offset_s| offset_s * 1_000_000),
        }
    }

    #[test]
    fn each_time_belongs_to_the_session_that_contains_it() {
        // The agent began with a clock that was 600 s ahead, and again at 50 s with the right one.
        let clock = NodeClock(vec![session(50, 90, None), session(610, 645, Some(600))]);
        let corrected = |time_s: i64| clock.corrected_ns(time_s * S) / S;
        assert_eq!((corrected(612), corrected(645), corrected(51), corrected(90)), (12, 45, 51, 90));
        assert_eq!((corrected(605), corrected(700), corrected(40)), (5, 100, 40), "the nearest");
        assert_eq!(clock.raw_ns(&(0..100 * S)), 0..700 * S);
        assert_eq!(NodeClock::default().corrected_ns(7), 7);
    }

    #[test]
    fn rows_of_two_sessions_are_sorted_by_their_corrected_times() {
        // At 30 s the clock is set back by 20 s.
        let clock = NodeClock(vec![session(11, 60, Some(-20)), session(0, 10, Some(4))]);
        let mut found = Vec::new();
        let row =
            |series_id, time_s: i64| SampleRow { series_id, time_ns: time_s * S, value: 0.0, window: None };
        let mut corrected = Corrected::new(&clock, &(0..50 * S), 0, |row: SampleRow| {
            found.push((row.series_id, row.time_ns / S));
            Ok::<_, ()>(())
        });
        for row in [row(1, 2), row(1, 8), row(1, 11), row(1, 40), row(2, 8)] {
            corrected.add(row).unwrap();
        }
        corrected.finish().unwrap();
        assert_eq!(found, [(1, 4), (1, 31), (2, 4)], "one lies before the span, one after");
    }
}
