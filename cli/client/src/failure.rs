//! Reason for which a command failed, and its exit status.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use polymeter_proto::control::{Answer, Refusal};
use polymeter_service::log::chain;

/// A message has the form `cannot VERB OBJECT: CAUSE; REMEDY`.
#[derive(Debug)]
pub enum Failure {
    /// Exit status 1.
    Failed(String),
    /// An agent or the collector refused the request: exit status 1.
    Refused(Box<Refusal>),
    /// Some nodes failed, and the result of each was printed: exit status 1.
    Partial(String),
    /// Exit status 2, as for clap's own errors.
    Usage(String),
    /// The agent or the collector does not answer: exit status 3.
    Unreachable(String),
    /// No agent runs there, or no collector is configured: exit status 3.
    NotRunning(String),
    /// The command of `polymeter run` did not start: exit status 127 if its program was not found, else 126,
    /// as in a shell.
    NotStarted { message: String, not_found: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorFormat {
    Text,
    /// Text on stderr, and JSON on stdout like any other answer.
    Json,
    /// JSON on stderr only, because stdout belongs to another program.
    JsonOnStderr,
}

impl ErrorFormat {
    /// `is_run`: the command is `run`.
    #[must_use]
    pub const fn of(json: bool, is_run: bool) -> Self {
        match (json, is_run) {
            (false, _) => Self::Text,
            (true, false) => Self::Json,
            (true, true) => Self::JsonOnStderr,
        }
    }
}

impl Failure {
    pub fn because(action: &str, error: &(dyn Error + 'static)) -> Self {
        Self::Failed(format!("{action}: {}", chain(error)))
    }

    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) | Self::Refused(_) | Self::Partial(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) | Self::NotRunning(_) => 3,
            Self::NotStarted { not_found: true, .. } => 127,
            Self::NotStarted { not_found: false, .. } => 126,
        })
    }

    /// One line; none if the answer was already printed.
    pub fn json(&self) -> Option<String> {
        let refusal = match self {
            Self::Refused(refusal) => Refusal::clone(refusal),
            Self::Partial(_) => return None,
            Self::Failed(message) => local_refusal("failed", message),
            Self::Usage(message) => local_refusal("usage", message),
            Self::Unreachable(message) | Self::NotRunning(message) => local_refusal("unreachable", message),
            Self::NotStarted { message, .. } => local_refusal("not_started", message),
        };
        serde_json::to_string(&Answer::Refused(refusal)).map(|line| line + "\n").ok()
    }
}

/// A failure of this program in the form of an agent's refusal, on one line.
fn local_refusal(code: &str, message: &str) -> Refusal {
    Refusal::new(code, None, &message.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => match &refusal.field {
                // Such a message continues the name of the field: "it is blank".
                Some(field) if refusal.message.as_str().starts_with("it ") => {
                    write!(f, "invalid {field}: {}", refusal.message)
                }
                _ => refusal.message.fmt(f),
            },
            Self::Failed(message)
            | Self::Partial(message)
            | Self::Usage(message)
            | Self::Unreachable(message)
            | Self::NotRunning(message)
            | Self::NotStarted { message, .. } => f.write_str(message),
        }
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_written_as_an_answer_in_json() {
        let json = Failure::Unreachable("cannot ask".to_owned()).json().unwrap();
        assert_eq!(json, "{\"answer\":\"refused\",\"code\":\"unreachable\",\"message\":\"cannot ask\"}\n");
        let refusal = Refusal { instead: Some("1s".to_owned()), ..local_refusal("shortest_period", "no") };
        let json = Failure::Refused(Box::new(refusal)).json().unwrap();
        assert!(
            json.contains("\"code\":\"shortest_period\"") && json.contains("\"instead\":\"1s\""),
            "{json}"
        );
        assert_eq!(Failure::Partial("succeeded on 1 of 2 nodes".to_owned()).json(), None);
    }
}
