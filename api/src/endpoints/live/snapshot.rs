//! Part of a stream that is read from the store: the job and its series.

use bytes::Bytes;
use polymeter_service::clock;
use polymeter_store::reader::{JobNodeRow, JobRow, Read, SeriesRow};
use serde_json::{Value, json};

use super::super::parameters::{SERIES_IDS, check_number, find_job};
use super::super::series::series_of_job;
use crate::answer::{Failure, Problem, micros};
use crate::limits;
use crate::live::{FeedRequest, LiveValues, Periods, Subscription, describe, event};

#[derive(Debug)]
pub(super) struct Snapshot {
    now_us: i64,
    job: JobRow,
    nodes: Vec<JobNodeRow>,
    series: Vec<SeriesRow>,
    periods: Periods,
}

impl Snapshot {
    /// Checks that the user may see the job, subscribes to its values, and reads what the store has. Returns
    /// none if the job has ended.
    pub(super) fn begin(
        reader: &mut dyn Read,
        live: &LiveValues,
        request: FeedRequest,
    ) -> Result<Option<(Self, Subscription)>, Failure> {
        if find_job(reader, request.job_key)?.ended_ns.is_some() {
            return Ok(None);
        }
        // First: what is committed from now on is sent as events, so that nothing is missed in between.
        let subscription = live
            .subscribe(request.clone())
            .ok_or_else(|| Problem::busy("the collector stops; try again later", 5))?;
        Ok(Some((Self::read(reader, &request)?, subscription)))
    }

    pub(super) fn read(reader: &mut dyn Read, request: &FeedRequest) -> Result<Self, Failure> {
        let now_us = clock::realtime_us();
        let job = find_job(reader, request.job_key)?;
        let nodes = reader.job_nodes(request.job_key)?;
        let periods = Periods::of(&reader.plan_changes(request.job_key)?);
        let mut series = series_of_job(reader, request.job_key, request.filter.metrics())?;
        series.retain(|row| request.filter.has(row));
        check_number(series.len(), limits::SERIES, &SERIES_IDS)?;
        Ok(Self { now_us, job, nodes, series, periods })
    }

    pub(super) fn events(&self, per_second: Option<i64>) -> Vec<Bytes> {
        let nodes = self.nodes.iter().filter(|node| node.ended_ns.is_none()).map(|node| &node.node);
        let job = json!({
            "key": self.job.job_key, "id": self.job.job_id, "started_us": micros(self.job.started_ns), "now_us": self.now_us,
            "nodes": nodes.collect::<Vec<_>>(), "per_second": per_second,
        });
        let mut events = vec![event("job", &job)];
        if self.series.is_empty() {
            events.push(event("series", &json!({"series": []})));
        }
        for rows in self.series.chunks(limits::EVENT_SERIES) {
            let described: Vec<Value> = rows.iter().map(|row| describe(row, &self.periods)).collect();
            events.push(event("series", &json!({"series": described})));
        }
        events
    }

    pub(super) fn lost_nodes(&self) -> &[String] {
        &self.job.lost_nodes
    }

    /// Records in the feed what was described to a client.
    pub(super) fn seed(self, subscription: &Subscription) {
        let described = self.series.iter().map(|row| row.series_id).collect();
        let nodes = self.nodes.into_iter().map(|node| node.node).collect();
        subscription.seed(described, self.periods, nodes);
    }
}
