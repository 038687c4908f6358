//! Measures the cost of call stacks: CPU time, memory, bytes on the wire and in the store.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_benches::agent::Agent;
use polymeter_benches::clock::wall_us;
use polymeter_benches::collector::Collector;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::process::{self, KilledOnDrop};
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// Each thread goes round a number of call stacks, as deep as the second argument says. A stack is the number
/// of its round, written with the ten functions as digits. With a fourth argument a thread sleeps that many
/// microseconds after each of them.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static long stacks;
static int depth, pause_us;
static volatile long sink;
typedef void function(long, int);
static function f0, f1, f2, f3, f4, f5, f6, f7, f8, f9;
static function *const functions[] = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9};
__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 20000; i++) sink += i;
    if (pause_us > 0) usleep(pause_us);
}
#define DIGIT(name) \
    __attribute__((noinline)) static void name(long number, int left) { \
        if (left > 0) functions[number % 10](number / 10, left - 1); else work(); \
        sink++; \
    }
DIGIT(f0) DIGIT(f1) DIGIT(f2) DIGIT(f3) DIGIT(f4) DIGIT(f5) DIGIT(f6) DIGIT(f7) DIGIT(f8) DIGIT(f9)
static void *run(void *argument) {
    (void)argument;
    for (long number = 0;; number = (number + 7919) % stacks) f0(number, depth);
}
int main(int argc, char **argv) {
    (void)argc;
    stacks = atol(argv[1]);
    depth = atoi(argv[2]);
    pthread_t threads[64];
    int count = atoi(argv[3]);
    pause_us = atoi(argv[4]);
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, run, NULL);
    pthread_join(threads[0], NULL);
    return 0;
}
"#;

/// Time for which a thread sleeps after each of its call stacks, where time of waiting is sampled.
const PAUSE_US: u32 = 2000;

/// Time for the discovery of the job.
const SETTLE_NS: i64 = 3_000_000_000;

/// Measures the cost of call stacks: of a program with some call stacks and of one with thousands.
///
/// Needs root, for cgroups, and a C compiler. `CPU per sample` is the CPU time of the agent beyond that of an
/// agent that samples nothing, beside the same program, divided by the samples that were stored. A collector
/// with SQLite stores them; `in the store` is the growth of its file.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds of each run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Sampling period.
    #[arg(long, default_value = "10ms")]
    period: Period,
    /// Numbers of call stacks of the program.
    #[arg(long, value_delimiter = ',', default_value = "10,10000")]
    stacks: Vec<u64>,
    /// Calls below `main` in each stack.
    #[arg(long, default_value_t = 12)]
    depth: u32,
    /// Threads of the program.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Run each case for some seconds, as a functional check.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug)]
struct Load {
    program: PathBuf,
    stacks: u64,
    pause_us: u32,
}

#[derive(Debug, Default)]
struct Run {
    samples: u64,
    /// Including those before the measurement.
    stored: u64,
    distinct: u64,
    cpu_s: f64,
    resident_kib: u64,
    wire_bytes: u64,
    store_bytes: u64,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.seconds, arguments.stacks) = (3, vec![10]);
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for stacks in &arguments.stacks {
        for (metric, flags, pause_us) in [
            ("stacks.cpu", ["-O1", "-fno-omit-frame-pointer"], 0),
            ("stacks.cpu_dwarf", ["-O2", "-fomit-frame-pointer"], 0),
            ("stacks.wait", ["-O2", "-fomit-frame-pointer"], PAUSE_US),
        ] {
            let program = build(scratch.path(), metric, &flags)?;
            let load = Load { program, stacks: *stacks, pause_us };
            let without = measure(&arguments, &load, None)?;
            let with = measure(&arguments, &load, Some(metric))?;
            rows.push(row(&arguments, metric, *stacks, &with, &without));
        }
    }
    say(&format!(
        "{} s of a program with {} threads at a period of {}; CPU in percent of one core, of all threads of the agent",
        arguments.seconds, arguments.threads, arguments.period
    ));
    say("");
    table::table(
        &[
            "metric",
            "stacks",
            "seen",
            "samples",
            "agent CPU",
            "without",
            "CPU per sample",
            "memory",
            "without",
            "bytes per sample on the wire",
            "in the store",
        ],
        &rows,
    );
    Ok(())
}

