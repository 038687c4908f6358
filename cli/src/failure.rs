//! Why a command did not do what was asked, which exit status that is, and how it is told.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use polymeter_agent::log::chain;
use polymeter_proto::control::{Answer, Refusal};

use crate::terminal;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked is refused, or failed: exit status 1.
    Refused(String),
    /// An agent or the collector refuses it: exit status 1.
    Answered(Box<Refusal>),
    /// It was done in part, and what became of each part was printed: exit status 1.
    Partly(String),
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

/// How a failure is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As text on stderr.
    Text,
    /// As text on stderr, and for programs on stdout in JSON, like any other answer.
    Json,
    /// In JSON on stderr alone, because stdout belongs to another.
    JsonOnStderr,
}

impl Form {
    /// The form for a command that was given `--json` or not.
    pub(crate) const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl Failure {
    /// A failure with everything that caused it.
    pub(crate) fn refused(doing: &str, error: &(dyn Error + 'static)) -> Self {
        Self::Refused(format!("{doing}: {}", chain(error)))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused(_) | Self::Answered(_) | Self::Partly(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) | Self::Nobody(_) => 3,
            Self::NotRun { not_found: true, .. } => 127,
            Self::NotRun { not_found: false, .. } => 126,
        })
    }

    /// Prints it: the one place where a command tells that it failed.
    pub(crate) fn print(&self, form: Form) {
        let json = self.json().filter(|_| form != Form::Text);
        match (form, &json) {
            (Form::JsonOnStderr, Some(json)) => return terminal::complain_json(json),
            // Where stdout cannot be written that may be the very failure, which stderr tells.
            (Form::Json, Some(json)) => drop(terminal::print_json(json)),
            (Form::Text | Form::Json | Form::JsonOnStderr, _) => {}
        }
        terminal::complain(&format!("polymeter: {self}\n"));
    }

    /// What a program is told, on one line; none where it was told already.
    fn json(&self) -> Option<String> {
        let refusal = match self {
            Self::Answered(refusal) => Refusal::clone(refusal),
            Self::Partly(_) => return None,
            Self::Refused(message) => own("failed", message),
            Self::Usage(message) => own("usage", message),
            Self::Unreachable(message) | Self::Nobody(message) => own("unreachable", message),
            Self::NotRun { message, .. } => own("not_run", message),
        };
        serde_json::to_string(&Answer::Refused(refusal)).map(|line| line + "\n").ok()
    }
}

/// A refusal of this command's own, on one line.
fn own(code: &str, message: &str) -> Refusal {
    Refusal::new(code, None, &message.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(refusal) => match &refusal.field {
                // Such a message goes on from the field: "it is blank".
                Some(field) if refusal.message.as_str().starts_with("it ") => {
                    write!(f, "invalid {field}: {}", refusal.message)
                }
                _ => refusal.message.fmt(f),
            },
            Self::Refused(message)
            | Self::Partly(message)
            | Self::Usage(message)
            | Self::Unreachable(message)
            | Self::Nobody(message)
            | Self::NotRun { message, .. } => f.write_str(message),
        }
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_in_the_form_of_an_answer() {
        let json = Failure::Unreachable("cannot ask".to_owned()).json().unwrap();
        assert_eq!(json, "{\"answer\":\"refused\",\"code\":\"unreachable\",\"message\":\"cannot ask\"}\n");
        let refusal = Refusal { instead: Some("1s".to_owned()), ..own("shortest_period", "no") };
        let json = Failure::Answered(Box::new(refusal)).json().unwrap();
        assert!(
            json.contains("\"code\":\"shortest_period\"") && json.contains("\"instead\":\"1s\""),
            "{json}"
        );
        assert_eq!(Failure::Partly("succeeded on 1 of 2 nodes".to_owned()).json(), None);
    }
}
