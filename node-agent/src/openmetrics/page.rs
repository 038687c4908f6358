//! The text of the page, kept for a moment.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use polymeter_proto::batch::Job;
use polymeter_proto::catalogue;
use polymeter_proto::exposition::{Format, JOB_INFO, LabelSet, Page};
use polymeter_proto::ledger::JobOwner;
use polymeter_proto::name::Selector;
use polymeter_proto::series::{Identifier, Kind, Labels, MetricDescriptor, Number, Unit};

use crate::clock;
use crate::delivery::tap::{Snapshot, Tap};
use crate::mutex::lock;

/// Time for which a text is served again: bounds the cost of many requests.
const KEPT_US: i64 = 250_000;

const SUPPLIED_HELP: &str = "Values that a job supplied.";
const REFUSED: &str = "polymeter_page_refused_total";
const REFUSED_HELP: &str =
    "Values that are not on the page: there are too many series, or the name has another kind or unit.";
const OTHER_HELP: &str = "A metric outside of the catalogue.";

/// Texts, and when they were made, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Kept {
    text: Option<(i64, Bytes)>,
    open_metrics: Option<(i64, Bytes)>,
}

#[derive(Debug)]
pub(super) struct Pages {
    pub(super) tap: Arc<Tap>,
    pub(super) node: Identifier,
    pub(super) selectors: Vec<Selector>,
    /// True if readers may have the values of jobs, and know their owners.
    pub(super) has_jobs: bool,
    pub(super) kept: Mutex<Kept>,
    /// Values whose names mean something else on the page.
    pub(super) clashes: AtomicU64,
}

impl Pages {
    pub(super) fn text(&self, format: Format) -> Bytes {
        let now_us = clock::steady_us();
        let mut kept = lock(&self.kept);
        let kept = match format {
            Format::Text => &mut kept.text,
            Format::OpenMetrics => &mut kept.open_metrics,
        };
        if let Some((made_us, text)) = kept
            && now_us.saturating_sub(*made_us) < KEPT_US
        {
            return text.clone();
        }
        let snapshot = self.tap.newest().map(|newest| newest.snapshot(now_us)).unwrap_or_default();
        let text = Bytes::from(self.page(&snapshot).to_text(format));
        *kept = Some((now_us, text.clone()));
        text
    }

    fn page(&self, snapshot: &Snapshot) -> Page {
        let mut page = Page::default();
        // Both by ids of the session.
        let (mut metrics, mut jobs) = (BTreeMap::new(), BTreeMap::new());
        for newest in &snapshot.values {
            let job = newest.shape().job.as_ref();
            let Some(series) = newest.series().filter(|_| job.is_none() || self.has_jobs) else { continue };
            let (id, metric) = &series.metric;
            let help = *metrics.entry(*id).or_insert_with(|| self.help(metric));
            let Some(help) = help else { continue };
            if let Some(job) = job {
                jobs.insert(job.handle, job);
            }
            let job_id = job.map(|job| job.descriptor.job_id.as_str());
            let labels = LabelSet::new(self.node.as_str(), job_id, &[], &series.labels);
            if !page.add(metric, help, labels, (newest.time_us, newest.value)) {
                self.clashes.fetch_add(1, Relaxed);
            }
        }
        for (handle, job) in jobs {
            let facts = self.facts(job, snapshot.owners.get(&handle));
            page.add_named((JOB_INFO, Kind::Gauge), "Facts of a job.", facts, 1.0);
        }
        let refused = snapshot.refused.saturating_add(self.clashes.load(Relaxed));
        let labels = LabelSet::new(self.node.as_str(), None, &[], &Labels::default());
        let refused = Number::Unsigned.to_f64(refused);
        page.add_named((REFUSED, Kind::Counter), REFUSED_HELP, labels, refused);
        page
    }

