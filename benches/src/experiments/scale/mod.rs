//! Measures the number of nodes that collectors with one store support; optionally Prometheus with as many
//! exporters of the same values.

mod arguments;
mod collected;
pub(crate) mod exporters;
pub(crate) mod fleet;
mod page;
pub(crate) mod part;
pub(crate) mod prometheus;
mod report;
mod request;
mod scraped;

use std::error::Error;

use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say};
use polymeter_proto::period::Period;

pub(crate) use self::arguments::{Arguments, processes_for};
pub(crate) use self::collected::Collected;
pub(crate) use self::prometheus::Scraper;
pub(crate) use self::scraped::Scraping;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
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
    // If one number is too large for this machine, the results of the smaller ones are still printed.
    let mut failed = None;
    for agents in &arguments.agents {
        let outcome = Collected::measure(&arguments, kind, *agents).and_then(|outcome| {
            collected.push(outcome);
            if arguments.prometheus {
                let outcome = Scraping::by_prometheus(&arguments, *agents).measure()?;
                if outcome.answered == 0 {
                    return Err(format!("Prometheus got no page of any exporter: {outcome:?}").into());
                }
                scraped.push(outcome);
            }
            Ok(())
        });
        if let Err(error) = outcome {
            failed = Some(format!("with {agents} agents: {error}"));
            break;
        }
    }
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
