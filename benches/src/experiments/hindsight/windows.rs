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

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    samples: f64,
    cpu_s: f64,
    sent_bytes: f64,
    stored_bytes: f64,
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
    let cells = |name: &str, cost: Cost| {
        let each = |of: f64| of / cost.samples;
        vec![
            name.to_owned(),
            format!("{:.0}", cost.samples),
            format!("{:.3} µs", each(cost.cpu_s) * 1e6),
            format!("{:.4}", each(cost.sent_bytes)),
            format!("{:.4}", each(cost.stored_bytes)),
        ]
    };
    let ratio = |of: fn(&Cost) -> f64| of(&of_window) / of_window.samples / (of(&of_raw) / of_raw.samples);
    let ratios = vec![
        "ratio".to_owned(),
        String::new(),
        format!("{:.3}", ratio(|cost| cost.cpu_s)),
        format!("{:.2} %", 100.0 * ratio(|cost| cost.sent_bytes)),
        format!("{:.2} %", 100.0 * ratio(|cost| cost.stored_bytes)),
    ];
    let rows = [cells("1ms", of_raw), cells("1ms/1s", of_window), ratios];
    table::table(&["", "samples", "agent's CPU each", "bytes sent each", "bytes stored each"], &rows);
    Ok(())
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.cpu_s += other.cpu_s;
        self.sent_bytes += other.sent_bytes;
        self.stored_bytes += other.stored_bytes;
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
    pause(i64::try_from(seconds)? * 1_000_000_000);
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
    })
}
