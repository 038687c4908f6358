//! Measures what a sample costs each server of Citus, kills workers at random while agents send, and measures
//! reads, columnar partitions and retention.

use std::error::Error;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wait_for};
use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::deliver_all;
use polymeter_benches::load::Load;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::statistics::Random;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::stored_twice;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// Kills workers of Citus: each sample must be stored once; the cost of a sample, reads.
///
/// Needs PostgreSQL with Citus, and says so if there is none. It starts a coordinator and two workers, and
/// compares the CPU time of a sample, and reads, with one server that has as many samples.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of agents.
    #[arg(long, default_value_t = 20)]
    agents: u32,
    /// Number of frames of each agent in a round; a round begins when all are acknowledged.
    #[arg(long, default_value_t = 40)]
    frames: u32,
    /// Time in which workers are killed, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Send a few frames and kill one worker, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// One tick per millisecond with 50 values each.
const TICKS: u16 = 100;

/// Rows of each of two copies.
const COPIED_ROWS: u64 = 500_000;

/// Rounds in which the cost of a sample is measured. The one before them creates the series, those behind
/// them are sent while workers are killed.
const MEASURED_ROUNDS: Range<u64> = 1..5;

/// Shortest and longest time between two kills.
const PAUSE_MS: (u64, u64) = (2_000, 8_000);

/// Longest time for which a killed worker is away.
const AWAY_MS: u64 = 5_000;

const READ_VALUES: u64 = 500_000;

const READS: u32 = 5;

const PATIENCE_S: u64 = 240;

/// Past days that get rows, and the number of series and of rows of each series in one of them.
const PAST_DAYS: u64 = 2;
const PAST_SERIES: u64 = 100;
const PAST_ROWS: u64 = 8_640;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.agents, arguments.frames, arguments.seconds) = (2, 4, 5);
    }
    if let Some(missing) = Kind::Citus.missing() {
        say(&format!("SKIPPED: {missing}"));
        return Ok(());
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let (mut store, one_server) = (Store::start(Kind::Citus)?, Store::start(Kind::Postgres)?);
    compare_costs(scratch.path(), [&store, &one_server], &arguments)?;
    let rounds = store_under_kills(scratch.path(), &mut store, &arguments)?;
    compare_writers(scratch.path(), &store)?;
    commits(&store)?;
    send_rounds(scratch.path(), &one_server, &arguments, MEASURED_ROUNDS.end..rounds)?;
    compare_reads(&store, &one_server)?;
    explain(&store)?;
    past_days(scratch.path(), &store)?;
    Ok(())
}

/// Sends the frames of all agents in round `round`, and returns the number of samples when they are
/// acknowledged.
fn send_round(
    listen: &str,
    script: &Script,
    arguments: &Arguments,
    round: u64,
) -> Result<u64, Box<dyn Error>> {
    let load = Load { agents: arguments.agents, frames: arguments.frames, ticks: TICKS };
    let agents = load.sampled_as(script, round * u64::from(arguments.agents))?;
    let samples = agents.iter().map(MockAgent::samples).sum();
    // The next round has later samples.
    let next_ns = now_ns() + u64::from(arguments.frames) * u64::from(TICKS) * SECOND_NS / 1000;
    deliver_all(&[listen.to_owned()], script, agents)?;
    sleep_until(next_ns);
    Ok(samples)
}

