//! The cost of a ring that nobody asks for.

use std::error::Error;
use std::path::Path;
use std::process::Stdio;

use polymeter_benches::agent::Running;
use polymeter_benches::clock::now_ns;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::process::{self, KilledOnDrop};
use polymeter_benches::statistics::Estimate;
use polymeter_benches::table::{self, say, to_f64};

use super::arguments::Arguments;

const CONFIG: &str = include_str!("../../../../deploy/agent.toml");

/// Jobs of the default configuration begin with this line.
const JOBS: &str = "jobs = [";

/// Table of the default configuration whose metrics are commented out: those proposed for a ring.
const TABLE: &str = "[hindsight.metrics]\n";

/// The ring is full after 60 s.
const SETTLE_S: u64 = 65;

#[derive(Debug, Clone, Copy)]
struct Cost {
    cpu_percent: f64,
    resident_mib: f64,
}

pub(super) fn measure(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let mut jobs = Vec::new();
    for number in 0..arguments.jobs {
        let job = Job::make_for("ring", number)?;
        let mut command = job.command(Path::new("sleep"));
        // Dropped before its cgroups.
        jobs.push((KilledOnDrop(command.arg("infinity").stdin(Stdio::null()).spawn()?), job));
    }
    let pattern = jobs.first().map(|(_, job)| format!("\"{}\",", job.pattern())).unwrap_or_default();
    let without = CONFIG.replacen(JOBS, &format!("{JOBS}{pattern}"), 1);
    let with = switched_on(&without);
    if with == without {
        return Err("deploy/agent.toml has no [hindsight.metrics]".into());
    }
    let settle_s = if arguments.quick { 2 } else { SETTLE_S };
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        off.push(run(scratch, &without, settle_s, arguments)?);
        on.push(run(scratch, &with, settle_s, arguments)?);
    }
    say(&format!(
        "A ring of the metrics that agent.toml proposes, full: {} jobs that sleep, {} rounds of {} s, means with 95 % intervals",
        arguments.jobs, arguments.rounds, arguments.seconds
    ));
    say("");
    let rows = [
        row("CPU", "% of a core", &off, &on, arguments.jobs, |cost| cost.cpu_percent),
        row("resident", "MiB", &off, &on, arguments.jobs, |cost| cost.resident_mib),
    ];
    table::table(&["", "without", "with a ring", "more for each job"], &rows);
    Ok(())
}

fn switched_on(config: &str) -> String {
    let (before, table) = config.split_once(TABLE).unwrap_or((config, ""));
    let is_metric = |line: &&str| line.starts_with("# \"");
    let metrics = table.lines().take_while(is_metric).filter_map(|line| line.strip_prefix("# "));
    let metrics: Vec<&str> = metrics.collect();
    format!("{before}{TABLE}{}\n{table}", metrics.join("\n"))
}

fn row(what: &str, unit: &str, off: &[Cost], on: &[Cost], jobs: u32, of: fn(&Cost) -> f64) -> Vec<String> {
    let without: Vec<f64> = off.iter().map(of).collect();
    let with: Vec<f64> = on.iter().map(of).collect();
    let more: Vec<f64> =
        with.iter().zip(&without).map(|(with, without)| (with - without) / f64::from(jobs)).collect();
    let cell = |values: &[f64]| {
        let Estimate { mean, half } = Estimate::of(values);
        format!("{mean:.4} ± {half:.4} {unit}")
    };
    vec![what.to_owned(), cell(&without), cell(&with), cell(&more)]
}

fn run(scratch: &Path, config: &str, settle_s: u64, arguments: &Arguments) -> Result<Cost, Box<dyn Error>> {
    let running = Running::start(scratch, config)?;
    pause(i64::try_from(settle_s)? * 1_000_000_000);
    let (before_s, began_ns) = (process::cpu_s(running.pid())?, now_ns());
    pause(i64::try_from(arguments.seconds)? * 1_000_000_000);
    let used_s = process::cpu_s(running.pid())? - before_s;
    let passed_s = to_f64(now_ns() - began_ns) / 1e9;
    let found = running.connect()?.status()?.subjects.iter().filter(|subject| subject.job.is_some()).count();
    if found != usize::try_from(arguments.jobs)? {
        return Err(format!("the agent samples {found} of {} jobs", arguments.jobs).into());
    }
    Ok(Cost {
        cpu_percent: 100.0 * used_s / passed_s,
        resident_mib: to_f64(process::resident_kib(running.pid())?) / 1024.0,
    })
}
