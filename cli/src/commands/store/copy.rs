//! `polymeter store copy`: copies a store into an empty one.

use std::io::IsTerminal;

use polymeter_service::clock::Clock;
use polymeter_store::{Copied, StoreUrl, copy};
use serde_json::{Map, json};

use crate::failure::Failure;
use crate::output::layout::wrapped_lines;
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
    let Copied { tables, ledger_stored, in_call_stacks, target } =
        copied.map_err(|error| store_failure("cannot copy the store", &error))?;
    let seconds = clock.now().since_start.saturating_sub(begun).as_secs_f64();
    if arguments.json {
        let rows: Map<_, _> = tables.iter().map(|(table, rows)| ((*table).to_owned(), json!(rows))).collect();
        let answer = json!({
            "from": arguments.from.to_string(), "to": arguments.to.to_string(), "target": target,
            "rows": rows, "ledger_stored": ledger_stored, "in_call_stacks": in_call_stacks, "seconds": seconds,
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
    let [in_table, in_rings] =
        [samples, of("kept_sample")].map(|rows| i64::try_from(rows).unwrap_or(i64::MAX));
    text.push_str(&of_ledger(ledger_stored, in_table, in_call_stacks, in_rings));
    text.push_str("Next: name the new store in collector.toml, and start the collector\n");
    terminal::print(&wrapped_lines(&text, terminal::width_limit(&std::io::stdout())))
}

/// Says where the samples are that are stored by the ledger.
fn of_ledger(stored: i64, in_table: i64, in_call_stacks: i64, in_rings: i64) -> String {
    let removed = stored.saturating_sub(in_table).saturating_sub(in_call_stacks).saturating_sub(in_rings);
    let mut text =
        format!("the ledger has {stored} stored samples, as in the source: {in_table} in the table");
    if in_call_stacks > 0 {
        text.push_str(&format!(", {in_call_stacks} in call stacks"));
    }
    if in_rings > 0 {
        text.push_str(&format!(", {in_rings} that rings kept"));
    }
    match removed {
        0 => {}
        1.. => text.push_str(&format!(", {removed} that retention or `polymeter store prune` removed")),
        _ => text.push_str(&format!(", {} of them written by other means", removed.saturating_neg())),
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stored_sample_of_the_ledger_is_accounted_for() {
        for (stored, in_table, in_call_stacks, in_rings, expected) in [
            (5, 5, 0, 0, "5 in the table"),
            (28_215, 27_748, 467, 0, "27748 in the table, 467 in call stacks"),
            (15, 5, 0, 10, "5 in the table, 10 that rings kept"),
            (
                9,
                2,
                3,
                0,
                "2 in the table, 3 in call stacks, 4 that retention or `polymeter store prune` removed",
            ),
            (5, 7, 0, 0, "7 in the table, 2 of them written by other means"),
        ] {
            assert_eq!(
                of_ledger(stored, in_table, in_call_stacks, in_rings),
                format!("the ledger has {stored} stored samples, as in the source: {expected}\n")
            );
        }
    }
}