/// Sends samples while workers are killed, and compares the rows with what was acknowledged. Returns the
/// number of rounds.
fn store_under_kills(
    scratch: &Path,
    store: &mut Store,
    arguments: &Arguments,
) -> Result<u64, Box<dyn Error>> {
    let listen = format!("ipc://{}/collector", scratch.display());
    let collector = Collector::start(scratch, &listen, store, "")?;
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let end_ns = now_ns() + arguments.seconds * SECOND_NS;
    let (mut sent, mut rounds) = (store.samples()?, MEASURED_ROUNDS.end);
    let mut random = Random::new(arguments.seed);
    let kills = thread::scope(|scope| -> Result<u32, Box<dyn Error>> {
        let sender = scope.spawn(|| -> Result<(), String> {
            while rounds == MEASURED_ROUNDS.end || now_ns() < end_ns {
                sent += send_round(&listen, &script, arguments, rounds).map_err(|error| error.to_string())?;
                rounds += 1;
            }
            Ok(())
        });
        let mut kills = 0;
        while !sender.is_finished() {
            let pause_ms = PAUSE_MS.0 + random.below(PAUSE_MS.1 - PAUSE_MS.0);
            sleep_until(now_ns() + pause_ms * SECOND_NS / 1000);
            let worker = usize::try_from(random.below(store.workers() as u64))?;
            store.kill_worker(worker)?;
            kills += 1;
            sleep_until(now_ns() + random.below(AWAY_MS) * SECOND_NS / 1000);
            store.start_worker(worker)?;
        }
        sender.join().map_err(|_panic| "the sender broke")??;
        Ok(kills)
    })?;
    collector.stop()?;
    // What a worker had prepared when it was killed is completed by the record that the coordinator
    // committed.
    store.ask("SELECT recover_prepared_transactions()")?;
    let number = |sql: &str| -> Result<u64, Box<dyn Error>> { Ok(store.ask(sql)?.parse()?) };
    let rows = store.samples()?;
    let of_sessions = number("SELECT CAST(sum(stored) AS bigint) FROM session")?;
    let of_ledger = number("SELECT CAST(sum(stored) AS bigint) FROM ledger_balance")?;
    let twice = stored_twice(store)?;
    let in_doubt = store.ask_workers("SELECT count(*) FROM pg_prepared_xacts")?.join(", ");
    say(&format!(
        "{kills} workers killed with SIGKILL under load; {sent} samples sent and acknowledged, {rows} rows, {of_sessions} in sessions, {of_ledger} in the ledger, {twice} stored twice, {in_doubt} transactions in doubt"
    ));
    if [rows, of_sessions, of_ledger] != [sent; 3] || twice > 0 {
        return Err("samples were lost or stored twice".into());
    }
    Ok(rounds)
}

/// Sends rounds to a collector with this store. Returns the number of samples.
fn send_rounds(
    scratch: &Path,
    store: &Store,
    arguments: &Arguments,
    rounds: Range<u64>,
) -> Result<u64, Box<dyn Error>> {
    let listen = format!("ipc://{}/collector", scratch.display());
    let collector = Collector::start(scratch, &listen, store, "")?;
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let samples = rounds.map(|round| send_round(&listen, &script, arguments, round));
    let samples = samples.sum::<Result<u64, _>>()?;
    collector.stop()?;
    Ok(samples)
}

/// Measures the CPU time that a sample takes from each server.
fn compare_costs(scratch: &Path, stores: [&Store; 2], arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let names = [&["coordinator", "first worker", "second worker"][..], &["one server"]];
    let mut rows = Vec::new();
    for (store, names) in stores.into_iter().zip(names) {
        send_rounds(scratch, store, arguments, 0..MEASURED_ROUNDS.start)?;
        let before_s = store.cpu_s_of_servers()?;
        let samples = send_rounds(scratch, store, arguments, MEASURED_ROUNDS)?;
        let after_s = store.cpu_s_of_servers()?;
        for (name, (after_s, before_s)) in names.iter().zip(after_s.into_iter().zip(before_s)) {
            let us = (after_s - before_s) * 1e6 / to_f64(samples);
            // A microsecond is a core at a million samples a second.
            rows.push(vec![(*name).to_owned(), format!("{us:.2}"), format!("{:.0}", us * 10.0)]);
        }
    }
    table::table(&["server", "CPU time of a sample in us", "cores for 10 million samples/s"], &rows);
    Ok(())
}

