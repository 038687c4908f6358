//! `polymeter completions`: a completion script for a shell.

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Prints the completion script for `command`.
pub(crate) fn execute(arguments: &CompletionsArguments, command: &mut Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, command, "polymeter", &mut script);
    terminal::print_raw(&script)
}
