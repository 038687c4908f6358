//! From rows to batches: the values of each series, windows, facts of jobs, and the ends of series.

use std::sync::Arc;
use std::time::Duration;

use polymeter_store::accepted::{Accepted, JobRecord, SampleBlock};

use super::counters::{Counters, DropReason};
use super::job_facts::{INFO_INTERVAL_MS, Jobs};
use super::request::{STALE, Sample};
use super::series::{Entry, Identity, Place, SeriesTable};
use super::shards::{Output, ShardOutput};
use super::window::{LeftOut, Windows, is_below_millisecond, last_values};
use crate::sinks::ends::Ends;

fn add_values(output: &mut Output, entry: &mut Entry, values: &[Sample]) {
    let Some(sum) = &mut entry.sum else { return output.add(entry.shard, &entry.labels, values, None) };
    for (start_ms, part) in sum.split(values) {
        output.add(entry.shard, &entry.labels, part, Some(start_ms));
    }
}

pub(super) struct Pipeline {
    pub(super) table: SeriesTable,
    pub(super) output: Output,
    windows: Windows,
    values: Vec<Sample>,
    pub(super) left_out: LeftOut,
    pub(super) added: u64,
}

impl Pipeline {
    pub(super) fn new(table: SeriesTable, output: Output) -> Self {
        let (windows, values, left_out) = (Windows::default(), Vec::new(), LeftOut::default());
        Self { table, output, windows, values, left_out, added: 0 }
    }

    pub(super) fn add_frame(&mut self, frame: &Accepted, jobs: &mut Jobs, counters: &Counters) {
        jobs.learn(frame);
        for block in &frame.samples {
            self.add_block(block, counters);
            if let Some(job) = &block.line.job
                && let Some((_, newest_us)) = block.span_us()
            {
                self.add_facts(jobs, job, newest_us.div_euclid(1000));
            }
        }
        if let Some(ends) = Ends::of_frame(frame) {
            self.end_all(&ends, jobs);
        }
    }

    fn add_block(&mut self, block: &SampleBlock, counters: &Counters) {
        let is_fine = is_below_millisecond(&block.times_us);
        for (series, samples) in block.iter() {
            match self.table.find(series) {
                Some(place) => self.add_samples(place, Identity::of(series), is_fine, samples),
                None if self.table.is_full() => {
                    counters.drop_samples(DropReason::SeriesLimit, block.times_us.len() as u64);
                }
                None => {}
            }
        }
    }

    fn add_samples(
        &mut self,
        place: Place,
        series: Identity<'_>,
        is_fine: Option<bool>,
        samples: impl Iterator<Item = (i64, f64)>,
    ) {
        let has_windows = self.table.entry(place).is_some_and(|entry| entry.windows.is_some());
        match is_fine {
            Some(true) if !has_windows => self.table.begin_windows(place, series),
            Some(false) if has_windows => self.end_windows(place),
            _ => {}
        }
        let Some(entry) = self.table.entry(place) else { return };
        let mut progress = entry.progress;
        let shard = entry.shard;
        if let Some(windows) = &mut entry.windows {
            self.windows.clear();
            self.windows.add(samples, entry.divisor, &mut progress, &mut windows.open, &mut self.left_out);
        } else {
            self.values.clear();
            last_values(samples, entry.divisor, &mut progress, &mut self.values, &mut self.left_out);
        }
        let is_new = progress.last_ms > entry.progress.last_ms;
        entry.is_ended &= !is_new;
        entry.progress = progress;
        if is_new {
            self.put(place, shard);
        }
    }

    /// Adds the values or the windows of a series to the batch of its shard.
    fn put(&mut self, place: Place, shard: usize) {
        let Self { table, output, windows, values, .. } = self;
        let Some(entry) = table.entry(place) else { return };
        self.added += if let Some(series) = &entry.windows {
            output.add(shard, &series.min_labels, &windows.min, None);
            output.add(shard, &series.max_labels, &windows.max, None);
            add_values(output, entry, &windows.last);
            windows.last.len() * 3
        } else {
            add_values(output, entry, values);
            values.len()
        } as u64;
        if output.is_full(shard) {
            output.flush(shard, table);
        }
    }

