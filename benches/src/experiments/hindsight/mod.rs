//! Measures windows, rings and triggers: full rate without its volume.

mod arguments;
mod bursts;
mod idle_ring;
mod oom;
mod windows;

use std::error::Error;

use polymeter_benches::table::{self, say};

pub(crate) use self::arguments::Arguments;
use self::arguments::Part;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.seconds, arguments.rounds, arguments.bursts, arguments.nodes) = (10, 1, 1500, 4);
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    for part in &arguments.parts {
        say("");
        match part {
            Part::IdleRing => idle_ring::measure(&arguments, scratch.path())?,
            Part::Windows => windows::measure(&arguments, scratch.path())?,
            Part::Bursts => bursts::measure(&arguments, scratch.path())?,
            Part::Oom => oom::measure(&arguments, scratch.path())?,
        }
    }
    Ok(())
}
