//! Why a command did not do what was asked, and which exit status that is.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use polymeter_agent::log::chain;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked is refused, or failed: exit status 1.
    Refused(String),
    /// What was typed makes no sense: exit status 2, as clap's own.
    Usage(String),
    /// Whom it was asked of cannot be reached: exit status 3.
    Unreachable(String),
    /// There is nobody to ask: exit status 3, too.
    Nobody(String),
    /// The command to be run cannot be: 127 where it was not found, 126 otherwise, as of a shell.
    NotRun {
        /// What is wrong.
        message: String,
        /// Whether there is no such program.
        not_found: bool,
    },
}

impl Failure {
    /// A failure with everything that caused it.
    pub(crate) fn refused(doing: &str, error: &(dyn Error + 'static)) -> Self {
        Self::Refused(format!("{doing}: {}", chain(error)))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) | Self::Nobody(_) => 3,
            Self::NotRun { not_found: true, .. } => 127,
            Self::NotRun { not_found: false, .. } => 126,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(message)
            | Self::Usage(message)
            | Self::Unreachable(message)
            | Self::Nobody(message)
            | Self::NotRun { message, .. } => f.write_str(message),
        }
    }
}

impl Error for Failure {}
