//! A feed: one selection of a job's series at one rate, for all streams that ask for the same.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use polymeter_proto::ledger::{Mark, PlanChange};
use polymeter_proto::period::Period;
use polymeter_store::accepted::{Accepted, LossRecord, SampleBlock, SeriesRecord};
use polymeter_store::reader::{LossRow, MarkRow, PlanChangeRow};
use serde_json::{Value, json};

use super::event::{event, values};
use super::filter::SeriesFilter;
use super::mailbox::Mailbox;
use super::periods::{self, Periods, describe};
use super::reducer::{Point, Reducer};
use crate::answer::rows;
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedRequest {
    /// The store's.
    pub(crate) job_key: i64,
    pub(crate) filter: SeriesFilter,
    /// Points a second and series; none for all values as they are stored.
    pub(crate) per_second: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Feed {
    pub(super) request: FeedRequest,
    pub(super) mailboxes: Vec<Arc<Mailbox>>,
    /// Series of which samples came; none for a series that is not asked for.
    courses: HashMap<i64, Option<Course>>,
    /// Series that were described to all streams.
    described: HashSet<i64>,
    periods: Periods,
    /// Place where the job ran at some time.
    nodes: BTreeSet<String>,
    /// Events of the present transaction, before and after its values.
    before: Vec<Bytes>,
    after: Vec<Bytes>,
    /// New series and points of the present transaction.
    new: Vec<Value>,
    points: Vec<Point>,
    /// Series with values that were not sent yet.
    open: HashSet<i64>,
    has_ended_somewhere: bool,
}

#[derive(Debug)]
struct Course {
    newest_us: i64,
    reducer: Option<Reducer>,
}

impl Feed {
    pub(super) fn new(request: FeedRequest) -> Self {
        Self {
            request,
            mailboxes: Vec::new(),
            courses: HashMap::new(),
            described: HashSet::new(),
            periods: Periods::default(),
            nodes: BTreeSet::new(),
            before: Vec::new(),
            after: Vec::new(),
            new: Vec::new(),
            points: Vec::new(),
            open: HashSet::new(),
            has_ended_somewhere: false,
        }
    }

    /// Records what a stream has read in the store and described to its client.
    pub(super) fn seed(&mut self, described: Vec<i64>, periods: Periods, nodes: Vec<String>) {
        // Another stream may have been started before one of these series existed, and must be told of it.
        if self.mailboxes.len() == 1 {
            self.described.extend(described);
            self.nodes.extend(nodes);
        }
        self.periods.complete(periods);
    }

    pub(super) fn samples(&mut self, frame: &Accepted, block: &SampleBlock, now_us: i64) {
        let node = frame.session.descriptor.node.as_str();
        if !self.request.filter.has_node(node) {
            return;
        }
        self.note_node(node, frame.received_us);
        for (series, samples) in block.iter() {
            let Some(series_id) = series.id.get() else { continue };
            self.note_series(series_id, series);
            let Some(Some(course)) = self.courses.get_mut(&series_id) else { continue };
            for (time_us, value) in samples {
                let time_us = frame.corrected_us(time_us);
                // An older session may send what is left of its samples. They are in the store.
                if time_us <= course.newest_us {
                    continue;
                }
                course.newest_us = time_us;
                let point = match &mut course.reducer {
                    None => Some(Point::of_value(series_id, time_us, value)),
                    Some(reducer) => reducer.sample(time_us, value, now_us),
                };
                self.points.extend(point);
            }
            if course.reducer.as_ref().is_some_and(Reducer::is_open) {
                self.open.insert(series_id);
            }
        }
    }

    fn note_series(&mut self, series_id: i64, series: &SeriesRecord) {
        if self.courses.contains_key(&series_id) || self.courses.len() >= limits::SERIES {
            return;
        }
        let row = periods::row(series_id, series);
        let is_wanted = self.request.filter.has(&row);
        if is_wanted && self.described.insert(series_id) {
            self.new.push(describe(&row, &self.periods));
        }
        let course = is_wanted.then(|| Course {
            newest_us: i64::MIN,
            reducer: self.request.per_second.map(|per_second| Reducer::new(&row, per_second)),
        });
        self.courses.insert(series_id, course);
    }

    fn note_node(&mut self, node: &str, time_us: i64) {
        if !self.nodes.contains(node) {
            self.nodes.insert(node.to_owned());
            self.before.push(node_event(node, "running", time_us));
        }
    }

    pub(super) fn plan_change(&mut self, frame: &Accepted, change: &PlanChange) {
        let row = plan_change_row(frame, change);
        if self.request.filter.has_metric(&row.node, &row.metric) {
            self.periods.change(&row);
            self.before.push(event("plan", &rows::PLAN_CHANGES.object(&row.into())));
        }
    }

    pub(super) fn mark(&mut self, frame: &Accepted, mark: &Mark) {
        let row = MarkRow {
            time_ns: nanos(frame.corrected_us(mark.at_us)),
            node: frame.session.descriptor.node.to_string(),
            name: mark.name.to_string(),
            kind: mark.kind.as_str().to_owned(),
            actor: mark.by.as_ref().map(ToString::to_string),
        };
        if self.request.filter.has_node(&row.node) {
            self.after.push(event("mark", &rows::MARKS.object(&row)));
        }
    }

    /// Adds a loss of samples of the job, or of unknown sources on one of its nodes.
    pub(super) fn loss(&mut self, frame: &Accepted, loss: &LossRecord) {
        let node = frame.session.descriptor.node.as_str();
        if !self.request.filter.has_node(node) || loss.line.is_none() && !self.nodes.contains(node) {
            return;
        }
        let row = LossRow {
            time_ns: nanos(frame.received_us),
            node: node.to_owned(),
            session_id: frame.session.id.to_string(),
            job_key: loss.line.is_some().then_some(self.request.job_key),
            source: loss.line.as_ref().map(|line| line.source.to_string()),
            samples: loss.samples,
            reason: loss.reason.as_str().to_owned(),
            first_time_ns: nanos(frame.corrected_us(loss.span_us.0)),
            last_time_ns: nanos(frame.corrected_us(loss.span_us.1)),
        };
        self.after.push(event("loss", &rows::LOSSES.object(&row)));
    }

    pub(super) fn job_end(&mut self, frame: &Accepted, at_us: i64) {
        let node = frame.session.descriptor.node.as_str();
        self.has_ended_somewhere = true;
        if self.request.filter.has_node(node) {
            self.after.push(node_event(node, "ended", frame.corrected_us(at_us)));
        }
    }

    pub(super) fn send(&mut self, now_us: i64) {
        self.take_late_points(now_us);
        let mut events = std::mem::take(&mut self.before);
        for new in std::mem::take(&mut self.new).chunks(limits::EVENT_SERIES) {
            events.push(event("series", &json!({"series": new})));
        }
        events.extend(self.points.chunks(limits::EVENT_POINTS).map(values));
        self.points.clear();
        events.append(&mut self.after);
        for mailbox in &self.mailboxes {
            events.iter().for_each(|event| mailbox.offer(event));
            if self.has_ended_somewhere {
                mailbox.report_change();
            }
        }
        self.has_ended_somewhere = false;
    }

    /// Takes the values to which no further sample came for long, or all if the job has ended on a node.
    fn take_late_points(&mut self, now_us: i64) {
        let Self { courses, open, points, has_ended_somewhere, .. } = self;
        open.retain(|series_id| {
            let course = courses.get_mut(series_id).and_then(Option::as_mut);
            let Some(reducer) = course.and_then(|course| course.reducer.as_mut()) else { return false };
            points.extend(if *has_ended_somewhere { reducer.take() } else { reducer.take_stale(now_us) });
            reducer.is_open()
        });
    }
}

fn node_event(node: &str, state: &str, time_us: i64) -> Bytes {
    event("node", &json!({"time_us": time_us, "node": node, "state": state}))
}

fn plan_change_row(frame: &Accepted, change: &PlanChange) -> PlanChangeRow {
    let micros = |period: Option<Period>| period.and_then(|period| i64::try_from(period.as_micros()).ok());
    PlanChangeRow {
        time_ns: nanos(frame.corrected_us(change.at_us)),
        node: frame.session.descriptor.node.to_string(),
        metric: change.metric.as_str().to_owned(),
        old_period_us: micros(change.old.map(|sampling| sampling.period)),
        new_period_us: micros(change.new.map(|sampling| sampling.period)),
        old_window_us: micros(change.old.and_then(|sampling| sampling.window)),
        new_window_us: micros(change.new.and_then(|sampling| sampling.window)),
        cause: change.cause.as_str().to_owned(),
        actor: change.by.as_ref().map(ToString::to_string),
        until_ns: change.until_us.map(|until_us| nanos(frame.corrected_us(until_us))),
        level: change.level.map(|level| level.as_str().to_owned()),
    }
}

const fn nanos(time_us: i64) -> i64 {
    time_us.saturating_mul(1000)
}
