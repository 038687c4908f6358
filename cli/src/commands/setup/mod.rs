//! `polymeter setup`: configures a collector, a node or a login node. It shows a plan of actions, asks, and
//! executes them. A second run finds nothing to do.

mod actions;
mod collector_plan;
mod common;
mod create_database;
mod file;
mod login;
mod node;

use std::io::{BufRead, IsTerminal, Write};

use clap::Subcommand;

use self::actions::Step;
use self::collector_plan::CollectorOptions;
use self::login::LoginOptions;
use self::node::NodeOptions;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "Files that were changed by hand are left as they are; the differences are listed.\n\
    Exit status: 0 done or nothing to do, 1 something failed or was left as it is, 2 wrong usage.")]
pub(crate) struct SetupArguments {
    #[command(subcommand)]
    role: SetupRole,
}

#[derive(Debug, Subcommand)]
enum SetupRole {
    /// Set up the collector: configuration, keys, store.
    Collector(CollectorOptions),
    /// Set up a node: configuration and keys of the agent.
    Node(NodeOptions),
    /// Set up a login node: the address of the collector.
    Login(LoginOptions),
}

pub(crate) fn execute(arguments: &SetupArguments) -> Result<(), Failure> {
    let (plan, common) = match &arguments.role {
        SetupRole::Collector(options) => (collector_plan::plan(options)?, &options.common),
        SetupRole::Node(options) => (node::plan(options)?, &options.common),
        SetupRole::Login(options) => (login::plan(options)?, &options.common),
    };
    terminal::print(&plan.text())?;
    if !common.dry_run && plan.has_changes() {
        if !common.yes && !is_confirmed()? {
            return Err(Failure::Failed("nothing was changed: the plan was not confirmed".to_owned()));
        }
        plan.steps.iter().filter(|step| !step.is_done).try_for_each(Step::execute)?;
        terminal::print("done\n")?;
    }
    terminal::print(&plan.closing_text())?;
    match plan.differences.len() {
        0 => Ok(()),
        files => Err(Failure::Failed(format!(
            "cannot complete the setup: {} from what this command would write; edit what is listed above, or \
             move it away and repeat",
            if files == 1 { "a file differs".to_owned() } else { format!("{files} files differ") }
        ))),
    }
}

fn is_confirmed() -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::Usage(
            "cannot ask for confirmation: there is no terminal; use --yes or --dry-run".to_owned(),
        ));
    }
    let failed = |error| Failure::because("cannot ask for confirmation", &error);
    let mut stdout = std::io::stdout();
    stdout.write_all(b"Continue? [y/N] ").and_then(|()| stdout.flush()).map_err(failed)?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
