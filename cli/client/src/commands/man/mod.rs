//! `polymeter man`: manual pages, made from the definitions of the commands and from supplements.

mod roff;
mod supplements;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use polymeter_service::own_file;

use crate::failure::Failure;
use crate::local::Program;
use crate::output::terminal;
pub use supplements::{SUPPLEMENTS, Supplement};

pub const USER_COMMANDS: &str = "1";

const DAEMONS: &str = "8";

#[derive(Debug, clap::Args)]
pub struct ManArguments {
    /// Write a page for each command into this directory; the full build also writes those of polymeter-agent
    /// and polymeter-collector.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &ManArguments, program: &Program) -> Result<(), Failure> {
    let commands =
        with_subcommands((program.definition)()).into_iter().map(|command| (command, USER_COMMANDS));
    let Some(directory) = &arguments.out else {
        for (command, section) in commands.take(1) {
            terminal::print_raw(page(command, section)?.1.as_bytes())?;
        }
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    let daemons = program.local.map(|local| (local.daemons)()).unwrap_or_default();
    for (command, section) in commands.chain(daemons.into_iter().map(|daemon| (daemon, DAEMONS))) {
        let (name, page) = page(command, section)?;
        let path = directory.join(name);
        let written = own_file::create(&path).and_then(|mut file| file.write_all(page.as_bytes()));
        written.map_err(|error| cannot_write(&path, &error))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::because(&format!("cannot write {}", path.display()), error)
}

/// Lists them with their full names.
#[must_use]
pub fn with_subcommands(command: Command) -> Vec<Command> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut commands = vec![command];
    let mut visited = 0;
    while let Some(command) = commands.get(visited) {
        let subcommands: Vec<Command> = command
            .get_subcommands()
            .filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
            .cloned()
            .collect();
        commands.extend(subcommands);
        visited += 1;
    }
    commands
}

pub fn page(command: Command, section: &str) -> Result<(String, String), Failure> {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
    // The name of a subcommand has hyphens here, as that of its page.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let has_name =
        |supplement: &&Supplement| supplement.command == name || supplement.command.replace(' ', "-") == name;
    let sections = roff::sections(SUPPLEMENTS.iter().find(has_name));
    let man = Man::new(command).section(section).source(format!("Polymeter {version}")).manual("Polymeter");
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::because("cannot write the manual page", &error))?;
    page.extend_from_slice(sections.as_bytes());
    Ok((man.get_filename(), String::from_utf8_lossy(&page).into_owned()))
}
