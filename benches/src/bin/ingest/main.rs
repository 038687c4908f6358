//! Measures the rate in samples per second of one collector from its socket to the commit, for each store, alternating with
//! a bare copy of the same rows into the same table of an empty store.
//!
//! `cargo run --release --bin ingest -- [--quick] [--stores sqlite,postgres,timescaledb]`. Stores that are not installed are
//! left out.

mod bare;
mod taken;

use std::error::Error;
use std::path::Path;

use clap::Parser;
use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::deliver_all;
use polymeter_benches::failure::Failure;
use polymeter_benches::load::Load;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

use self::taken::Taken;

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of agents, each of which sends from its own thread without pauses.
    #[arg(long, default_value_t = 20)]
    agents: u32,
    /// Number of frames of each agent.
    #[arg(long, default_value_t = 40)]
    frames: u32,
    /// Number of ticks in each frame, one per millisecond with 50 values each.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    ticks: u16,
    /// Number of rounds in which collector and bare copy alternate.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Stores to measure; by default all that are installed.
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<Kind>,
    /// Send a few frames, as a functional check.
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.agents, arguments.frames, arguments.rounds) = (2, 4, 1);
    }
    table::machine();
    let kinds = if arguments.stores.is_empty() { Kind::ALL.to_vec() } else { arguments.stores.clone() };
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let load = Load { agents: arguments.agents, frames: arguments.frames, ticks: arguments.ticks };
    let mut rows = Vec::new();
    for kind in kinds {
        if let Some(missing) = kind.missing() {
            say(&format!("left out: {kind}: {missing}"));
            continue;
        }
        let (mut through, mut bare) = (Taken::default(), Taken::default());
        for _ in 0..arguments.rounds {
            let agents = load.sampled(&script)?;
            // Both get the same rows, decoded before the measurement starts.
            let copy = bare::Rows::of(&agents)?;
            through.add(collected(kind, &script, agents)?);
            bare.add(copy.store(kind)?);
        }
        rows.push(row(kind, &through, &bare));
    }
    say(&format!(
        "{} agents, {} frames of {} ticks each, {} rounds; bare: two COPY side by side (SQLite: one prepared INSERT), 50000 rows to a transaction",
        arguments.agents, arguments.frames, arguments.ticks, arguments.rounds
    ));
    say("");
    table::table(
        &[
            "store",
            "samples",
            "samples/s",
            "bare rows/s",
            "ratio",
            "collector µs per sample",
            "server µs per sample",
            "bare server µs",
            "bytes per sample",
            "bare bytes",
        ],
        &rows,
    );
    Ok(())
}

fn row(kind: Kind, through: &Taken, bare: &Taken) -> Vec<String> {
    let micros = |cpu_s: f64, of: &Taken| format!("{:.2}", cpu_s * 1e6 / to_f64(of.samples));
    let bytes = |of: &Taken| format!("{:.1}", to_f64(of.bytes) / to_f64(of.samples));
    vec![
        kind.to_string(),
        through.samples.to_string(),
        format!("{:.0} k", through.per_second() / 1e3),
        format!("{:.0} k", bare.per_second() / 1e3),
        format!("{:.2}", through.per_second() / bare.per_second()),
        micros(through.collector_cpu_s, through),
        micros(through.server_cpu_s, through),
        micros(bare.server_cpu_s, bare),
        bytes(through),
        bytes(bare),
    ]
}

/// Measures from the first send to the last acknowledgement.
fn collected(kind: Kind, script: &Script, agents: Vec<MockAgent>) -> Result<Taken, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store = Store::start(kind)?;
    let listen = format!("ipc://{}/collector", scratch.path().display());
    let collector = Collector::start(scratch.path(), &listen, &store, "")?;
    let samples = agents.iter().map(MockAgent::samples).sum();
    let (collector_cpu_s, server_cpu_s) = (collector.usage()?.cpu_s, store.usage()?.cpu_s);
    let seconds = deliver_all(&listen, script, agents)?;
    let taken = Taken {
        samples,
        seconds,
        collector_cpu_s: collector.usage()?.cpu_s - collector_cpu_s,
        server_cpu_s: store.usage()?.cpu_s - server_cpu_s,
        bytes: 0,
    };
    collector.stop()?;
    let stored = store.samples()?;
    if stored != samples {
        return Err(format!("{samples} samples were acknowledged, and {stored} are stored").into());
    }
    Ok(Taken { bytes: store.bytes()?, ..taken })
}
