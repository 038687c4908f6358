//! The rate of the store beside a receiver that hangs.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;

use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::deliver_all;
use polymeter_benches::load::Load;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

/// The sum of some rounds.
#[derive(Default)]
struct Taken {
    samples: u64,
    seconds: f64,
    cpu_s: f64,
}

impl Taken {
    fn per_second(&self) -> f64 {
        to_f64(self.samples) / self.seconds
    }
}

/// Measures the samples per second from the agents' sockets to the commit, without remote_write and with a receiver that
/// accepts connections and never reads, in turns, and prints the ratios.
///
/// # Errors
/// Returns an error if a sample is not stored.
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
            run(kind, &script, load, None, &mut without)?;
            run(kind, &script, load, Some(&format!("http://{address}/write")), &mut beside)?;
        }
        let micros = |taken: &Taken| format!("{:.2}", taken.cpu_s * 1e6 / to_f64(taken.samples));
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

fn run(
    kind: Kind,
    script: &Script,
    load: Load,
    url: Option<&str>,
    taken: &mut Taken,
) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store = Store::start(kind)?;
    let listen = format!("ipc://{}/collector", scratch.path().display());
    let spool = scratch.path().join("spool");
    let section = url.map(|url| {
        format!(
            "[remote_write]\nurl = \"{url}\"\nprotocol = \"1.0\"\ntimeout = \"2s\"\nspool = \"{}\"\n",
            spool.display()
        )
    });
    let collector = Collector::start(scratch.path(), &listen, &store, &section.unwrap_or_default())?;
    let agents = load.sampled(script)?;
    let samples: u64 = agents.iter().map(MockAgent::samples).sum();
    let cpu_s = collector.usage()?.cpu_s;
    taken.seconds += deliver_all(&listen, script, agents)?;
    taken.cpu_s += collector.usage()?.cpu_s - cpu_s;
    taken.samples += samples;
    collector.stop()?;
    let stored = store.samples()?;
    if stored != samples {
        return Err(format!("{samples} samples were acknowledged, and {stored} are stored").into());
    }
    Ok(())
}
