//! Measures how soon a node that slows down is found, and what the comparison of the nodes costs a collector.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wait_for, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::mock::Script;
use polymeter_benches::paced;
use polymeter_benches::process;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// CPU time of a node with 48 busy CPUs in a second, in nanoseconds.
const FULL_NS: u64 = 48_000_000_000;

/// Number of the node that slows down.
const SLOW: u64 = 1;

/// Intervals of 5 s before which no node is a straggler, and some more, in seconds.
const BEFORE_S: u64 = 75;

/// Time within which the store must have a firing.
const PATIENCE_S: u64 = 60;

/// Time between two looks for it.
const POLL_NS: u64 = 200_000_000;

/// Rows that collectors exchanged in the last minute, and the size of their table.
const EXCHANGED: &str =
    "SELECT count(*) || ', ' || pg_total_relation_size('straggler_part') / 1024 FROM straggler_part";

const RULE: &str = "[[trigger]]\nname = \"slow\"\nwhen = \"straggler(cpu.usage)\"\n";

/// Measures how soon collectors find a node that slows down, and what the comparison costs.
///
/// Mock agents sample once a second; with several collectors each gets the same part of the nodes of a job.
/// The CPU time of their nodes varies by 2 %, and one node takes 10 % less after 75 s. The time to detection
/// is that from the begin of the first slower second until the store has the firing. The same load without
/// the rule takes turns. The CPU time is that of all threads of the collectors, with a resolution of 10 ms,
/// and of the server of the database. Fails if there is not exactly one firing, on this node.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Nodes of all jobs.
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Jobs, among which the nodes are divided.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    jobs: u32,
    /// Collectors of the store, among which the nodes of each job are divided.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    collectors: u32,
    /// Seconds of sampling in each round: the node slows down after 75.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(110..=86_400))]
    seconds: u32,
    /// Rounds in which both take turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The store. Default: TimescaleDB if it is installed, else PostgreSQL.
    #[arg(long, value_enum, default_value_t = Kind::best())]
    store: Kind,
    /// Measure shortly, as a functional check.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Default)]
struct Taken {
    seconds: f64,
    cpu_s: f64,
    server_cpu_s: f64,
    /// Rows and bytes that collectors exchange, at the end.
    exchanged: String,
    /// Times to detection, in seconds.
    found_s: Vec<f64>,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        // Each collector gets some: eight agents share a connection.
        (arguments.nodes, arguments.seconds, arguments.rounds) = (8 * arguments.collectors.max(2), 115, 1);
    }
    table::machine();
    if let Some(missing) = arguments.store.missing() {
        say(&format!("left out: {}: {missing}", arguments.store));
        return Ok(());
    }
    if arguments.store == Kind::Sqlite && arguments.collectors > 1 {
        return Err("SQLite has one collector".into());
    }
    let script = Script::read(Path::new(RECORDED), Period::SECOND)?;
    let series = script.samples_per_tick();
    let (mut without, mut with) = (Taken::default(), Taken::default());
    for _ in 0..arguments.rounds {
        measure(&arguments, "", &mut without)?;
        measure(&arguments, RULE, &mut with)?;
    }
    say(&format!(
        "{}: {} collectors, {} jobs, {} nodes with {series} series each at 1 s, {} rounds of {} s; CPU in % of a core, all threads of all collectors",
        arguments.store,
        arguments.collectors,
        arguments.jobs,
        arguments.nodes,
        arguments.rounds,
        arguments.seconds
    ));
    say("");
    let percent = |taken: &Taken| 100.0 * taken.cpu_s / taken.seconds;
    let server_percent = |taken: &Taken| 100.0 * taken.server_cpu_s / taken.seconds;
    let found_s = |order: fn(f64, f64) -> f64| with.found_s.iter().copied().reduce(order).unwrap_or(f64::NAN);
    let row = vec![
        format!("{:.2} %", percent(&without)),
        format!("{:.2} %", percent(&with)),
        format!("{:.3}", percent(&with) / percent(&without)),
        format!("{:.2} %", server_percent(&without)),
        format!("{:.2} %", server_percent(&with)),
        format!("{:.1} s", found_s(f64::min)),
        format!("{:.1} s", found_s(f64::max)),
        with.exchanged,
    ];
    let columns = [
        "CPU without",
        "CPU with the rule",
        "ratio",
        "server without",
        "server with",
        "found after, least",
        "most",
        "exchanged rows, kB",
    ];
    table::table(&columns, &[row]);
    Ok(())
}

