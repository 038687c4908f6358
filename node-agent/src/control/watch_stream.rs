//! `watch`: what is sampled, shown line by line as it goes into frames.
//!
//! What is written is charged like any request: who watches more than her allowance is worth sees less of it, and is
//! told how much passed by.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::{Identifier, Unit};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, MissedTickBehavior};

use super::answer::Answer;
use super::client_quota::{ClientQuota, QuotaPermit};
use super::request_handler::{Denied, RequestHandler};
use super::verb::Watch;
use super::write_lines;
use crate::clock;
use crate::delivery::tap::{Excerpt, WatchReceiver};
use crate::request::SourceView;

/// How often is told how sampling goes, and the plan where it has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows what is wanted until the job or the principal goes, and returns the last answer.
pub(super) async fn stream(
    handler: &RequestHandler<'_>,
    permit: &QuotaPermit<'_>,
    watchers: &ClientQuota,
    wanted: Watch,
    write: &mut (impl AsyncWriteExt + Unpin),
) -> io::Result<Answer> {
    // Until the watcher's permit is given up, which is when she goes.
    let (job, watching, _watcher) = match handler.watch(wanted, watchers).await {
        Ok(begun) => begun,
        Err(refusal) => return Ok(Answer::refused(refusal)),
    };
    let mut stream = WatchStream { handler, job, watching, progress: Progress::begin(), plan: None };
    // The plan before the first sample.
    let mut lines = Vec::new();
    let mut is_there = match stream.look(&mut lines).await {
        Ok(there) => there,
        Err(refused) => return Ok(refused),
    };
    write_lines(write, &lines).await?;
    let mut looks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let seen = tokio::select! {
            shown = stream.watching.next() => Seen::Samples(shown),
            _ = looks.tick(), if is_there => Seen::Time,
        };
        permit.throttle().await;
        let mut lines = Vec::new();
        stream.passed_by(&mut lines);
        match seen {
            Seen::Samples(None) => {
                write_lines(write, &lines).await?;
                return Ok(Answer::Ended {});
            }
            Seen::Samples(Some(excerpts)) => {
                let began_ns = clock::thread_cpu_ns();
                excerpts.iter().filter_map(samples).for_each(|samples| lines.extend(samples.line()));
                permit.charge(clock::thread_cpu_ns().saturating_sub(began_ns));
            }
            // A job that is not there any more has samples on their way yet.
            Seen::Time => match stream.look(&mut lines).await {
                Ok(there) => is_there = there,
                Err(refused) => return Ok(refused),
            },
        }
        write_lines(write, &lines).await?;
    }
}

/// What there is to be shown.
enum Seen {
    Samples(Option<Vec<Excerpt>>),
    Time,
}

/// What one watcher is shown.
struct WatchStream<'a> {
    handler: &'a RequestHandler<'a>,
    job: Option<Identifier>,
    watching: WatchReceiver,
    progress: Progress,
    /// The plan as it was last told.
    plan: Option<Answer>,
}

impl WatchStream<'_> {
    /// A word on what passed by, where something did.
    fn passed_by(&self, lines: &mut Vec<u8>) {
        let samples = self.watching.passed_by();
        if samples > 0 {
            lines.extend(Answer::Lagged { samples }.line());
        }
    }

    /// How it goes, and the plan where it is another than was told. False when the job is there no more.
    async fn look(&mut self, lines: &mut Vec<u8>) -> Result<bool, Answer> {
        let view = match self.handler.look(&self.job).await {
            Ok(view) => view,
            Err(Denied::Unknown(_)) => return Ok(false),
            // Another configuration may hide what was shown before.
            Err(Denied::Refused(refusal)) => return Err(Answer::refused(refusal)),
        };
        let plan = Answer::plan(&view);
        if self.plan.as_ref() != Some(&plan) {
            lines.extend(plan.line());
            self.plan = Some(plan);
        }
        lines.extend(self.progress.go_on(&view.sources).map(|progress| progress.line()).unwrap_or_default());
        Ok(true)
    }
}

/// What came of one series.
fn samples(excerpt: &Excerpt) -> Option<Answer> {
    let column = excerpt.series()?;
    let descriptor = &column.metric.1;
    let given = descriptor.unit == Unit::Labelled;
    let unit = if given { column.labels.get("unit") } else { Some(descriptor.unit.as_str()) };
    let number = |value: &f64| Some(*value).filter(|value| value.is_finite());
    Some(Answer::Samples {
        metric: descriptor.name.as_str().to_owned(),
        labels: column.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        unit: unit.map(str::to_owned),
        kind: descriptor.kind.as_str().to_owned(),
        period: (!given).then(|| excerpt.shape().period.to_string()),
        times_us: excerpt.times_us.clone(),
        values: excerpt.values.iter().map(number).collect(),
    })
}

/// With three digits behind the point: more would only be noise.
fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// How sampling has gone since the watching began.
#[derive(Debug)]
struct Progress {
    began_ns: u64,
    /// When was looked last, and the CPU time of the agent then.
    looked: (u64, u64),
    /// The tallies of all sources as they were then; none before the first look.
    before: Option<BTreeMap<String, Tally>>,
    since: Tally,
}

impl Progress {
    fn begin() -> Self {
        let now_ns = clock::monotonic_ns();
        let looked = (now_ns, clock::process_cpu_ns());
        Self { began_ns: now_ns, looked, before: None, since: Tally::default() }
    }

    /// What is told now; nothing at the first look, which has nothing to compare with.
    fn go_on(&mut self, sources: &[SourceView]) -> Option<Answer> {
        let is_first = self.before.is_none();
        let now = (clock::monotonic_ns(), clock::process_cpu_ns());
        let before = std::mem::replace(&mut self.looked, now);
        let seconds =
            |from_ns: u64, to_ns: u64| Duration::from_nanos(to_ns.saturating_sub(from_ns)).as_secs_f64();
        let wall_s = seconds(before.0, now.0);
        let cpu_percent = if wall_s > 0.0 { 100.0 * seconds(before.1, now.1) / wall_s } else { 0.0 };
        self.add(sources);
        (!is_first).then(|| Answer::Progress {
            seconds: thousandths(seconds(self.began_ns, now.0)),
            tally: self.since,
            cpu_percent: thousandths(cpu_percent),
        })
    }

    /// Adds what has come since the last look. What was before the first does not count.
    fn add(&mut self, sources: &[SourceView]) {
        let now: BTreeMap<String, Tally> =
            sources.iter().map(|source| (source.name.clone(), source.tally)).collect();
        if let Some(before) = &self.before {
            for (name, tally) in &now {
                // A tally that fell is that of another source of the same name.
                let before = before.get(name).filter(|before| before.due <= tally.due);
                self.since.add(&before.map_or(*tally, |before| tally.since(before)));
            }
        }
        self.before = Some(now);
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
    fn what_was_before_the_watching_does_not_count() {
        let mut progress = Progress::begin();
        progress.add(&[source("a", 100, 50), source("b", 10, 0)]);
        assert_eq!(progress.since, Tally::default());
        progress.add(&[source("a", 130, 51), source("new", 5, 0)]);
        assert_eq!((progress.since.due, progress.since.missed), (35, 1));
        progress.add(&[source("a", 2, 0), source("new", 5, 0)]);
        assert_eq!((progress.since.due, progress.since.missed), (37, 1), "a source of that name came anew");
    }
}
