//! How jobs ended, as the scheduler's controller knows it: `{"verb": "state", "job": "42", "state": "TIMEOUT"}`. An epilog on
//! a node is not told. A writer stores it: the agents have let the job go by then.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::Identifier;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::answer::Refusal;
use crate::limits;
use polymeter_store::accepted::JobOutcome;

/// What is asked.
#[derive(Debug, Deserialize)]
struct Verb {
    verb: Option<serde_json::Value>,
}

/// The request's fields, as they are written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(rename = "verb")]
    _verb: String,
    job: Identifier,
    cluster: Option<Identifier>,
    state: Identifier,
    exit_code: Option<u32>,
    exit_signal: Option<u32>,
}

/// The outcome that a line tells; none where it is another request.
pub(super) fn parse(line: &[u8]) -> Option<Result<JobOutcome, Refusal>> {
    let verb: Verb = serde_json::from_slice(line).ok()?;
    if verb.verb? != "state" {
        return None;
    }
    let parsed = serde_json::from_slice(line)
        .map_err(|error| Refusal::new("invalid", None, &format!("cannot read the state of a job: {error}")));
    Some(parsed.map(|fields: Fields| {
        let Fields { job, cluster, state, exit_code, exit_signal, .. } = fields;
        let facts = JobFacts { state: Some(state), exit_code, exit_signal, ..JobFacts::default() };
        JobOutcome { job_id: job, cluster, facts }
    }))
}

/// An outcome on its way to the store.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) outcome: JobOutcome,
    /// Hears whether the store knows the job.
    pub(crate) reply: oneshot::Sender<bool>,
}

/// Control's end of the queue to the writer.
pub(crate) type OutcomeSender = SyncSender<Told>;

/// The queue of outcomes, from control to one writer.
pub(crate) fn queue() -> (OutcomeSender, Receiver<Told>) {
    sync_channel(limits::OUTCOMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_a_job_and_a_state() {
        let line = br#"{"verb":"state","job":"42","cluster":"lab","state":"TIMEOUT","exit_code":0,"exit_signal":15}"#;
        let outcome = parse(line).unwrap().unwrap();
        assert_eq!((outcome.job_id.as_str(), outcome.cluster.unwrap().as_str()), ("42", "lab"));
        assert_eq!(outcome.facts.state.unwrap().as_str(), "TIMEOUT");
        assert_eq!((outcome.facts.exit_code, outcome.facts.exit_signal), (Some(0), Some(15)));
    }

    #[test]
    fn what_is_none_is_refused_and_other_requests_are_left_alone() {
        for line in [&b"hello"[..], b"{}", br#"{"verb":7}"#, br#"{"verb":"set","job":"42"}"#] {
            assert!(parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
        for line in [
            &br#"{"verb":"state"}"#[..],
            br#"{"verb":"state","job":"42"}"#,
            br#"{"verb":"state","job":"","state":"FAILED"}"#,
            br#"{"verb":"state","job":"42","state":"\u202e"}"#,
            br#"{"verb":"state","job":"42","state":"FAILED","exit_code":-1}"#,
            br#"{"verb":"state","job":"42","state":"FAILED","exitcode":1}"#,
        ] {
            let refusal = parse(line).unwrap().unwrap_err();
            assert_eq!(refusal.code, "invalid", "{}", String::from_utf8_lossy(line));
        }
    }
}
