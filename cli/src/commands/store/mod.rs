//! `polymeter store`: the size of a store, its growth, and what retention removes next.

mod confirm_clock;
mod copy;
mod import;
mod keep;
mod overview;
mod prune;

use clap::Subcommand;
use polymeter_store::Administration;

use self::confirm_clock::ConfirmClockArguments;
use self::copy::CopyArguments;
use self::import::ImportArguments;
use self::keep::KeepArguments;
use self::overview::Overview;
use self::prune::PruneArguments;
use crate::client::store_choice::StoreChoice;
use crate::failure::Failure;
use crate::output::terminal;
use crate::store_failure::cannot_read;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StoreArguments {
    #[command(subcommand)]
    command: Option<StoreCommand>,

    #[command(flatten)]
    store: StoreChoice,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Exempt a job from retention.
    Keep(KeepArguments),
    /// Remove now what retention does not keep, as the collector does every ten minutes.
    Prune(PruneArguments),
    /// Confirm that the clock of the store is right, after it jumped or no collector ran for long: old rows
    /// are removed by it again.
    ConfirmClock(ConfirmClockArguments),
    /// Store the samples of files that polymeter export wrote as Parquet, each sample once.
    Import(ImportArguments),
    /// Copy a whole store into an empty one, such as a file into PostgreSQL. Stop the collector first.
    Copy(CopyArguments),
}

pub(crate) fn execute(arguments: &StoreArguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(StoreCommand::Keep(arguments)) => return keep::execute(arguments),
        Some(StoreCommand::Prune(arguments)) => return prune::execute(arguments),
        Some(StoreCommand::Import(arguments)) => return import::execute(arguments),
        Some(StoreCommand::Copy(arguments)) => return copy::execute(arguments),
        Some(StoreCommand::ConfirmClock(arguments)) => return confirm_clock::execute(arguments),
        None => {}
    }
    let url = arguments.store.resolve()?;
    let mut store = Administration::open(&url).map_err(cannot_read)?;
    let overview = Overview::gather(&mut store, &url).map_err(cannot_read)?;
    if arguments.json {
        return terminal::print_json(&overview);
    }
    terminal::print(&overview.text(terminal::width_limit(&std::io::stdout())))
}
