//! Requests about the triggers of a job, and their results.

use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::Rule;

use super::access::AccessError;
use crate::principal::Principal;
use crate::triggers::{AddError, Listed};

#[derive(Debug, Clone)]
pub struct TriggerSpec {
    pub principal: Principal,
    pub job_id: Identifier,
    pub rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Add(#[from] AddError),
    #[error("no trigger `{0}` was added to the job; `polymeter trigger list` shows them")]
    Unknown(Identifier),
}

#[derive(Debug, Clone)]
pub struct TriggersView {
    pub triggers: Vec<Listed>,
    pub fired: Vec<Firing>,
}
