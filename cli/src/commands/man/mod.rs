//! `polymeter man`: manual pages, made from the definitions of the commands and from supplements.

mod roff;
mod supplements;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::output::terminal;
use supplements::SUPPLEMENTS;

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
    let mut commands = vec![command];
    let mut visited = 0;
    while let Some(command) = commands.get(visited) {
        let is_shown = |subcommand: &&Command| !subcommand.is_hide_set() && subcommand.get_name() != "help";
        let subcommands: Vec<Command> = command.get_subcommands().filter(is_shown).cloned().collect();
        commands.extend(subcommands);
        visited += 1;
    }
    commands
}

/// Returns the name and the text of a page.
fn page(command: Command, section: &str) -> Result<(String, String), Failure> {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
    // The name of a subcommand has hyphens here, as that of its page.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let has_name = |supplement: &&supplements::Supplement| {
        supplement.command == name || supplement.command.replace(' ', "-") == name
    };
    let sections = roff::sections(SUPPLEMENTS.iter().find(has_name));
    let man = Man::new(command).section(section).source(format!("Polymeter {version}")).manual("Polymeter");
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::because("cannot write the manual page", &error))?;
    page.extend_from_slice(sections.as_bytes());
    Ok((man.get_filename(), String::from_utf8_lossy(&page).into_owned()))
}

#[cfg(all(test, feature = "local"))]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::CommandLine;

    /// Splits a command line as a shell does, without variables.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
                _ => word.push(letter),
            }
        }
        words.push(word);
        words
    }

    /// All commands with their full names.
    fn commands() -> Vec<(String, Command)> {
        let commands = with_subcommands(CommandLine::command());
        let commands = commands.into_iter().chain(daemons().map(|(command, _)| command));
        commands
            .map(|command| {
                let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
                (name, command)
            })
            .collect()
    }

    #[test]
    fn every_command_has_a_supplement_with_examples() {
        let names: Vec<String> = commands().into_iter().map(|(name, _)| name).collect();
        let supplements: Vec<&str> = SUPPLEMENTS.iter().map(|supplement| supplement.command).collect();
        assert_eq!(names.len(), supplements.len(), "{names:?}");
        for name in names {
            let supplement = SUPPLEMENTS.iter().find(|supplement| supplement.command == name);
            let supplement = supplement.unwrap_or_else(|| panic!("{name} has no supplement"));
            assert!(!supplement.examples.is_empty() && !supplement.exit_status.is_empty(), "{name}");
        }
    }

    #[test]
    fn examples_are_valid_command_lines_of_their_programs() {
        for supplement in SUPPLEMENTS {
            for (line, _) in supplement.examples {
                let words = words(line);
                let program = commands().into_iter().find(|(name, _)| *name == words[0]).unwrap().1;
                let parsed = program.try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(line.starts_with(supplement.command) || supplement.command == "polymeter", "{line}");
            }
        }
    }

    #[test]
    fn pages_have_the_sections_of_their_supplements() {
        for (name, command) in commands() {
            let (_, page) = page(command, USER_COMMANDS).unwrap();
            for title in ["NAME", "SYNOPSIS", "EXIT STATUS", "EXAMPLES"] {
                assert!(
                    page.contains(&format!(".SH {title}\n")) || page.contains(&format!(".SH \"{title}\"\n")),
                    "{name} has no {title}"
                );
            }
        }
    }
}
