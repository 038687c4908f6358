//! `polymeter watch` for all nodes of a job: its samples, as the collector commits them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use polymeter_client::connection::collector::Collector;
use polymeter_client::local::{JobFacts, WatchLine, WatchedNodes};
use polymeter_proto::control::{Answer, EndedLine, PlanAnswer, PlanRequest, Request, SamplesLine};
use polymeter_proto::name::Selector;
use polymeter_service::clock;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobRow, SampleRow, SeriesRow, SeriesScope};
use tokio::sync::mpsc;

use crate::client::read_source::Source;
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::report::choice::choose;
use crate::store_failure::store_failure;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls after which the job, its series and its plan are read again.
const REFRESH_POLLS: u64 = 5;

/// How far back the first samples lie.
const FIRST_NS: i64 = 10_000_000_000;

/// How far the samples of a series may be behind those of others, and still be shown.
const BEHIND_NS: i64 = 15_000_000_000;

/// Series at most. Selectors choose among more.
const SERIES_MAX: usize = 4096;

const LINES_MAX: usize = 1024;

/// Reads the samples of a job that the selectors choose, in a thread.
pub(crate) fn watch(
    collector: Collector,
    job: &str,
    selectors: Vec<Selector>,
) -> Result<WatchedNodes, Failure> {
    let collector = Arc::new(collector);
    let (sender, lines) = mpsc::channel(LINES_MAX);
    let (begun, begins) = std::sync::mpsc::sync_channel(1);
    let (id, of_thread) = (job.to_owned(), Arc::clone(&collector));
    std::thread::spawn(move || match JobReader::open(of_thread, &id, selectors) {
        Err(failure) => begun.send(Err(failure)).ok(),
        Ok(mut reader) => {
            begun.send(Ok(reader.job.clone())).ok();
            reader.run(&sender).err().and_then(|failure| sender.blocking_send(Err(failure)).ok())
        }
    });
    let job = begins.recv().map_err(|_closed| {
        Failure::Failed("cannot watch the job: the reading thread has ended".to_owned())
    })??;
    let facts = JobFacts { started_us: Some(job.started_ns / 1000), cores: job.cores };
    Ok(WatchedNodes { lines, collector, facts })
}

type Lines<'a> = &'a mpsc::Sender<Result<WatchLine, Failure>>;

struct JobReader {
    source: Source,
    collector: Arc<Collector>,
    job: JobRow,
    selectors: Vec<Selector>,
    series: BTreeMap<i64, SeriesRow>,
    /// Grouped by series.
    last_ns: HashMap<i64, i64>,
    since_ns: i64,
    plan: Option<PlanAnswer>,
}

impl JobReader {
    fn open(collector: Arc<Collector>, job: &str, selectors: Vec<Selector>) -> Result<Self, Failure> {
        let mut source = Source::of_collector(&collector)?;
        let job = choose(&mut source, Some(job))?.job;
        if job.ended_ns.is_some() {
            let id = printable_name(&job.job_id).into_owned();
            return Err(Failure::Failed(format!(
                "cannot watch job {id}: it has ended; `polymeter report {id}` reports it"
            )));
        }
        let since_ns = clock::realtime_us().saturating_mul(1000) - FIRST_NS;
        let (series, last_ns) = (BTreeMap::new(), HashMap::new());
        Ok(Self { source, collector, job, selectors, series, last_ns, since_ns, plan: None })
    }

