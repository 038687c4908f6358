//! Measures changes of the sampling plan: their delay, the effect of many of them, and the accuracy of
//! predicted costs.

use std::error::Error;
use std::path::Path;

use polymeter_agent::cgroups::Mounts;
use polymeter_benches::agent::{Line, Running, tally_of_jobs};
use polymeter_benches::job::{Job, pause};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::control::{Answer, LeaseAnswer, Request, ResetRequest, SetRequest};
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The latency of a change of plan.
    Change,
    /// The effect of a high rate of changes on the sampler.
    Storm,
    /// The accuracy of the predicted cost.
    Cost,
}

/// Measures changes of the plan: delay, effect of many, predicted cost.
///
/// Needs root, for cgroups.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Parts of the experiment to run.
    #[arg(long, value_delimiter = ',', default_value = "change,storm,cost")]
    parts: Vec<Part>,
    /// Number of repetitions of each change of period.
    #[arg(long, default_value_t = 20)]
    changes: usize,
    /// Seconds of each run of the storm, and of each cost measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of rounds in which the runs alternate.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Run everything once, with short times, as a functional check.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.changes, arguments.seconds, arguments.rounds) = (2, 1, 1);
    }
    table::machine();
    let name = format!("polymeter_control_{}", std::process::id());
    let mut job = Job::make(&Mounts::read(Path::new("/"))?, &name)?;
    let scratch = tempfile::tempdir()?;
    job.work(&scratch.path().join("file"))?;
    for part in &arguments.parts {
        match part {
            Part::Change => latency(&arguments, &name, scratch.path())?,
            Part::Storm => storm(&arguments, &name, scratch.path())?,
            Part::Cost => prediction(&arguments, &name, scratch.path())?,
        }
    }
    Ok(())
}

fn agent(scratch: &Path, name: &str, flush: &str, baseline: &str) -> Result<Running, Box<dyn Error>> {
    let pattern = format!("{}{{job}}", name.strip_suffix(name_end(name)).unwrap_or(name));
    let config = format!(
        "flush_interval = \"{flush}\"\njobs = [\"{pattern}\"]\n[limits]\nnode_cpu_percent = 100\n[baseline]\n{baseline}"
    );
    let running = Running::start(scratch, &config)?;
    pause(500_000_000);
    Ok(running)
}

/// End of the cgroup's name, which is the job's id.
fn name_end(name: &str) -> &str {
    name.rsplit_once('_').map_or("", |(_, end)| end)
}

fn job(name: &str) -> Option<String> {
    Some(name_end(name).to_owned())
}

fn set(line: &mut Line, name: &str, selectors: &[&str], period: &str) -> Result<Answer, Box<dyn Error>> {
    let plan = selectors.iter().map(|selector| ((*selector).to_owned(), period.to_owned())).collect();
    let answer = line.ask(&Request::Set(SetRequest {
        job: job(name),
        level: None,
        ring: false,
        plan,
        duration: None,
    }))?;
    if matches!(answer, Answer::Granted(_)) {
        Ok(answer)
    } else {
        Err(format!("not granted: {answer:?}").into())
    }
}

fn reset(line: &mut Line, name: &str) -> Result<(), Box<dyn Error>> {
    line.ask(&Request::Reset(ResetRequest { job: job(name), level: None }))?;
    Ok(())
}

/// Measures the time from the return of `set` to the first sample at the new period.
fn latency(arguments: &Arguments, name: &str, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for old in ["1h", "1s", "10ms", "1ms"] {
        for new in ["100ms", "10ms", "1ms", "100us"].into_iter().filter(|new| *new != old) {
            let running = agent(scratch, name, "20ms", "\"cpu.usage\" = \"1h\"\n")?;
            let mut line = running.connect()?;
            let period: Period = new.parse()?;
            let mut beyond_ms = Vec::new();
            for change in 0..i64::try_from(arguments.changes)? {
                if old != "1h" {
                    set(&mut line, name, &["cpu.usage"], old)?;
                }
                // Starts at a different phase of the period's grid each time.
                pause(150_000_000 + change * 37_000_000 % 100_000_000);
                let asked_us = polymeter_agent::clock::realtime_us();
                set(&mut line, name, &["cpu.usage"], new)?;
                let returned_us = polymeter_agent::clock::realtime_us();
                let first_us = first_since(&running, period, asked_us)?;
                beyond_ms.push((to_us(first_us - returned_us) - to_f64(period.as_micros())) / 1e3);
                reset(&mut line, name)?;
            }
            beyond_ms.sort_by(f64::total_cmp);
            let at = |part: f64| beyond_ms.get(index(part, beyond_ms.len())).copied().unwrap_or(f64::NAN);
            rows.push(vec![
                old.to_owned(),
                new.to_owned(),
                format!("{:.2}", at(0.5)),
                format!("{:.2}", at(1.0)),
            ]);
        }
    }
    say(
        "From the return of `set` to the first sample at the new period, beyond one new period, in milliseconds",
    );
    say(&format!("(negative: sooner than one period), {} changes each", arguments.changes));
    say("");
    table::table(&["old period", "new period", "median", "most"], &rows);
    say("");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "differences of times are small")]
const fn to_us(difference_us: i64) -> f64 {
    difference_us as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a position in a short list"
)]
fn index(part: f64, length: usize) -> usize {
    ((length.saturating_sub(1)) as f64 * part).round() as usize
}

