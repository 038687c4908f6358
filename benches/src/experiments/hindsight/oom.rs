//! An OOM kill on one node of many, and the interval that all of them send.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use polymeter_benches::agent::Agent;
use polymeter_benches::clock::{now_ns, wait_for};
use polymeter_benches::collector::Collector;
use polymeter_benches::job::{Job, pause, write};
use polymeter_benches::process::KilledOnDrop;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::{self, Sums};
use polymeter_benches::table::{self, say};

use super::arguments::Arguments;

const PERIOD_US: i64 = 10_000;

const KEEP_S: i64 = 30;

const CONFIG: &str = r#"
[baseline]
"cpu.usage" = "1s"
"memory.*" = "1s"
[hindsight]
keep = "45s"
memory = "4MiB"
[hindsight.metrics]
"cpu.*" = "10ms"
"memory.*" = "10ms"
"#;

const RULE: &str =
    "[[trigger]]\nname = \"oom\"\nwhen = \"oom\"\nkeep = \"30s\"\nafter = \"1s\"\nfirings = 1\n";

const LIMIT: &str = "32M";

/// Has twice the memory that it may have.
const GREEDY: &str = "head -c 64M /dev/zero | tail -c 64M | wc -c";

const START_S: u64 = 120;

const SEND_S: u64 = 300;

/// Kept samples of a node.
#[derive(Debug)]
struct OfNode {
    samples: u64,
    series: u64,
    /// Time from the begin of the interval to the first sample.
    before_us: i64,
    /// Time from the last sample to the end of the interval.
    after_us: i64,
}

pub(super) fn measure(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let (mut job, store) = (Job::make_for("oom", 0)?, Store::start(kind)?);
    let limits = limit_files(&job);
    if limits.is_empty() {
        say("left out: oom: no cgroup of this machine limits memory");
        return Ok(());
    }
    job.work(&scratch.join("written"))?;
    let listen = format!("ipc://{}", scratch.join("oom").display());
    let collector = Collector::start(scratch, &listen, &store, "")?;
    let mut agents = Vec::new();
    for number in 0..arguments.nodes {
        agents.push(start_agent(number, &job, &collector, scratch)?);
    }
    let count = |sql: &str| store.ask(sql).ok()?.parse::<u32>().ok();
    wait_for("the store knows all nodes of the job", START_S, || {
        (count("SELECT count(*) FROM job_node") == Some(arguments.nodes)).then_some(())
    })?;
    pause((KEEP_S + 5) * 1_000_000_000);
    let began_ns = now_ns();
    kill_for_memory(&job, &limits)?;
    wait_for("all nodes have sent the interval", SEND_S, || {
        (count("SELECT count(*) FROM kept_interval")? == arguments.nodes).then_some(())
    })?;
    let sent_s = table::to_f64(now_ns() - began_ns) / 1e9;
    let firings = store.lines(
        "SELECT node || ' asked ' || nodes_asked || ', missing ' || nodes_missing FROM trigger_firing",
    )?;
    let intervals =
        store.ask("SELECT count(*) FROM (SELECT DISTINCT started, ended FROM kept_interval) AS each")?;
    let of_nodes = read_kept(&store)?;
    if !agents.into_iter().all(Agent::stop) {
        return Err("an agent failed".into());
    }
    collector.stop()?;
    let sums = Sums::read(&store)?;
    sums.check()?;
    say(&format!("{kind}: an OOM kill on one of {} nodes, {KEEP_S} s at 10 ms before it", arguments.nodes));
    say("");
    show(&of_nodes, sent_s);
    say("");
    say(&format!(
        "fired: {}; distinct intervals {intervals}; {sums}; stored twice {}",
        firings.join("; "),
        sums::stored_twice(&store)?
    ));
    check(&of_nodes, &firings, &intervals, &sums, arguments.nodes)
}

