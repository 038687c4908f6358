//! Measures the sink of remote_write, and the rate of stores beside a receiver that hangs.

mod hanging;
mod node;
mod receiver;
mod sink;

use std::error::Error;

use clap::ValueEnum;
use polymeter_benches::table::{self, say};

pub(crate) use self::receiver::Receiver;
pub(crate) use self::sink::{Workload, send};

/// Measures remote_write: samples per second and core, a hanging receiver.
///
/// Frames are passed to the sink without a collector, until a receiver in the same process has accepted all
/// of them; its CPU time is subtracted. The spool is on the file system of the temporary directory. Then
/// agents send as in `ingest`, in turns without remote_write and with a receiver that never reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The only measurement to run.
    #[arg(long, value_enum)]
    only: Option<Measurement>,
    /// Run one round with few samples, as a functional check.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// The cost of the sink.
    Sink,
    /// The rate of the store beside a receiver that hangs.
    Hanging,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let rounds = if arguments.quick { 1 } else { arguments.rounds.max(1) };
    table::machine();
    let is_wanted = |measurement| arguments.only.is_none_or(|only| only == measurement);
    if is_wanted(Measurement::Sink) {
        sink::measure(rounds, arguments.quick)?;
        say("");
    }
    if is_wanted(Measurement::Hanging) {
        hanging::measure(rounds, arguments.quick)?;
    }
    Ok(())
}