    /// None for a metric that is not selected.
    fn help(&self, metric: &MetricDescriptor) -> Option<&'static str> {
        let name = metric.name.as_str();
        if !self.selectors.iter().any(|selector| selector.matches(name)) {
            return None;
        }
        let supplied = catalogue::REGIONS.iter().chain([&catalogue::PROCESS_RANK]);
        let supplied = supplied.into_iter().find(|declared| declared.name == name);
        let help = catalogue::find(name).map(|found| found.metric).or(supplied).map(|metric| metric.help);
        Some(help.unwrap_or(if metric.unit == Unit::Labelled { SUPPLIED_HELP } else { OTHER_HELP }))
    }

    fn facts(&self, job: &Job, known_later: Option<&JobOwner>) -> LabelSet {
        let descriptor = &job.descriptor;
        let own = Labels::default();
        let mut labels = LabelSet::new(self.node.as_str(), Some(descriptor.job_id.as_str()), &[], &own);
        let uid = descriptor.owner_uid.or(known_later.and_then(|owner| owner.uid));
        let user = descriptor.owner.as_ref().or(known_later.and_then(|owner| owner.name.as_ref()));
        labels.add("cluster", descriptor.cluster.as_ref().map_or("", Identifier::as_str));
        labels.add("user", user.map_or("", Identifier::as_str));
        labels.add("uid", &uid.map(|uid| uid.to_string()).unwrap_or_default());
        labels
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::batch::{Batch, Column, Instant, Shape};
    use polymeter_proto::ledger::Event;
    use polymeter_proto::name::MetricName;
    use polymeter_proto::period::{Period, Sampling};
    use polymeter_proto::series::{JobDescriptor, JobHandle, MetricId, SeriesId, ShapeId};

    use super::*;
    use crate::delivery::tap::NewestValues;

    fn id(text: &str) -> Identifier {
        Identifier::try_from(text).unwrap()
    }

    fn metric(name: &'static str, unit: Unit, kind: Kind) -> MetricDescriptor {
        MetricDescriptor { name: MetricName::new(name).unwrap(), unit, kind, number: Number::Unsigned }
    }

    fn column(number: u32, metric: MetricDescriptor, labels: &[(&str, &str)]) -> Column {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let labels = Labels::new(labels.collect()).unwrap();
        Column { series: SeriesId(number), metric: (MetricId(number), metric), labels }
    }

    fn shape(number: u32, job: Option<&str>, columns: Vec<Column>) -> Arc<Shape> {
        let job = job.map(|job_id| {
            let descriptor = JobDescriptor {
                job_id: id(job_id),
                cluster: Some(id("lab")),
                owner_uid: Some(1000),
                owner: None,
                started_us: 0,
            };
            Arc::new(Job { handle: JobHandle(number), descriptor })
        });
        Arc::new(Shape {
            id: ShapeId(number),
            source: id("s"),
            job,
            period: Period::SECOND,
            columns,
            window: None,
        })
    }

    fn publish(tap: &Tap, shape: &Arc<Shape>, rows: &[(i64, &[Option<u64>])]) {
        let mut batch = Batch::default();
        let index = batch.add_shape(shape);
        for (time_us, values) in rows {
            let instant = Instant { deadline: None, time_us: *time_us };
            batch.push(index, instant, values.iter().copied()).unwrap();
        }
        tap.publish(&batch);
    }

    fn pages(has_jobs: bool) -> Pages {
        Pages {
            tap: Arc::new(Tap::with_newest(Some(NewestValues::new(1_000_000)))),
            node: id("n1"),
            selectors: vec!["*".parse().unwrap()],
            has_jobs,
            kept: Mutex::default(),
            clashes: AtomicU64::new(0),
        }
    }

    fn node() -> Arc<Shape> {
        shape(0, None, vec![column(1, metric("node.load1", Unit::Count, Kind::Gauge), &[])])
    }

    fn job() -> Arc<Shape> {
        let usage = metric("cpu.usage", Unit::Nanoseconds, Kind::Counter);
        let anon = metric("memory.anon", Unit::Bytes, Kind::Gauge);
        shape(
            7,
            Some("42"),
            vec![column(2, usage.clone(), &[]), column(3, anon, &[]), column(4, usage, &[("step", "0")])],
        )
    }

    /// Samples on the page at a time, without those that count the page itself.
    fn samples(pages: &Pages, at_us: i64) -> Vec<String> {
        let text = pages.page(&pages.tap.newest().unwrap().snapshot(at_us)).to_text(Format::Text);
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with(REFUSED));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn has_the_newest_value_of_each_series() {
        let pages = pages(true);
        publish(&pages.tap, &node(), &[(1_000, &[Some(3)]), (2_000, &[Some(4)])]);
        publish(
            &pages.tap,
            &job(),
            &[(1_000, &[Some(1_000_000_000), Some(5), None]), (2_000, &[Some(2_000_000_000), None, None])],
        );
        let expected = [
            "polymeter_cpu_usage_seconds_total{jobid=\"42\",node=\"n1\"} 2",
            "polymeter_job_info{cluster=\"lab\",jobid=\"42\",node=\"n1\",uid=\"1000\"} 1",
            "polymeter_memory_anon_bytes{jobid=\"42\",node=\"n1\"} 5",
            "polymeter_node_load1{node=\"n1\"} 4",
        ];
        assert_eq!(samples(&pages, 3_000), expected);
    }

    #[test]
    fn readers_without_a_right_to_jobs_get_the_node() {
        let pages = pages(false);
        publish(&pages.tap, &node(), &[(1_000, &[Some(3)])]);
        publish(&pages.tap, &job(), &[(1_000, &[Some(1), Some(1), Some(1)])]);
        assert_eq!(samples(&pages, 3_000), ["polymeter_node_load1{node=\"n1\"} 3"]);
    }

    #[test]
    fn series_that_end_vanish() {
        let pages = pages(true);
        publish(&pages.tap, &node(), &[(1_000, &[Some(3)])]);
        publish(&pages.tap, &job(), &[(1_000, &[Some(1), Some(1), Some(1)])]);
        assert_eq!(samples(&pages, 3_000).len(), 5);
        let change = |name, job| polymeter_proto::ledger::PlanChange {
            at_us: 0,
            job,
            level: None,
            metric: MetricName::new(name).unwrap(),
            old: Some(Sampling::raw(Period::SECOND)),
            new: None,
            cause: polymeter_proto::ledger::Cause::Baseline,
            by: None,
            until_us: None,
        };
        pages.tap.note(&Event::PlanChange(change("cpu.usage", None)));
        assert_eq!(samples(&pages, 3_000).len(), 5, "another target");
        pages.tap.note(&Event::PlanChange(change("cpu.usage", Some(JobHandle(7)))));
        assert_eq!(samples(&pages, 3_000).len(), 4, "that of the step is left");
        pages.tap.note(&Event::JobEnded { job: JobHandle(7), at_us: 2_000 });
        assert_eq!(samples(&pages, 3_000).len(), 1);
        // Three periods, and what a batch may take.
        assert_eq!(samples(&pages, 1_000 + 10_000_000).len(), 1);
        assert_eq!(samples(&pages, 1_001 + 10_000_000).len(), 0);
    }

    #[test]
    fn a_name_with_two_meanings_is_counted() {
        let pages = pages(true);
        let columns = [Kind::Counter, Kind::Gauge].into_iter().zip(1..);
        let columns =
            columns.map(|(kind, id)| column(id, metric("user.a", Unit::Labelled, kind), &[])).collect();
        publish(&pages.tap, &shape(1, Some("1"), columns), &[(1, &[Some(1), Some(2)])]);
        let of =
            |at_us| pages.page(&pages.tap.newest().unwrap().snapshot(at_us)).to_text(Format::OpenMetrics);
        let text = of(2);
        assert!(text.contains("\npolymeter_user_a_total{") && !text.contains("polymeter_user_a{"), "{text}");
        assert!(text.contains("polymeter_page_refused_total{node=\"n1\"} 1\n"), "{text}");
    }
}
