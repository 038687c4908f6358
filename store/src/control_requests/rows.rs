//! Rows of the tables.

use polymeter_proto::series::SessionId;

use crate::row::from_row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRequest {
    pub collector_id: String,
    pub job_id: String,
    /// Numeric id of the user, as the collector authenticated it.
    pub uid: u32,
    /// Request in the form of the control socket.
    pub line: String,
    /// True if agents that connect later receive it.
    pub is_lasting: bool,
    /// Common time at which it takes effect, in microseconds since the epoch.
    pub at_us: i64,
    /// Time after which it has no effect, in microseconds since the epoch.
    pub expires_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewControlRequest {
    /// Name that the collector gave the request. A request whose name is stored already is not stored again.
    pub request_id: String,
    pub request: ControlRequest,
    /// Sessions that other collectors shall ask.
    pub wanted: Vec<AnsweringSession>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredControlRequest {
    /// Later requests have greater numbers.
    pub number: i64,
    pub request: ControlRequest,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Replaced {
    pub numbers: Vec<i64>,
    /// Time until which the new request is kept because of them, in microseconds since the epoch.
    pub until_us: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub number: i64,
    /// Time at which it takes effect, in microseconds since the epoch: after all earlier requests of the job.
    pub at_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweringSession {
    pub session: SessionId,
    pub node: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRow {
    pub session: SessionId,
    pub node: String,
    /// None if no user waits for it.
    pub answer: Option<String>,
    /// True if the session need not receive the request again.
    pub is_final: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorRow {
    pub collector_id: String,
    pub host: String,
    pub version: String,
}

/// Node on which a job runs, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredJobNode {
    pub node: String,
    pub session: SessionId,
    pub owner_uid: Option<u32>,
    pub collector_id: Option<String>,
    pub is_served: bool,
}

from_row!(ControlRequest { collector_id, job_id, uid, line, is_lasting, at_us: TimeUs, expires_us: TimeUs });

from_row!(StoredControlRequest { number, request });

from_row!(Taken { number, at_us: TimeUs });

from_row!(AnswerRow { session, node, answer, is_final });

from_row!(StoredJobNode { node, session, owner_uid, collector_id, is_served });