fn measure(arguments: &Arguments, rule: &str, taken: &mut Taken) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let (store, context) = (Store::start(arguments.store)?, zmq::Context::new());
    let mut collectors = Vec::new();
    for number in 0..arguments.collectors {
        let directory = scratch.path().join(number.to_string());
        fs::create_dir(&directory)?;
        let listen = format!("ipc://{}/collector", directory.display());
        collectors.push(Collector::start(&directory, &listen, &store, rule)?);
    }
    let endpoints: Vec<&str> = collectors.iter().map(Collector::endpoint).collect();
    let scripts = (1..=arguments.jobs).map(|job| {
        let script = Script::read(Path::new(RECORDED), Period::SECOND)?;
        Ok(script.of_job(job.to_string().try_into()?, wall_us()))
    });
    let scripts = scripts.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let cpu_s = || -> Result<f64, Box<dyn Error>> {
        collectors.iter().try_fold(0.0, |sum, one| Ok(sum + process::cpu_s(one.pid())?))
    };
    let (used_s, server_used_s) = (cpu_s()?, store.usage()?.cpu_s);
    let begin_ns = now_ns();
    let mut seed = 7_u64;
    let work_ns = |node: u64, second: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = if node == SLOW && second > BEFORE_S { 90 } else { 100 };
        Some(FULL_NS / 100 * part / 10_000 * (9_800 + (seed >> 33) % 400))
    };
    let slow_ns = begin_ns + BEFORE_S * SECOND_NS;
    let seconds = arguments.seconds;
    let found_ns = thread::scope(|scope| {
        let waiting =
            scope.spawn(|| if rule.is_empty() { Ok(None) } else { wait_for_firing(&store, slow_ns) });
        paced::send_working(&context, &endpoints, &scripts, arguments.nodes, seconds, work_ns)?;
        waiting.join().map_err(|_panic| "the search for the firing broke")?.map_err(Box::<dyn Error>::from)
    })?;
    taken.seconds += to_f64(now_ns() - begin_ns) / 1e9;
    taken.cpu_s += cpu_s()? - used_s;
    taken.server_cpu_s += store.usage()?.cpu_s - server_used_s;
    taken.exchanged = match arguments.store {
        Kind::Sqlite => "-".to_owned(),
        Kind::Postgres | Kind::Timescaledb | Kind::Citus => store.ask(EXCHANGED)?,
    };
    if let Some(found_ns) = found_ns {
        let nodes = store.lines("SELECT node FROM trigger_firing")?;
        if nodes != [format!("paced{SLOW:04}")] {
            return Err(format!("the firings are on {nodes:?}").into());
        }
        taken.found_s.push(to_f64(found_ns - slow_ns) / 1e9);
    }
    for collector in collectors {
        collector.stop()?;
    }
    Ok(())
}

/// Returns the time at which the store has a firing.
fn wait_for_firing(store: &Store, since_ns: u64) -> Result<Option<u64>, String> {
    sleep_until(since_ns);
    wait_for("a node was found", PATIENCE_S, || {
        // A query of PostgreSQL is a process.
        sleep_until(now_ns() + POLL_NS);
        let count = store.ask("SELECT count(*) FROM trigger_firing").ok()?;
        (count != "0").then(now_ns)
    })
    .map(Some)
    .map_err(|error| error.to_string())
}
