//! Execution of `watch`: samples, line by line, as they are collected.
//!
//! Its CPU time is charged like that of any request. A client that watches more than its quota allows loses
//! samples, and gets their number.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use polymeter_proto::control::{
    Answer, EndedLine, LaggedLine, PlanAnswer, ProgressLine, Refusal, SamplesLine, WatchRequest,
};
use polymeter_proto::ledger::Tally;
use polymeter_proto::series::{Identifier, Unit};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, MissedTickBehavior};

use super::client_quota::{ClientQuota, QuotaPermit};
use super::lines::write_lines;
use super::request_handler::{Denied, RequestHandler};
use super::verbs::Execute;
use super::verbs::plan::plan_of;
use crate::clock;
use crate::delivery::tap::{Excerpt, WatchReceiver};
use crate::request::{SourceView, SupervisorRequest};

/// Interval of the progress lines, and of the check for a change of the plan.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Streams samples until the job ends or the client disconnects, and returns the last answer.
pub(super) async fn stream(
    handler: &RequestHandler<'_>,
    permit: &QuotaPermit<'_>,
    watchers: &ClientQuota,
    request: WatchRequest,
    write: &mut (impl AsyncWriteExt + Unpin),
) -> io::Result<Answer> {
    // The permit is held for as long as the stream lasts.
    let (mut stream, _watcher) = match begin(handler, watchers, request).await {
        Ok(begun) => begun,
        Err(refusal) => return Ok(Answer::Refused(refusal)),
    };
    // The plan comes before the first sample.
    let mut lines = Vec::new();
    let mut is_tracked = match stream.add_progress(&mut lines).await {
        Ok(is_tracked) => is_tracked,
        Err(refusal) => return Ok(Answer::Refused(refusal)),
    };
    write_lines(write, &lines).await?;
    let mut ticks = tokio::time::interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let due = tokio::select! {
            samples = stream.samples.next() => Due::Samples(samples),
            _ = ticks.tick(), if is_tracked => Due::Progress,
        };
        permit.throttle().await;
        let mut lines = Vec::new();
        stream.add_lagged(&mut lines);
        match due {
            Due::Samples(None) => {
                write_lines(write, &lines).await?;
                return Ok(Answer::Ended(EndedLine {}));
            }
            Due::Samples(Some(excerpts)) => {
                let began_ns = clock::thread_cpu_ns();
                let samples = excerpts.iter().filter_map(samples_line);
                samples.for_each(|samples| lines.extend(Answer::Samples(samples).to_line()));
                permit.charge(clock::thread_cpu_ns().saturating_sub(began_ns));
            }
            // Samples of a job that is not tracked any more may still be queued.
            Due::Progress => match stream.add_progress(&mut lines).await {
                Ok(still_tracked) => is_tracked = still_tracked,
                Err(refusal) => return Ok(Answer::Refused(refusal)),
            },
        }
        write_lines(write, &lines).await?;
    }
}

enum Due {
    Samples(Option<Vec<Excerpt>>),
    Progress,
}

/// Begins a stream if the client's quota allows one more.
async fn begin<'a>(
    handler: &'a RequestHandler<'a>,
    watchers: &'a ClientQuota,
    request: WatchRequest,
) -> Result<(WatchStream<'a>, QuotaPermit<'a>), Refusal> {
    let (job, selectors) = request.parse(handler.principal)?;
    // Before the permit: the answer for an unknown job must not depend on permits.
    handler.view_one(job.as_ref()).await?;
    let permit = watchers.acquire(handler.principal).ok_or_else(|| {
        Refusal::new("busy", None, "too many watch streams; close one, or request more metrics in one stream")
    })?;
    let samples = handler
        .ask_about(job.as_ref(), |reply| {
            SupervisorRequest::Watch(handler.principal, job.clone(), selectors, reply)
        })
        .await?;
    Ok((WatchStream { handler, job, samples, progress: Progress::begin(), plan: None }, permit))
}

struct WatchStream<'a> {
    handler: &'a RequestHandler<'a>,
    job: Option<Identifier>,
    samples: WatchReceiver,
    progress: Progress,
    plan: Option<PlanAnswer>,
}