/// Copies the same rows through the coordinator, and through the workers, each of which knows all shards.
fn compare_writers(scratch: &Path, store: &Store) -> Result<(), Box<dyn Error>> {
    let path = scratch.join("rows");
    let rows = format!(
        "COPY (SELECT timestamptz '2000-01-01 00:00+00' + (time - date_trunc('day', time, 'UTC')), series_id, value, node_key
               FROM samples LIMIT {COPIED_ROWS}) TO STDOUT (FORMAT binary)"
    );
    if !store.psql()?.args(["-c", &rows]).stdout(File::create(&path)?).status()?.success() {
        return Err("cannot read the rows".into());
    }
    store.ask("SELECT polymeter_create_partition('2000-01-01')")?;
    let mut table_rows = Vec::new();
    for round in 0..4 {
        let is_through_workers = round % 2 == 1;
        let name = if is_through_workers { "through both workers" } else { "through the coordinator" };
        let clients: Vec<Command> = if is_through_workers {
            store.psql_of_workers().collect()
        } else {
            vec![store.psql()?, store.psql()?]
        };
        let (begin_ns, before_s) = (now_ns(), store.cpu_s_of_servers()?);
        let copying = clients.into_iter().map(|mut psql| {
            let copy = "COPY samples (time, series_id, value, node_key) FROM STDIN (FORMAT binary)";
            Ok(psql.args(["-c", copy]).stdin(File::open(&path)?).spawn()?)
        });
        let mut copying = copying.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        for psql in &mut copying {
            if !psql.wait()?.success() {
                return Err(format!("a copy {name} failed").into());
            }
        }
        let mut row = vec![name.to_owned(), format!("{:.2}", to_f64(now_ns() - begin_ns) / 1e9)];
        let per_row = 1e6 / to_f64(COPIED_ROWS * copying.len() as u64);
        for (after_s, before_s) in store.cpu_s_of_servers()?.into_iter().zip(before_s) {
            row.push(format!("{:.2}", (after_s - before_s) * per_row));
        }
        table_rows.push(row);
    }
    let columns = ["two copies of the same rows", "seconds", "us a row: coordinator", "worker", "worker"];
    table::table(&columns, &table_rows);
    store.ask("DROP TABLE samples_20000101").map(drop)
}

/// Shows what the coordinator sends to the workers for a COPY of one sample.
fn commits(store: &Store) -> Result<(), Box<dyn Error>> {
    store.ask("SELECT polymeter_create_partition('2000-01-01')")?;
    let statements = [
        "SET client_min_messages = log",
        "SET citus.log_remote_commands = on",
        "COPY samples (time, series_id, value, node_key) FROM PROGRAM 'echo 2000-01-01 00:00+00,1,1,1' CSV",
    ];
    let mut psql = store.psql()?;
    let output = psql.args(statements.iter().flat_map(|statement| ["-c", statement])).output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    let commands: Vec<_> = log
        .lines()
        .filter_map(|line| line.strip_prefix("NOTICE:  issuing ").or(line.strip_prefix("LOG:  issuing ")))
        .collect();
    say(&format!("\na COPY of one sample sends to one worker:\n{}\n", commands.join("\n")));
    store.ask("DROP TABLE samples_20000101").map(drop)
}

/// Measures the same read from both stores, in turns.
fn compare_reads(citus: &Store, one_server: &Store) -> Result<(), Box<dyn Error>> {
    let stores = [("Citus", Read::of(citus)?), ("one server", Read::of(one_server)?)];
    let mut times = stores.each_ref().map(|_| Vec::new());
    for _ in 0..READS {
        for ((_, read), times) in stores.iter().zip(&mut times) {
            times.push(read.milliseconds()?);
        }
    }
    let rows = stores.iter().zip(&times).map(|((name, read), times)| {
        let times: Vec<_> = times.iter().map(|time| format!("{time:.0}")).collect();
        vec![(*name).to_owned(), read.rows.to_string(), read.values.to_string(), times.join(", ")]
    });
    table::table(&["store", "samples", "values of the read", "milliseconds"], &rows.collect::<Vec<_>>());
    Ok(())
}

/// A read of [`READ_VALUES`] values of consecutive series, or of somewhat fewer.
struct Read<'a> {
    store: &'a Store,
    query: String,
    values: u64,
    rows: u64,
}

impl<'a> Read<'a> {
    fn of(store: &'a Store) -> Result<Self, Box<dyn Error>> {
        let range = store.ask(&format!(
            "SELECT min(series_id) || ' AND ' || max(series_id) FROM (
                 SELECT series_id, sum(count(*)) OVER (ORDER BY series_id) AS total FROM samples GROUP BY series_id) AS totals
             WHERE total <= {READ_VALUES}"
        ))?;
        let query = format!(
            "SELECT series_id, time, value FROM samples WHERE series_id BETWEEN {range} ORDER BY series_id, time"
        );
        let values =
            store.ask(&format!("SELECT count(*) FROM samples WHERE series_id BETWEEN {range}"))?.parse()?;
        Ok(Self { store, query, values, rows: store.samples()? })
    }

    fn milliseconds(&self) -> Result<f64, Box<dyn Error>> {
        let begin_ns = now_ns();
        let copy = format!("COPY ({}) TO STDOUT (FORMAT binary)", self.query);
        let status = self.store.psql()?.args(["-c", &copy]).stdout(Stdio::null()).status()?;
        if !status.success() {
            return Err(format!("the read failed: {status}").into());
        }
        Ok(to_f64(now_ns() - begin_ns) / 1e6)
    }
}

