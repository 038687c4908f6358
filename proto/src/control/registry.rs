//! The registry of verbs: the enumerations of all requests and answers, which follow from
//! [`for_each_verb!`](crate::for_each_verb).

use serde::{Deserialize, Serialize};

use super::fields::{self, Fields};
use super::refusal::Refusal;
use super::verb::{Verb, VerbInfo};

macro_rules! declare {
    ($($module:ident: $variant:ident($request:ident) $(=> $($answer:ident($body:ident)),+)?;)*) => {
        $(pub use super::verbs::$module::*;)*

        /// A request to an agent: `{"verb": "status"}`.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "verb", rename_all = "snake_case")]
        pub enum Request {
            $(#[doc = concat!("The verb `", stringify!($module), "`.")] $variant($request),)*
        }

        /// All verbs.
        pub const VERBS: &[VerbInfo] = &[$(VerbInfo::of::<$request>()),*];

        impl Request {
            /// Parses one line.
            ///
            /// # Errors
            /// When it is not a request; the refusal names the field at fault.
            pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
                let mut fields = Fields::parse(line)?;
                let verb = fields.take_verb()?;
                match verb.as_str() {
                    $(<$request as Verb>::NAME => fields.into_request().map(Self::$variant),)*
                    _ => Err(fields::unknown_verb(&verb, VERBS.iter().map(|verb| verb.name))),
                }
            }

            /// The properties of the request's verb.
            pub const fn info(&self) -> VerbInfo {
                match self {
                    $(Self::$variant(_) => VerbInfo::of::<$request>(),)*
                }
            }
        }

        /// An answer of an agent: `{"answer": "done"}`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "answer", rename_all = "snake_case")]
        pub enum Answer {
            $($($(#[doc = concat!("An answer to `", stringify!($module), "`.")] $answer($body),)+)?)*
            /// The request was executed, and there is nothing else to report.
            Done {},
            /// The request is not granted.
            Refused(Refusal),
        }
    };
}

crate::for_each_verb!(declare);

impl Answer {
    /// The answer as one line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|_| {
            b"{\"answer\":\"refused\",\"code\":\"internal\",\"message\":\"the answer cannot be written\"}"
                .to_vec()
        });
        line.push(b'\n');
        line
    }
}

/// The table of all verbs in `docs/reference/control.md`.
pub fn verb_table() -> String {
    let mut table = "| verb | effect | who may use it | through the collector | example |\n".to_owned();
    table.push_str("| --- | --- | --- | --- | --- |\n");
    for VerbInfo { name, help, access, remote, example } in VERBS {
        let (access, remote) = (access.as_str(), remote.as_str());
        table.push_str(&format!("| `{name}` | {help} | {access} | {remote} | `{example}` |\n"));
    }
    table
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
