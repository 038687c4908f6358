//! `polymeter store copy`: copies a store into an empty one.

use std::io::IsTerminal;

use polymeter_service::clock::Clock;
use polymeter_store::{Copied, StoreUrl, copy};
use serde_json::{Map, json};

use crate::failure::Failure;
use crate::output::{terminal, units};
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The copy has everything or nothing: it is one transaction, and an interrupted one leaves the target empty.\n\
    Tokens of the HTTP API, requests to agents and the names of managers are not copied.\n\
    Example: polymeter store copy sqlite:/var/lib/polymeter/store.db postgres://polymeter@/polymeter"
)]
pub(crate) struct CopyArguments {
    /// The store to copy: sqlite:PATH or postgres://USER@HOST/DATABASE.
    from: StoreUrl,

    /// The store to copy it to: an empty database, or a file that does not exist.
    to: StoreUrl,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn execute(arguments: &CopyArguments) -> Result<(), Failure> {
    let shows_progress = !arguments.json && std::io::stderr().is_terminal();
    let clock = Clock::start();
    let begun = clock.now().since_start;
    let copied = copy(&arguments.from, &arguments.to, &mut |table, rows| {
        if shows_progress {
            terminal::print_error(&format!("\r{table}: {rows} rows\x1b[K"));
        }
    });
    if shows_progress {
        terminal::print_error("\r\x1b[K");
    }
    let Copied { tables, ledger_stored, target } =
        copied.map_err(|error| store_failure("cannot copy the store", &error))?;
    let seconds = clock.now().since_start.saturating_sub(begun).as_secs_f64();
    if arguments.json {
        let rows: Map<_, _> = tables.iter().map(|(table, rows)| ((*table).to_owned(), json!(rows))).collect();
        let answer = json!({
            "from": arguments.from.to_string(), "to": arguments.to.to_string(), "target": target,
            "rows": rows, "ledger_stored": ledger_stored, "seconds": seconds,
        });
        return terminal::print_json(&answer);
    }
    let of = |name: &str| tables.iter().find(|(table, _)| *table == name).map_or(0, |(_, rows)| *rows);
    let samples = of("samples");
    let all: u64 = tables.iter().map(|(_, rows)| rows).sum();
    let mut text = format!(
        "copied {} with {} in {seconds:.1} s: {}, as many as the source has in each table\n",
        units::counted(of("job"), "job"),
        units::counted(samples, "sample"),
        units::counted(all, "row"),
    );
    let difference = ledger_stored - i64::try_from(samples).unwrap_or(i64::MAX);
    text.push_str(&match difference {
        0 => "the ledger has the same number of stored samples\n".to_owned(),
        _ => format!(
            "the ledger has {ledger_stored} stored samples: as in the source, {difference} of them are not in the table, since retention or `polymeter store prune` removed them\n"
        ),
    });
    text.push_str("Next: name the new store in collector.toml, and start the collector\n");
    terminal::print(&text)
}
