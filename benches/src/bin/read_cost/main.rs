//! Measures the cost of a read of each kind of sources: the CPU time of a read of all values of a source, and its
//! ratio to a bare `pread` in the same run.
//!
//! `cargo run --release --bin read_cost -- [--quick] [--write]`. Needs root, for the job's cgroups. Sources that this
//! machine has are read here, the others on a laid-out node; a row says which.

mod cases;
mod measure;
mod page;

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;
use polymeter_benches::failure::Failure;
use polymeter_benches::table::{self, say};

use cases::Machines;
use measure::{Bare, Cost};
use page::Row;

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of rounds in which a source and the bare read alternate.
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// Reads of each of them in a round; sources of the slow lane are read a tenth as often.
    #[arg(long, default_value_t = 200)]
    reads: u64,
    /// Write the table for docs/reference/metrics.md, too; `polymeter metrics --markdown` includes it.
    #[arg(long)]
    write: bool,
    /// Read each source a few times, as a functional check.
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.rounds, arguments.reads) = (2, 10);
    }
    table::machine();
    Ok(measure_all(&arguments)?)
}

fn measure_all(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    polymeter_agent::kernel::raise_descriptor_limit();
    let machines = Machines::new()?;
    let mut rows = Vec::new();
    for case in &cases::CASES {
        let (opened, reason) = machines.open(case)?;
        if opened.is_empty() {
            rows.push(Row::missing(case.kind, reason));
        }
        for mut opened in opened {
            let path = machines.path_of(case, &opened.name).unwrap_or_else(|| PathBuf::from("/proc/loadavg"));
            let mut bare = Bare::open(&path)?;
            let cost = Cost::measure(&mut opened.source, &mut bare, arguments.rounds, arguments.reads)?;
            rows.push(Row::new(case, &opened, &cost, &path));
        }
    }
    say(&format!(
        "{} rounds of {} reads, medians; CPU time of the reading thread, without its wake-up in the slow lane; \
         the job has {} processes",
        arguments.rounds,
        arguments.reads,
        machines.processes()
    ));
    say("");
    let text = page::table(&rows);
    say(text.trim_end());
    if arguments.write {
        std::fs::write(page::PATH, text)?;
    }
    Ok(())
}