    pub(super) fn recover(&mut self, series: Identity<'_>, samples: &[(i64, f64)]) {
        let Some(place) = self.table.place_of(series) else { return };
        let times: Vec<i64> = samples.iter().map(|(time_us, _)| *time_us).collect();
        self.add_samples(place, series, is_below_millisecond(&times), samples.iter().copied());
        if let Some(entry) = self.table.entry(place) {
            // They may be offered once more, by the writers' queue.
            let open_ms = entry.windows.as_ref().and_then(|windows| windows.open.map(|open| open.ms));
            entry.progress.caught_up_ms = open_ms.unwrap_or(entry.progress.last_ms);
        }
    }

    /// Closes the open windows that began before `ms`.
    pub(super) fn close_windows(&mut self, ms: i64) {
        for place in self.table.open_windows(ms) {
            self.close_window(place);
        }
    }

    fn close_window(&mut self, place: Place) {
        let Some(entry) = self.table.entry(place) else { return };
        let shard = entry.shard;
        let Entry { windows: Some(series), progress, divisor, .. } = entry else { return };
        self.windows.clear();
        self.windows.close(&mut series.open, *divisor, progress);
        self.put(place, shard);
    }

    /// Ends the windows of a series whose period is no longer below 1 ms.
    fn end_windows(&mut self, place: Place) {
        self.close_window(place);
        let Some(entry) = self.table.entry(place) else { return };
        let Some(series) = entry.windows.take() else { return };
        let (shard, end) = (entry.shard, [(entry.progress.last_ms.saturating_add(1), STALE)]);
        self.output.add(shard, &series.min_labels, &end, None);
        self.output.add(shard, &series.max_labels, &end, None);
    }

    /// Marks series as ended, so that they do not seem to continue for five minutes.
    fn end(&mut self, places: Vec<Place>) {
        for place in places {
            self.close_window(place);
            let Some(entry) = self.table.entry(place) else { continue };
            if entry.is_ended || entry.progress.last_ms == i64::MIN {
                continue;
            }
            entry.is_ended = true;
            entry.progress.last_ms += 1;
            let end = [(entry.progress.last_ms, STALE)];
            let start_ms = entry.sum.and_then(|sum| sum.start_ms());
            self.output.add(entry.shard, &entry.labels, &end, start_ms);
            if let Some(series) = &entry.windows {
                self.output.add(entry.shard, &series.min_labels, &end, None);
                self.output.add(entry.shard, &series.max_labels, &end, None);
            }
            let shard = entry.shard;
            if self.output.is_full(shard) {
                self.output.flush(shard, &self.table);
            }
        }
    }

    pub(super) fn end_all(&mut self, ends: &Ends<'_>, jobs: &mut Jobs) {
        let series = self.table.end(|series| ends.has_series(series));
        let facts = jobs.end(|job| ends.has_job(job));
        self.end(series);
        self.end(facts);
    }

    /// Adds a sample of the facts of a job, if the last one is old or the facts have changed.
    fn add_facts(&mut self, jobs: &mut Jobs, record: &Arc<JobRecord>, at_ms: i64) {
        let (node, id) = (record.node().as_str(), record.descriptor.job_id.as_str());
        if !self.table.selection.has_job(node, id) {
            return;
        }
        let job = jobs.find(record);
        if !job.has_changed && at_ms < job.info_ms.saturating_add(INFO_INTERVAL_MS) {
            return;
        }
        if std::mem::take(&mut job.has_changed) {
            let labels = self.table.selection.encode_facts(node, id, &job.facts);
            let place = self.table.place_of_labels(labels, 1.0, None);
            let before = std::mem::replace(&mut job.place, place);
            if before != place {
                self.end(before.into_iter().collect());
            }
        }
        job.info_ms = at_ms;
        let Some(place) = job.place else { return };
        self.table.keep(place);
        let Some(entry) = self.table.entry(place) else { return };
        if at_ms <= entry.progress.last_ms {
            return;
        }
        (entry.progress.last_ms, entry.is_ended) = (at_ms, false);
        let shard = entry.shard;
        self.values.clear();
        self.values.push((at_ms, 1.0_f64.to_bits()));
        self.put(place, shard);
    }

    /// Writes the batches that are older than `wait` to the spool.
    pub(super) fn flush_older(&mut self, wait: Duration) {
        for shard in 0..self.output.shards.len() {
            let now = self.output.now;
            let is_due =
                |shard: &ShardOutput| shard.batch.samples() > 0 && now.saturating_sub(shard.since) >= wait;
            if self.output.shards.get(shard).is_some_and(is_due) {
                self.output.flush(shard, &self.table);
            }
        }
    }
}
