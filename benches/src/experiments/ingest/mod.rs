//! Measures the rate of one collector from its socket to the commit, in turns with a bare copy of the same
//! rows.

mod bare;

use std::error::Error;
use std::path::Path;

use polymeter_benches::delivery::{Taken, store_all};
use polymeter_benches::load::Load;
use polymeter_benches::mock::Script;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// Measures samples per second to the commit, against a bare copy.
///
/// Stores that are not installed are left out; --stores postgres,citus compares a coordinator and two workers
/// with one server. Mock agents with full outboxes send as fast as the collector accepts, each from its own
/// thread. The bare copy inserts the same rows into the same empty table: with as many connections as the
/// collector has writers, side by side, that `\copy` binary files, or with one prepared INSERT of SQLite. It
/// creates no series and keeps no session state. The server has its default settings and syncs to the disk.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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
    /// Number of the collector's writers, and of connections of the bare copy.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    writers: u8,
    /// Stores to measure; by default all that are installed.
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<Kind>,
    /// Send a few frames, as a functional check.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
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
            through.add(store_all(kind, &format!("writers = {}\n", arguments.writers), &script, agents)?);
            bare.add(copy.store(kind, arguments.writers.into())?);
        }
        rows.push(row(kind, &through, &bare));
    }
    say(&format!(
        "{} agents, {} frames of {} ticks each, {} rounds; {} writers; bare: as many COPY side by side (SQLite: one prepared INSERT), 50000 rows to a transaction",
        arguments.agents, arguments.frames, arguments.ticks, arguments.rounds, arguments.writers
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