/// Time of the first sample at `period` after `since_us`: it lies on the period's grid, and the next sample
/// follows one period later.
fn first_since(running: &Running, period: Period, since_us: i64) -> Result<i64, Box<dyn Error>> {
    let period_us = i64::try_from(period.as_micros())?;
    let mut times: Vec<i64> = Vec::new();
    for _ in 0..400 {
        pause(10_000_000);
        let blocks = running.frames().flat_map(|frame| frame.blocks);
        times.extend(blocks.flat_map(|block| block.times_us).filter(|time_us| *time_us > since_us));
        for pair in times.windows(2) {
            let [first, next] = pair else { continue };
            let on_grid = first.rem_euclid(period_us) < (period_us / 4).max(500);
            if on_grid && (period_us / 2..period_us * 3 / 2).contains(&(next - first)) {
                return Ok(*first);
            }
        }
    }
    Err(format!("no samples every {period} within 4 s").into())
}

/// Measures the samples missed during a thousand pairs of `set` and `reset` per second, while the job is
/// sampled every millisecond.
fn storm(arguments: &Arguments, name: &str, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let baseline = "\"cpu.*\" = \"1ms\"\n\"memory.current\" = \"1ms\"\n\"pids.current\" = \"1s\"\n";
    let running = agent(scratch, name, "1s", baseline)?;
    let mut line = running.connect()?;
    let mut rows = Vec::new();
    let (mut quiet, mut stormy, mut pairs) = (Tally::default(), Tally::default(), 0);
    for _ in 0..arguments.rounds {
        let before = tally_of_jobs(&line.status()?);
        pause(i64::try_from(arguments.seconds)? * 1_000_000_000);
        let between = tally_of_jobs(&line.status()?);
        pairs += pairs_for(&mut line, name, arguments.seconds)?;
        let after = tally_of_jobs(&line.status()?);
        quiet.add(&between.since(&before));
        stormy.add(&after.since(&between));
    }
    let seconds = to_f64(arguments.seconds * u64::from(arguments.rounds));
    rows.push(row("nothing asked", &quiet, 0.0));
    rows.push(row("set and reset", &stormy, to_f64(pairs) / seconds));
    say("Samples at 1 ms while another client changes the plan of the same job, in turns");
    say("");
    table::table(&["run", "pairs per second", "due", "missed", "late"], &rows);
    say("");
    Ok(())
}

fn row(what: &str, tally: &Tally, pairs: f64) -> Vec<String> {
    vec![
        what.to_owned(),
        format!("{pairs:.0}"),
        tally.due.to_string(),
        format!("{:.3} %", 100.0 * to_f64(tally.missed) / to_f64(tally.due.max(1))),
        format!("{:.3} %", 100.0 * to_f64(tally.late) / to_f64(tally.due.max(1))),
    ]
}

fn pairs_for(line: &mut Line, name: &str, seconds: u64) -> Result<u64, Box<dyn Error>> {
    let end_us = polymeter_agent::clock::realtime_us() + i64::try_from(seconds)? * 1_000_000;
    let begin_us = polymeter_agent::clock::realtime_us();
    let mut pairs = 0;
    while polymeter_agent::clock::realtime_us() < end_us {
        // Limits the rate to a thousand pairs per second.
        let due_us = begin_us + i64::try_from(pairs)? * 1_000;
        let early_us = due_us - polymeter_agent::clock::realtime_us();
        if early_us > 0 {
            pause(early_us * 1_000);
        }
        set(line, name, &["pids.current"], "100ms")?;
        reset(line, name)?;
        pairs += 1;
    }
    Ok(pairs)
}

/// Compares the cost that `set` predicts with the measured cost.
fn prediction(arguments: &Arguments, name: &str, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let perf = [
        "perf.cpu_clock",
        "perf.task_clock",
        "perf.page_faults*",
        "perf.context_switches",
        "perf.cpu_migrations",
    ];
    let cases: [(&str, &[&str]); 3] =
        [("cpu.*, memory.*", &["cpu.*", "memory.*"]), ("7 of perf.*", &perf), ("cpu.usage", &["cpu.usage"])];
    let mut rows = Vec::new();
    for (what, selectors) in cases {
        for period in ["10ms", "1ms"] {
            let (mut predicted, mut measured, mut samples) = (0.0, 0.0, 0.0);
            for _ in 0..arguments.rounds {
                // A new agent each time, which has calibrated nothing yet.
                let running =
                    agent(scratch, name, "1s", "\"cpu.usage\" = \"1s\"\n\"memory.current\" = \"1s\"\n")?;
                let mut line = running.connect()?;
                pause(1_500_000_000);
                let Answer::Granted(LeaseAnswer { cost, .. }) = set(&mut line, name, selectors, period)?
                else {
                    continue;
                };
                pause(500_000_000);
                let (before, begin) = (running.cpu_s()?, polymeter_agent::clock::realtime_us());
                pause(i64::try_from(arguments.seconds)? * 1_000_000_000);
                let (after, end) = (running.cpu_s()?, polymeter_agent::clock::realtime_us());
                predicted += cost.cpu_percent;
                samples += cost.samples_per_s;
                measured += 100.0 * (after - before) / (to_us(end - begin) / 1e6);
            }
            let rounds = f64::from(arguments.rounds);
            rows.push(vec![
                what.to_owned(),
                period.to_owned(),
                format!("{:.0}", samples / rounds),
                format!("{:.3} %", predicted / rounds),
                format!("{:.3} %", measured / rounds),
                format!("{:.2}", predicted / measured),
            ]);
        }
    }
    say("The cost that `set` predicted, and the CPU time of the whole agent then, in percent of one CPU");
    say("");
    table::table(
        &["metrics", "period", "samples per s", "predicted", "measured", "predicted / measured"],
        &rows,
    );
    Ok(())
}
