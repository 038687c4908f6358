//! The commands that a build without the feature `local` does not contain. They report where to find them.

use std::ffi::OsString;

use clap::Subcommand;

use crate::failure::{ErrorFormat, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum LeftOutCommand {
    #[command(hide = true, disable_help_flag = true)]
    Run(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Report(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Bundle(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Export(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Compare(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Keygen(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Store(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Keep(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Setup(IgnoredArguments),
    #[command(hide = true, disable_help_flag = true)]
    Doctor(IgnoredArguments),
}

/// The arguments of a command that this build does not contain.
#[derive(Debug, clap::Args)]
pub(crate) struct IgnoredArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl LeftOutCommand {
    /// The format in which the failure is reported.
    pub(crate) fn error_format(&self) -> ErrorFormat {
        let has_json = |IgnoredArguments { arguments }: &IgnoredArguments| {
            arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
        };
        match self {
            Self::Run(arguments) if has_json(arguments) => ErrorFormat::JsonOnStderr,
            Self::Run(_) | Self::Setup(_) => ErrorFormat::Text,
            Self::Report(arguments)
            | Self::Bundle(arguments)
            | Self::Export(arguments)
            | Self::Compare(arguments)
            | Self::Keygen(arguments)
            | Self::Store(arguments)
            | Self::Keep(arguments)
            | Self::Doctor(arguments) => ErrorFormat::of(has_json(arguments)),
        }
    }

    /// The failure of the command.
    pub(crate) fn failure(&self) -> Failure {
        let (command, cause) = match self {
            Self::Run(_) => ("run the command", "this build contains no agent and no collector"),
            Self::Report(_) => ("report", "this build has no store access"),
            Self::Bundle(_) => ("make or verify a bundle", "this build has no store access"),
            Self::Export(_) => ("export the job", "this build has no store access"),
            Self::Compare(_) => ("compare the jobs", "this build has no store access"),
            Self::Store(_) => ("examine the store", "this build has no store access"),
            Self::Keep(_) => ("keep the job", "this build has no store access"),
            Self::Setup(_) => ("set up this machine", "this build contains no agent and no collector"),
            Self::Doctor(_) => ("examine this machine", "this build contains no agent and no collector"),
            Self::Keygen(_) => ("create keys", "this build contains no libzmq"),
        };
        Failure::Failed(format!("cannot {command}: {cause}; use the full build of polymeter"))
    }
}
