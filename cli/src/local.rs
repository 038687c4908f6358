//! Additions of this program to the commands of the client.

use clap::CommandFactory;
use polymeter_agent::arguments::AgentArguments;
use polymeter_client::local::Local;
use polymeter_collector::config::CollectorArguments;

use crate::client::{job_completion, stored_firings};
use crate::commands::{watch, watch_functions};
use crate::version::libraries;

pub(crate) static LOCAL: Local = Local {
    version: libraries,
    daemons,
    running_jobs: job_completion::running,
    watch_nodes: watch::watch,
    stored_firings: stored_firings::find,
    watch_functions: watch_functions::watch,
};

fn daemons() -> Vec<clap::Command> {
    vec![AgentArguments::command(), CollectorArguments::command()]
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use polymeter_client::commands::{SUPPLEMENTS, USER_COMMANDS, page, with_subcommands};
    use polymeter_client::program;

    use super::*;
    use crate::commands;

    /// Splits as a shell does, without variables.
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

    fn commands() -> Vec<(String, Command)> {
        let commands = with_subcommands(program::definition::<commands::Command>());
        commands
            .into_iter()
            .chain(daemons())
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
