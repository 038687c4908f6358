//! `polymeter completions` and `man`: what shells and `man` want to know of the commands, from their definitions.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::terminal;

/// The sections of commands for everybody, and of daemons.
const EVERYBODY: &str = "1";
const DAEMONS: &str = "8";

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// For which shell.
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// Write a page of each command, also of polymeter-agent and polymeter-collector, into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// Prints what completes `command`.
pub(crate) fn completions(arguments: &CompletionsArguments, command: &mut Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, command, "polymeter", &mut script);
    terminal::print_raw(&script)
}

/// Prints the page of `command`, or writes all pages.
pub(crate) fn man(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    let everybody = with_subcommands(command).into_iter().map(|command| (command, EVERYBODY));
    let Some(directory) = &arguments.out else {
        for (command, section) in everybody.take(1) {
            terminal::print_raw(page(command, section)?.1.as_bytes())?;
        }
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    let daemons =
        [polymeter_agent::arguments::Arguments::command(), polymeter_collector::config::Arguments::command()];
    for (command, section) in everybody.chain(daemons.map(|daemon| (daemon, DAEMONS))) {
        let (name, page) = page(command, section)?;
        let path = directory.join(name);
        fs::write(&path, page).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(&format!("cannot write {}", path.display()), error)
}

/// A command and those within it, each of which knows its whole name.
fn with_subcommands(command: Command) -> Vec<Command> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let within: Vec<Command> = command.get_subcommands().cloned().collect();
    std::iter::once(command).chain(within).collect()
}

/// A page, and the name of its file.
fn page(command: Command, section: &str) -> Result<(String, String), Failure> {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
    let man = Man::new(command).section(section).source(format!("Polymeter {version}")).manual("Polymeter");
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::refused("cannot write the page", &error))?;
    Ok((man.get_filename(), String::from_utf8_lossy(&page).into_owned()))
}
