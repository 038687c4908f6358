//! Measures the sink of remote_write: samples per second and core, from accepted rows to the answer of a receiver, and the
//! rate of the store beside a receiver that hangs.
//!
//! `cargo run --release --bin remote_write`. Needs no privileges. The receiver reads requests and answers; its CPU time is
//! subtracted. The spool is on the file system of the temporary directory. Stores that are not installed are left out.

mod hanging;
mod node;
mod receiver;
mod sink;

use clap::{Parser, ValueEnum};
use polymeter_benches::failure::Failure;
use polymeter_benches::table::{self, say};

#[derive(Debug, Parser)]
struct Arguments {
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

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
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
