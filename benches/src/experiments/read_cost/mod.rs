//! Measures the cost of a read of each kind of sources, in turns with a bare `pread`.

mod cases;
mod measure;
mod page;

use std::error::Error;
use std::path::PathBuf;

use polymeter_benches::table::{self, say};

use self::cases::Machines;
use self::measure::{Bare, Cost};
use self::page::Row;

/// Measures the CPU time of a read of each kind of sources.
///
/// Needs root, for cgroups, and `cc`. A source is read in turns with a bare `pread` of the same file, or of
/// /proc/loadavg where it is no single file. Sources that this machine lacks are those of a laid-out node:
/// the table says which. In the slow lane it is the CPU time of the source's thread, which is also what the
/// agent charges to the job, without the wake-up.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.rounds, arguments.reads) = (2, 10);
    }
    table::machine();
    measure_all(&arguments)
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