fn explain(store: &Store) -> Result<(), Box<dyn Error>> {
    let node = "node_key = polymeter_node_key('mock1')";
    for query in [
        "SELECT series_id, time, value FROM samples WHERE series_id BETWEEN 1 AND 9 AND time >= now() - interval '1 h' ORDER BY series_id, time".to_owned(),
        format!("SELECT time, value FROM samples WHERE {node} AND series_id = 60 AND time >= now() - interval '1 h'"),
        "SELECT series_id, date_bin('10 s', time, 'epoch'), count(*), max(value) FROM samples WHERE time >= now() - interval '1 h' GROUP BY node_key, 1, 2".to_owned(),
    ] {
        say(&format!("\nEXPLAIN (COSTS off) {query}\n{}", store.ask(&format!("EXPLAIN (COSTS off) {query}"))?));
    }
    Ok(())
}

/// Adds samples of past days, and lets the maintenance make them columnar, and then drop them.
fn past_days(scratch: &Path, store: &Store) -> Result<(), Box<dyn Error>> {
    let listen = format!("ipc://{}/collector", scratch.display());
    for days in 2..2 + PAST_DAYS {
        let day = format!("(now() AT TIME ZONE 'UTC')::date - {days}");
        store.ask(&format!("SELECT polymeter_create_partition({day})"))?;
        // The order of arrival: a row of each series at a time.
        store.ask(&format!(
            "INSERT INTO samples (time, series_id, value, node_key)
             SELECT ({day})::timestamp AT TIME ZONE 'UTC' + row * interval '10 s', 1000000 + series, row * series, series / 10
             FROM generate_series(0, {}) AS row, generate_series(1, {PAST_SERIES}) AS series",
            PAST_ROWS - 1
        ))?;
    }
    let oldest = store.ask("SELECT min(relname) FROM pg_class JOIN pg_inherits ON inhrelid = oid WHERE inhparent = 'samples'::regclass")?;
    let bytes = || store.ask(&format!("SELECT citus_total_relation_size('{oldest}')"));
    let read = || -> Result<f64, Box<dyn Error>> {
        let begin_ns = now_ns();
        let sql =
            format!("SELECT count(*), sum(value) FROM {oldest} WHERE node_key = 0 AND series_id = 1000005");
        let found = store.ask(&sql)?;
        if found != format!("{PAST_ROWS}|{}", 5 * PAST_ROWS * (PAST_ROWS - 1) / 2) {
            return Err(format!("a series of a past day has {found}").into());
        }
        Ok(to_f64(now_ns() - begin_ns) / 1e6)
    };
    let (rows, heap_bytes, heap_ms) = (PAST_SERIES * PAST_ROWS, bytes()?, read()?);
    let collector = Collector::start(scratch, &listen, store, "")?;
    let columnar = "SELECT count(*) FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid JOIN pg_am ON pg_am.oid = relam
                    WHERE inhparent = 'samples'::regclass AND amname = 'columnar'";
    let all = PAST_DAYS.to_string();
    wait_for("past days are columnar", PATIENCE_S, || (store.ask(columnar).ok()? == all).then_some(()))?;
    say(&format!(
        "\na past day of {rows} rows: {heap_bytes} bytes as rows, {} bytes by columns; a series of it: {heap_ms:.0} ms before, {:.0} ms after, with the start of psql",
        bytes()?,
        read()?
    ));
    collector.stop()?;
    let collector = Collector::start(scratch, &listen, store, "[retention]\nraw = \"2d\"\n")?;
    let left = format!("SELECT to_regclass('{oldest}') IS NULL");
    wait_for("old partitions are dropped", PATIENCE_S, || (store.ask(&left).ok()? == "t").then_some(()))?;
    let shards =
        store.ask_workers(&format!("SELECT count(*) FROM pg_class WHERE relname LIKE '{oldest}%'"))?;
    say(&format!(
        "retention of 2 days dropped {oldest}; {} relations of it are left on the workers",
        shards.join(" and ")
    ));
    let minutes = store.ask("SELECT count(*) FROM samples_1min WHERE series_id > 1000000")?;
    say(&format!("samples_1min has {minutes} rows of the past days"));
    collector.stop()?;
    Ok(())
}
