//! The rate of the store beside a receiver that hangs.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;

use polymeter_benches::delivery::{Taken, store_all};
use polymeter_benches::load::Load;
use polymeter_benches::mock::Script;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// Measures the samples per second from the agents' sockets to the commit, without remote_write and with a
/// receiver that accepts connections and never reads, in turns, and prints the ratios. Fails if a sample is
/// not stored.
pub(crate) fn measure(rounds: usize, is_quick: bool) -> Result<(), Box<dyn Error>> {
    let load = if is_quick {
        Load { agents: 2, frames: 4, ticks: 100 }
    } else {
        Load { agents: 20, frames: 40, ticks: 100 }
    };
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let hanging = TcpListener::bind("127.0.0.1:0")?;
    let address = hanging.local_addr()?;
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        if let Some(missing) = kind.missing() {
            say(&format!("left out: {kind}: {missing}"));
            continue;
        }
        let (mut without, mut beside) = (Taken::default(), Taken::default());
        for _ in 0..rounds {
            without.add(store_all(kind, "", &script, load.sampled(&script)?)?);
            let spool = tempfile::tempdir()?;
            let section = format!(
                "[remote_write]\nurl = \"http://{address}/write\"\nprotocol = \"1.0\"\ntimeout = \"2s\"\nspool = \"{}\"\n",
                spool.path().display()
            );
            beside.add(store_all(kind, &section, &script, load.sampled(&script)?)?);
        }
        let micros = |taken: &Taken| format!("{:.2}", taken.collector_cpu_s * 1e6 / to_f64(taken.samples));
        rows.push(vec![
            kind.to_string(),
            format!("{:.0} k", without.per_second() / 1e3),
            format!("{:.0} k", beside.per_second() / 1e3),
            format!("{:.2}", beside.per_second() / without.per_second()),
            micros(&without),
            micros(&beside),
        ]);
    }
    say("");
    say(&format!(
        "{rounds} rounds of {} agents with {} frames of {} ticks each, in turns",
        load.agents, load.frames, load.ticks
    ));
    say("");
    let collector = "collector µs per sample";
    table::table(
        &["store", "stored samples/s", "beside a receiver that hangs", "ratio", collector, collector],
        &rows,
    );
    drop(hanging);
    Ok(())
}
