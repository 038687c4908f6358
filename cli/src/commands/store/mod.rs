//! `polymeter store`: the size of a store, its growth, and what retention removes next.

mod import;
mod overview;
mod prune;

use clap::Subcommand;
use polymeter_store::{Administration, StoreUrl};

use self::import::ImportArguments;
use self::overview::Overview;
use self::prune::PruneArguments;
use crate::failure::Failure;
use crate::output::terminal;
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StoreArguments {
    #[command(subcommand)]
    command: Option<StoreCommand>,

    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE", default_value = "sqlite:polymeter.db")]
    store: StoreUrl,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Remove now what retention does not keep, as the collector does every ten minutes.
    Prune(PruneArguments),
    /// Store the samples of files that polymeter export wrote as Parquet, each sample once.
    Import(ImportArguments),
}

pub(crate) fn execute(arguments: &StoreArguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(StoreCommand::Prune(arguments)) => return prune::execute(arguments),
        Some(StoreCommand::Import(arguments)) => return import::execute(arguments),
        None => {}
    }
    let failed = |error| store_failure("cannot read the store", &error);
    let mut store = Administration::open(&arguments.store).map_err(failed)?;
    let overview = Overview::gather(&mut store, &arguments.store).map_err(failed)?;
    if arguments.json {
        return terminal::print_json(&overview);
    }
    terminal::print(&overview.text(terminal::width_limit(&std::io::stdout())))
}