fn row(arguments: &Arguments, metric: &str, stacks: u64, with: &Run, without: &Run) -> Vec<String> {
    let percent = |run: &Run| format!("{:.3} %", 100.0 * run.cpu_s / to_f64(arguments.seconds));
    let memory = |run: &Run| format!("{:.1} MiB", to_f64(run.resident_kib) / 1024.0);
    let each = |with: f64, without: f64, samples: u64| (with - without) / to_f64(samples.max(1));
    let bytes = |with, without, samples| format!("{:.1}", each(to_f64(with), to_f64(without), samples));
    vec![
        metric.to_owned(),
        stacks.to_string(),
        with.distinct.to_string(),
        with.samples.to_string(),
        percent(with),
        percent(without),
        format!("{:.1} µs", 1e6 * each(with.cpu_s, without.cpu_s, with.samples)),
        memory(with),
        memory(without),
        bytes(with.wire_bytes, without.wire_bytes, with.samples),
        bytes(with.store_bytes, without.store_bytes, with.stored),
    ]
}

fn build(scratch: &Path, name: &str, flags: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let (source, program) = (scratch.join("program.c"), scratch.join(name));
    std::fs::write(&source, PROGRAM)?;
    let built =
        Command::new("cc").args(flags).arg(&source).arg("-o").arg(&program).arg("-lpthread").output()?;
    if !built.status.success() {
        return Err(format!("cannot compile: {}", String::from_utf8_lossy(&built.stderr)).into());
    }
    Ok(program)
}

fn measure(arguments: &Arguments, load: &Load, metric: Option<&str>) -> Result<Run, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store = Store::start(Kind::Sqlite)?;
    let listen = format!("ipc://{}/collector", scratch.path().display());
    let collector = Collector::start(scratch.path(), &listen, &store, "")?;
    let empty = store.bytes()?;
    let job = Job::make_for("stacks", 0)?;
    let _program = KilledOnDrop(
        job.command(&load.program)
            .args([load.stacks.to_string(), arguments.depth.to_string()])
            .args([arguments.threads.to_string(), load.pause_us.to_string()])
            .stdin(Stdio::null())
            .spawn()?,
    );
    let mut config = format!("jobs = [\"{}\"]\n[baseline]\n", job.pattern());
    if let Some(metric) = metric {
        config.push_str(&format!("\"{metric}\" = \"{}\"\n", arguments.period));
    }
    let agent = Agent::start(scratch.path(), &listen, &config)?;
    pause(SETTLE_NS);
    let before = agent.connect()?.status()?.counts;
    let begin_us = wall_us();
    pause(i64::try_from(arguments.seconds)?.saturating_mul(1_000_000_000));
    let after = agent.connect()?.status()?.counts;
    let end_us = wall_us();
    let resident_kib = process::resident_kib(agent.pid())?;
    agent.stop();
    collector.stop()?;
    let sum = |sql: &str| Ok::<u64, Box<dyn Error>>(store.ask(sql)?.parse()?);
    let count = "SELECT coalesce(sum(count), 0) FROM stack_sample";
    let samples = sum(&format!("{count} WHERE time / 1000 BETWEEN {begin_us} AND {end_us}"))?;
    if metric.is_some() && samples == 0 {
        return Err("no call stack was stored".into());
    }
    Ok(Run {
        samples,
        stored: sum(count)?,
        distinct: sum("SELECT count(DISTINCT stack_id) FROM stack_sample")?,
        cpu_s: to_f64(after.cpu_ns.saturating_sub(before.cpu_ns)) / 1e9,
        resident_kib,
        wire_bytes: after.bytes_sent.saturating_sub(before.bytes_sent),
        store_bytes: store.bytes()?.saturating_sub(empty),
    })
}
