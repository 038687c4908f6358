//! `polymeter completions`: a completion script for a shell. The script asks this program for the candidates,
//! since ids of jobs change.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::failure::Failure;
use crate::output::terminal;

/// Variable with which a script asks for candidates; its value is the name of the shell.
const VARIABLE: &str = "_POLYMETER_COMPLETE";

const PROGRAM: &str = "polymeter";

/// Joins the words that bash splits at = and :, which the script of clap does not.
const BASH: &str = include_str!("polymeter.bash");

#[derive(Debug, clap::Args)]
pub struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// End of the script for zsh. From a directory of `fpath`, zsh loads the script as the function `_polymeter`
/// when something is completed for the first time, and expects candidates from that call.
const ZSH_AUTOLOAD: &str =
    "\n[ \"$funcstack[1]\" = _polymeter ] && _clap_dynamic_completer_polymeter \"$@\"\n";

pub(crate) fn execute(arguments: &CompletionsArguments) -> Result<(), Failure> {
    if arguments.shell == Shell::Bash {
        return terminal::print_raw(BASH.as_bytes());
    }
    let name = arguments.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells
        .completer(&name)
        .ok_or_else(|| Failure::Failed(format!("cannot print the script: no completion for {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .map_err(|error| Failure::because("cannot print the script", &error))?;
    if arguments.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_AUTOLOAD.as_bytes());
    }
    terminal::print_raw(&script)
}

/// Prints the candidates that a script asks for; false if none does.
pub(crate) fn answer(command: fn() -> Command) -> bool {
    let directory = std::env::current_dir().ok();
    let complete = CompleteEnv::with_factory(command).var(VARIABLE);
    // A shell shows nothing instead of a failure.
    complete.try_complete(std::env::args_os(), directory.as_deref().map(Path::new)).unwrap_or(true)
}
