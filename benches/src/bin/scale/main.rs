//! Measures the number of nodes that one collector, or several with one store, support: N mock agents, each with its own session,
//! against collector processes and a real store; optionally alternating with a Prometheus server that scrapes N mock exporters of the same
//! values.
//!
//! `cargo run --release --bin scale -- [--quick] [--agents 500,2000,8000,16000] [--collectors 4] [--store timescaledb] [--prometheus]`. Needs
//! no privileges, but a high descriptor limit: the collector, or Prometheus, has one descriptor per connection, a mock
//! process two.

mod arguments;
mod collected;
mod exporters;
mod fleet;
mod page;
mod part;
mod prometheus;
mod report;
mod request;
mod scraped;

use std::error::Error;

use clap::Parser;
use polymeter_benches::failure::Failure;
use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say};
use polymeter_proto::period::Period;

use self::arguments::Arguments;
use self::collected::Collected;
use self::exporters::Exporters;
use self::fleet::Fleet;
use self::scraped::Scraped;

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if let Some(fleet) = &arguments.fleet {
        return Ok(serde_json::from_str::<Fleet>(fleet)?.run()?);
    }
    if let Some(exporters) = &arguments.exporters {
        return Ok(serde_json::from_str::<Exporters>(exporters)?.run()?);
    }
    if arguments.quick {
        (arguments.agents, arguments.seconds) = (vec![100], 5);
        (arguments.period, arguments.processes) = (Period::SECOND, Some(2));
        arguments.warm_up = 1;
        arguments.collectors = if Kind::Postgres.missing().is_none() { 2 } else { 1 };
    }
    if arguments.prometheus {
        arguments.check_prometheus()?;
        // Prometheus needs a descriptor for each exporter, and inherits the limit of this process.
        polymeter_agent::kernel::raise_descriptor_limit();
    }
    table::machine();
    let kind = arguments.store.unwrap_or_else(Kind::best);
    arguments.check_store(kind)?;
    let (mut collected, mut scraped) = (Vec::new(), Vec::new());
    let mut measure = |agents: u64| {
        collected.push(Collected::measure(&arguments, kind, agents)?);
        if arguments.prometheus {
            scraped.push(Scraped::measure(&arguments, agents)?);
        }
        Ok::<(), Box<dyn Error>>(())
    };
    // If one number is too large for this machine, the results of the smaller ones are still printed.
    let failed = arguments
        .agents
        .iter()
        .find_map(|agents| measure(*agents).err().map(|error| format!("with {agents} agents: {error}")));
    report::collected(&arguments, kind, &collected);
    if arguments.prometheus {
        say("");
        report::scraped(&arguments, &prometheus::version()?, &scraped);
        say("");
        report::compared(&collected, &scraped);
    }
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    let lost = collected.iter().find(|outcome| outcome.stored != outcome.expected);
    lost.map_or(Ok(()), |outcome| {
        let Collected { agents, expected, stored, .. } = outcome;
        Err(format!("with {agents} agents {expected} samples were sent, and {stored} are stored").into())
    })
}