impl WatchStream<'_> {
    fn add_lagged(&self, lines: &mut Vec<u8>) {
        let samples = self.samples.take_lagged();
        if samples > 0 {
            lines.extend(Answer::Lagged(LaggedLine { samples }).to_line());
        }
    }

    /// Adds the plan, if it has changed, and the progress. False if the job is not tracked any more.
    async fn add_progress(&mut self, lines: &mut Vec<u8>) -> Result<bool, Refusal> {
        let view = match self.handler.view_one(self.job.as_ref()).await {
            Ok(view) => view,
            Err(Denied::Unknown(_)) => return Ok(false),
            // A reload of the configuration may hide a job that was visible before.
            Err(Denied::Refused(refusal)) => return Err(refusal),
        };
        let plan = plan_of(&view);
        if self.plan.as_ref() != Some(&plan) {
            lines.extend(Answer::Plan(plan.clone()).to_line());
            self.plan = Some(plan);
        }
        if let Some(progress) = self.progress.update(&view.sources) {
            lines.extend(Answer::Progress(progress).to_line());
        }
        Ok(true)
    }
}

fn samples_line(excerpt: &Excerpt) -> Option<SamplesLine> {
    let column = excerpt.series()?;
    let descriptor = &column.metric.1;
    let is_user_supplied = descriptor.unit == Unit::Labelled;
    let unit = if is_user_supplied { column.labels.get("unit") } else { Some(descriptor.unit.as_str()) };
    Some(SamplesLine {
        metric: descriptor.name.as_str().to_owned(),
        labels: column.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        unit: unit.map(str::to_owned),
        kind: descriptor.kind.as_str().to_owned(),
        period: (!is_user_supplied).then(|| excerpt.shape().period.to_string()),
        times_us: excerpt.times_us.clone(),
        values: excerpt.values.iter().map(|value| Some(*value).filter(|value| value.is_finite())).collect(),
    })
}

/// Rounds to three decimals; further ones are noise.
fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[derive(Debug)]
struct Progress {
    began_ns: u64,
    /// Time of the last update, and the CPU time of the agent then.
    updated: (u64, u64),
    /// Tallies at the last update; none before the first.
    tallies: Option<BTreeMap<String, Tally>>,
    since: Tally,
}

impl Progress {
    fn begin() -> Self {
        let now_ns = clock::monotonic_ns();
        let updated = (now_ns, clock::process_cpu_ns());
        Self { began_ns: now_ns, updated, tallies: None, since: Tally::default() }
    }

    /// None for the first update, which has no predecessor.
    fn update(&mut self, sources: &[SourceView]) -> Option<ProgressLine> {
        let is_first = self.tallies.is_none();
        let now = (clock::monotonic_ns(), clock::process_cpu_ns());
        let before = std::mem::replace(&mut self.updated, now);
        let seconds =
            |from_ns: u64, to_ns: u64| Duration::from_nanos(to_ns.saturating_sub(from_ns)).as_secs_f64();
        let wall_s = seconds(before.0, now.0);
        let cpu_percent = if wall_s > 0.0 { 100.0 * seconds(before.1, now.1) / wall_s } else { 0.0 };
        self.add(sources);
        (!is_first).then(|| ProgressLine {
            seconds: thousandths(seconds(self.began_ns, now.0)),
            tally: self.since,
            cpu_percent: thousandths(cpu_percent),
        })
    }

    /// Adds the counts since the last update; those before the first do not count.
    fn add(&mut self, sources: &[SourceView]) {
        let now: BTreeMap<String, Tally> =
            sources.iter().map(|source| (source.name.clone(), source.tally)).collect();
        if let Some(before) = &self.tallies {
            for (name, tally) in &now {
                // A tally that has decreased belongs to another source of the same name.
                let before = before.get(name).filter(|before| before.due <= tally.due);
                self.since.add(&before.map_or(*tally, |before| tally.since(before)));
            }
        }
        self.tallies = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, due: u64, missed: u64) -> SourceView {
        let tally = Tally { due, missed, taken: due - missed, ..Tally::default() };
        SourceView { name: name.to_owned(), tally, reads: 0, read_total_ns: 0, read_max_ns: 0 }
    }

    #[test]
    fn counts_since_the_stream_began() {
        let mut progress = Progress::begin();
        progress.add(&[source("a", 100, 50), source("b", 10, 0)]);
        assert_eq!(progress.since, Tally::default());
        progress.add(&[source("a", 130, 51), source("new", 5, 0)]);
        assert_eq!((progress.since.due, progress.since.missed), (35, 1));
        progress.add(&[source("a", 2, 0), source("new", 5, 0)]);
        assert_eq!((progress.since.due, progress.since.missed), (37, 1), "another source of that name");
    }
}