/// Starts the agent of one node. The rule is on the first node alone.
fn start_agent(
    number: u32,
    job: &Job,
    collector: &Collector,
    scratch: &Path,
) -> Result<Agent, Box<dyn Error>> {
    let directory = scratch.join(format!("node{number}"));
    fs::create_dir(&directory)?;
    let rule = if number == 0 { RULE } else { "" };
    let head = format!("node = \"node{number:03}\"\njobs = [\"{}\"]\n", job.pattern());
    Agent::start(&directory, collector.endpoint(), &format!("{head}{CONFIG}{rule}"))
}

/// Files that limit the memory of the job, with and without swap.
fn limit_files(job: &Job) -> Vec<PathBuf> {
    let names = ["memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
    let files = job.directories().iter().flat_map(|directory| names.map(|name| directory.join(name)));
    files.filter(|file| file.exists()).collect()
}

fn kill_for_memory(job: &Job, limits: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    for file in limits {
        write(file, LIMIT)?;
    }
    let mut command = job.command(Path::new("sh"));
    let command = command.args(["-c", GREEDY]).stdin(Stdio::null()).stdout(Stdio::null());
    KilledOnDrop(command.spawn()?).wait()?;
    Ok(())
}

fn read_kept(store: &Store) -> Result<Vec<OfNode>, Box<dyn Error>> {
    let us = |column: &str| match store.kind() {
        Kind::Sqlite => column.to_owned(),
        Kind::Postgres | Kind::Timescaledb | Kind::Citus => {
            format!("CAST(extract(epoch FROM {column}) * 1000000 AS bigint)")
        }
    };
    let (time, started, ended) = (us("kept_sample.time"), us("started"), us("ended"));
    let sql = format!(
        "SELECT count(*) || ' ' || count(DISTINCT series_id)
             || ' ' || min({time}) - max({started}) || ' ' || max({ended}) - max({time})
         FROM kept_sample JOIN series USING (series_id) JOIN kept_interval ON kept_interval.node = series.node
         GROUP BY series.node"
    );
    store.lines(&sql)?.iter().map(|line| parse(line)).collect()
}

fn parse(line: &str) -> Result<OfNode, Box<dyn Error>> {
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or("a row has four numbers");
    Ok(OfNode {
        samples: next()?.parse()?,
        series: next()?.parse()?,
        before_us: next()?.parse()?,
        after_us: next()?.parse()?,
    })
}

fn show(of_nodes: &[OfNode], sent_s: f64) {
    let range = |of: fn(&OfNode) -> i64| {
        let values = || of_nodes.iter().map(of);
        format!("{} to {}", values().min().unwrap_or(0), values().max().unwrap_or(0))
    };
    let row = vec![
        of_nodes.len().to_string(),
        range(|node| i64::try_from(node.series).unwrap_or(i64::MAX)),
        range(|node| i64::try_from(node.samples / node.series.max(1)).unwrap_or(i64::MAX)),
        range(|node| node.before_us),
        range(|node| node.after_us),
        format!("{sent_s:.1} s"),
    ];
    let head = [
        "nodes",
        "series of a node",
        "samples of a series",
        "µs to the first sample",
        "µs after the last",
        "kill until all is stored",
    ];
    table::table(&head, &[row]);
}

/// Checks that all nodes sent the interval, and that all were asked. The first and last samples of a node are
/// within a period of its ends, unless the node missed a deadline.
fn check(
    of_nodes: &[OfNode],
    firings: &[String],
    intervals: &str,
    sums: &Sums,
    nodes: u32,
) -> Result<(), Box<dyn Error>> {
    let is_whole = |node: &&OfNode| {
        (0..=PERIOD_US).contains(&node.before_us) && (0..=PERIOD_US).contains(&node.after_us)
    };
    let shorter = of_nodes.len() - of_nodes.iter().filter(is_whole).count();
    if shorter as u64 > sums.missed || intervals != "1" || of_nodes.len() != usize::try_from(nodes)? {
        return Err(format!(
            "{} nodes have {intervals} intervals, {shorter} of them without their ends",
            of_nodes.len()
        )
        .into());
    }
    if firings.len() != 1
        || !firings.iter().all(|firing| firing.contains(&format!("asked {nodes}, missing {{}}")))
    {
        return Err(format!("the firings: {firings:?}").into());
    }
    Ok(())
}
