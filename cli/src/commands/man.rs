//! `polymeter man`: manual pages, made from the definitions of the commands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::output::terminal;

/// The manual's section of user commands.
const USER_COMMANDS: &str = "1";

/// The manual's section of daemons.
#[cfg(feature = "local")]
const DAEMONS: &str = "8";

#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// Write a page for each command into this directory; the full build also writes those of polymeter-agent and
    /// polymeter-collector.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// Prints the page of `command`, or writes all pages.
pub(crate) fn execute(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    let commands = with_subcommands(command).into_iter().map(|command| (command, USER_COMMANDS));
    let Some(directory) = &arguments.out else {
        for (command, section) in commands.take(1) {
            terminal::print_raw(page(command, section)?.1.as_bytes())?;
        }
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    for (command, section) in commands.chain(daemons()) {
        let (name, page) = page(command, section)?;
        let path = directory.join(name);
        fs::write(&path, page).map_err(|error| cannot_write(&path, &error))?;
    }
    Ok(())
}

/// The commands of the daemons, which the full build contains.
#[cfg(feature = "local")]
fn daemons() -> impl Iterator<Item = (Command, &'static str)> {
    use clap::CommandFactory;
    let daemons = [
        polymeter_agent::arguments::AgentArguments::command(),
        polymeter_collector::config::CollectorArguments::command(),
    ];
    daemons.into_iter().map(|daemon| (daemon, DAEMONS))
}

#[cfg(not(feature = "local"))]
fn daemons() -> impl Iterator<Item = (Command, &'static str)> {
    std::iter::empty()
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::because(&format!("cannot write {}", path.display()), error)
}

/// Returns a command and its subcommands with their full names.
fn with_subcommands(command: Command) -> Vec<Command> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<Command> =
        command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned().collect();
    std::iter::once(command).chain(subcommands).collect()
}

/// Returns the name and the text of a page.
fn page(command: Command, section: &str) -> Result<(String, String), Failure> {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
    let man = Man::new(command).section(section).source(format!("Polymeter {version}")).manual("Polymeter");
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::because("cannot write the manual page", &error))?;
    Ok((man.get_filename(), String::from_utf8_lossy(&page).into_owned()))
}