    /// Reads until the job ends, or no one receives the lines any more.
    fn run(&mut self, lines: Lines<'_>) -> Result<(), Failure> {
        for poll in 0_u64.. {
            if poll.is_multiple_of(REFRESH_POLLS) {
                self.refresh()?;
                if let Some(plan) = self.changed_plan() {
                    send(lines, Answer::Plan(plan))?;
                }
            }
            for line in
                self.new_samples().map_err(|error| store_failure("cannot read the samples", &error))?
            {
                send(lines, Answer::Samples(line))?;
            }
            if self.job.ended_ns.is_some() {
                return send(lines, Answer::Ended(EndedLine {}));
            }
            if lines.is_closed() {
                return Ok(());
            }
            clock::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<(), Failure> {
        let failed = |error| store_failure("cannot read the job", &error);
        let filter = JobFilter { job_key: Some(self.job.job_key), limit: 1, ..JobFilter::default() };
        if let Some(job) = self.source.reader.jobs(&filter).map_err(failed)?.pop() {
            self.job = job;
        }
        let series = self.source.reader.series(SeriesScope::Job(self.job.job_key)).map_err(failed)?;
        self.series = series
            .into_iter()
            .filter(|row| {
                self.selectors.is_empty()
                    || self.selectors.iter().any(|selector| selector.matches(&row.metric))
            })
            .map(|row| (row.series_id, row))
            .collect();
        if self.series.len() > SERIES_MAX {
            return Err(Failure::Failed(format!(
                "cannot watch {} series at once; name metrics, such as cpu.usage memory.current",
                self.series.len()
            )));
        }
        Ok(())
    }

    /// Plan of the first node of each metric, if it has changed. Without answers of nodes it stays as it was.
    fn changed_plan(&mut self) -> Option<PlanAnswer> {
        let request = Request::Plan(PlanRequest { job: Some(self.job.job_id.clone()) });
        let nodes = self.collector.ask(&request).ok()?.nodes;
        let plans = nodes.into_iter().filter_map(|node| serde_json::from_value(node.answer?).ok());
        let plans: Vec<PlanAnswer> = plans
            .filter_map(|answer| if let Answer::Plan(plan) = answer { Some(plan) } else { None })
            .collect();
        let mut merged = plans.first()?.clone();
        for line in plans.iter().skip(1).flat_map(|plan| &plan.plan) {
            if !merged.plan.iter().any(|known| known.metric == line.metric && known.level == line.level) {
                merged.plan.push(line.clone());
            }
        }
        let is_new = self.plan.as_ref() != Some(&merged);
        self.plan = Some(merged.clone());
        is_new.then_some(merged)
    }

    /// Samples that were committed since the last poll.
    fn new_samples(&mut self) -> Result<Vec<SamplesLine>, StoreError> {
        let ids: Vec<i64> = self.series.keys().copied().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let now_ns = clock::realtime_us().saturating_mul(1000);
        let span_ns = self.span_ns(now_ns);
        let mut found: BTreeMap<i64, Vec<SampleRow>> = BTreeMap::new();
        let (last_ns, since_ns) = (&self.last_ns, self.since_ns);
        self.source.reader.samples(SeriesScope::Job(self.job.job_key), &ids, &span_ns, |row| {
            if row.time_ns > last_ns.get(&row.series_id).copied().unwrap_or(since_ns) {
                found.entry(row.series_id).or_default().push(row);
            }
            Ok::<_, StoreError>(())
        })?;
        let mut lines = Vec::new();
        for (id, rows) in found {
            if let Some(last) = rows.last() {
                self.last_ns.insert(id, last.time_ns);
            }
            lines.extend(self.series.get(&id).map(|series| samples_line(series, &rows)));
        }
        Ok(lines)
    }

    /// Span from the oldest of the last samples. A series that has stopped does not extend it.
    fn span_ns(&self, now_ns: i64) -> Range<i64> {
        let from_ns = self
            .series
            .keys()
            .map(|id| self.last_ns.get(id).copied().unwrap_or(self.since_ns))
            .min()
            .unwrap_or(self.since_ns);
        from_ns.max(now_ns - BEHIND_NS)..now_ns + BEHIND_NS
    }
}

/// Has no effect without a receiver.
fn send(lines: Lines<'_>, answer: Answer) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(&answer.to_line()).trim_end().to_owned();
    lines.blocking_send(Ok(WatchLine { text, answer })).ok();
    Ok(())
}

/// Has the node as a label.
fn samples_line(series: &SeriesRow, rows: &[SampleRow]) -> SamplesLine {
    let mut labels: BTreeMap<String, String> =
        series.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    labels.insert("node".to_owned(), series.node.clone());
    SamplesLine {
        metric: series.metric.clone(),
        labels,
        unit: (!series.unit.is_empty()).then(|| series.unit.clone()),
        kind: series.kind.clone(),
        period: None,
        times_us: rows.iter().map(|row| row.time_ns / 1000).collect(),
        values: rows.iter().map(|row| Some(row.value).filter(|value| value.is_finite())).collect(),
    }
}
