//! Control language: requests and answers as lines of JSON, shared by the agent's control socket, the
//! collector and the `polymeter` command. No I/O.
//!
//! Each file of `verbs/` declares one verb: its name, its fields, its answers, the principals that may use
//! it, and its treatment when it arrives through the collector. [`for_each_verb!`](crate::for_each_verb)
//! lists them all.

mod collector;
mod fields;
mod reading;
mod refusal;
mod registry;
mod tokens;
mod verb;
mod verbs;

pub use self::collector::{
    CollectorAnswer, Greeting, JobAnswer, NodeAnswer, NoticeChoice, NoticeChoices, NoticesRequest,
    RoutedRequest, StateRequest, TRIGGER_NOTICES, signed_request,
};
pub use self::fields::{
    PlanFields, RING_PREFIX, duration_us, identifier, invalid, optional_identifier, selectors,
};
pub use self::reading::{ReadAccess, ReadRequest, ReadSession};
pub use self::refusal::{PredictedCost, Refusal, UnavailableGroup};
pub use self::registry::*;
pub use self::tokens::{
    CreateTokenRequest, ListTokensRequest, RevokeTokensRequest, Scope, TokenInfo, TokenList, TokenRequest,
};
pub use self::verb::{Access, Remote, Verb, VerbInfo};
