//! Windows against the same reads sent one by one, from the agent to the store.

use std::error::Error;
use std::path::Path;

use polymeter_benches::agent::{Agent, tally_of_jobs};
use polymeter_benches::collector::Collector;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::plan;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::Sums;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Sampling;

use super::arguments::Arguments;

/// Seconds until the agent has announced the job's series, in a frame that was sent.
const ANNOUNCED_S: i64 = 3;

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    samples: f64,
    cpu_s: f64,
    sent_bytes: f64,
    stored_bytes: f64,
    /// Samples and their bytes after the announcements.
    steady_samples: f64,
    steady_bytes: f64,
}

pub(super) fn measure(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let mut job = Job::make_for("windows", 0)?;
    job.work(&scratch.join("file"))?;
    let (raw, window): (Sampling, Sampling) = ("1ms".parse()?, "1ms/1s".parse()?);
    let (mut of_raw, mut of_window) = (Cost::default(), Cost::default());
    for _ in 0..arguments.rounds {
        of_raw.add(run(raw, kind, &job, arguments.seconds)?);
        of_window.add(run(window, kind, &job, arguments.seconds)?);
    }
    say(&format!("{kind}: windows of a second, {} rounds of {} s", arguments.rounds, arguments.seconds));
    say("");
    let ratio = |of: fn(&Cost) -> f64| of(&of_window) / of(&of_raw);
    let ratios = vec![
        "ratio".to_owned(),
        String::new(),
        format!("{:.3}", ratio(|cost| cost.cpu_s / cost.samples)),
        format!("{:.2} %", 100.0 * ratio(|cost| cost.sent_bytes / cost.samples)),
        format!("{:.2} %", 100.0 * ratio(Cost::steady_bytes_each)),
        String::new(),
        format!("{:.2} %", 100.0 * ratio(|cost| cost.stored_bytes / cost.samples)),
    ];
    let rows = [of_raw.cells("1ms"), of_window.cells("1ms/1s"), ratios];
    let heads = [
        "",
        "samples",
        "agent's CPU each",
        "bytes sent each",
        "without announcements",
        "bytes of announcements",
        "bytes stored each",
    ];
    table::table(&heads, &rows);
    Ok(())
}

impl Cost {
    fn steady_bytes_each(&self) -> f64 {
        self.steady_bytes / self.steady_samples
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let announcements = self.sent_bytes - self.samples * self.steady_bytes_each();
        vec![
            name.to_owned(),
            format!("{:.0}", self.samples),
            format!("{:.3} µs", self.cpu_s / self.samples * 1e6),
            format!("{:.4}", self.sent_bytes / self.samples),
            format!("{:.5}", self.steady_bytes_each()),
            format!("{announcements:.0}"),
            format!("{:.4}", self.stored_bytes / self.samples),
        ]
    }

    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.cpu_s += other.cpu_s;
        self.sent_bytes += other.sent_bytes;
        self.stored_bytes += other.stored_bytes;
        self.steady_samples += other.steady_samples;
        self.steady_bytes += other.steady_bytes;
    }
}

fn run(sampling: Sampling, kind: Kind, job: &Job, seconds: u64) -> Result<Cost, Box<dyn Error>> {
    let (scratch, store) = (tempfile::tempdir()?, Store::start(kind)?);
    let listen = format!("ipc://{}", scratch.path().join("collector").display());
    let collector = Collector::start(scratch.path(), &listen, &store, "")?;
    let empty_bytes = to_f64(store.bytes()?);
    let baseline = plan::baseline(plan::job_metrics(false), sampling);
    let config = format!("jobs = [\"{}\"]\n{baseline}", job.pattern());
    let agent = Agent::start(scratch.path(), collector.endpoint(), &config)?;
    pause(ANNOUNCED_S * 1_000_000_000);
    let announced = agent.connect()?.status()?;
    pause((i64::try_from(seconds)? - ANNOUNCED_S) * 1_000_000_000);
    let status = agent.connect()?.status()?;
    let taken = tally_of_jobs(&status).taken;
    if !agent.stop() {
        return Err("the agent failed".into());
    }
    collector.stop()?;
    Sums::read(&store)?.check()?;
    Ok(Cost {
        samples: to_f64(taken),
        cpu_s: to_f64(status.counts.cpu_ns) / 1e9,
        sent_bytes: to_f64(status.counts.bytes_sent),
        stored_bytes: to_f64(store.bytes()?) - empty_bytes,
        steady_samples: to_f64(taken - tally_of_jobs(&announced).taken),
        steady_bytes: to_f64(status.counts.bytes_sent - announced.counts.bytes_sent),
    })
}
