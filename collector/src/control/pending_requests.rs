//! Requests that disconnected agents must still receive while they have an effect. Pure: no I/O and no clock.
//!
//! Requests are idempotent: an agent that receives one twice grants the same lease again, with the same end.

use std::collections::HashSet;

use polymeter_proto::control::{Remote, RoutedRequest};
use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;

use crate::limits;

/// A request to be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resend {
    /// The number that identifies the request when it is answered.
    pub(super) number: u64,
    pub(super) uid: u32,
    pub(super) at_us: i64,
    pub(super) line: ControlLine,
}

/// A request with a lasting effect.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) number: u64,
    pub(super) request: RoutedRequest,
    /// The numeric id of the user.
    pub(super) uid: u32,
    /// The common time at which it takes effect, in microseconds since the epoch.
    pub(super) at_us: i64,
    /// The end of its effect, in microseconds since the epoch.
    pub(super) until_us: i64,
    /// The sessions that have answered.
    pub(super) answered: HashSet<SessionId>,
}

/// All pending requests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    requests: Vec<PendingRequest>,
    bytes: usize,
    next: u64,
}

/// A request that was sent to agents.
#[derive(Debug)]
pub(super) struct SentRequest {
    pub(super) request: RoutedRequest,
    pub(super) uid: u32,
    pub(super) at_us: i64,
    /// The end of its leases, as reported by the agents.
    pub(super) until_us: Option<i64>,
    /// The sessions that have answered.
    pub(super) answered: HashSet<SessionId>,
}

impl PendingRequests {
    /// Adds a request that was sent, and removes those that it replaces.
    pub(super) fn add(&mut self, sent: SentRequest, now_us: i64) {
        self.remove(|pending| pending.until_us <= now_us);
        let SentRequest { request, uid, at_us, until_us, answered } = sent;
        let until_us = match request.remote {
            Remote::Refused | Remote::CollectorOnly | Remote::Immediate => None,
            Remote::GrantsLeases => {
                let is_replaced = |pending: &RoutedRequest| {
                    pending.remote == Remote::GrantsLeases
                        && pending.level == request.level
                        && pending.selectors.iter().all(|selector| request.selectors.contains(selector))
                };
                self.remove(|pending| {
                    pending.request.job == request.job && pending.uid == uid && is_replaced(&pending.request)
                });
                until_us
            }
            // It is kept as long as the leases that it ends, which a disconnected agent may still have. Root
            // ends all leases.
            Remote::EndsLeases => self.remove(|pending| {
                pending.request.job == request.job
                    && (uid == 0 || pending.uid == uid)
                    && (request.level.is_none() || pending.request.level == request.level)
            }),
        };
        let Some(until_us) = until_us.filter(|until_us| *until_us > now_us) else { return };
        self.restore(PendingRequest { number: 0, request, uid, at_us, until_us, answered });
    }

    /// Returns all pending requests, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingRequest> {
        self.requests.iter()
    }

    /// Adds a request after all others, and assigns it a number.
    pub(super) fn restore(&mut self, mut pending: PendingRequest) {
        self.next += 1;
        pending.number = self.next;
        self.bytes += pending.request.line.as_str().len();
        self.requests.push(pending);
        while self.requests.len() > limits::PENDING_REQUESTS || self.bytes > limits::PENDING_BYTES {
            let Some(first) = self.requests.iter().map(|pending| pending.until_us).min() else { break };
            self.remove(|pending| pending.until_us == first);
        }
    }

    /// Returns the requests that a session which tracks the job has not answered, in the order in which they
    /// were sent.
    pub(super) fn unanswered(&self, job: &Identifier, session: SessionId, now_us: i64) -> Vec<Resend> {
        let unanswered = self.requests.iter().filter(|pending| {
            pending.request.job == *job && pending.until_us > now_us && !pending.answered.contains(&session)
        });
        let resend = |pending: &PendingRequest| Resend {
            number: pending.number,
            uid: pending.uid,
            at_us: pending.at_us,
            line: pending.request.line.clone(),
        };
        unanswered.map(resend).collect()
    }

    /// Records that a session has answered.
    pub(super) fn answered(&mut self, number: u64, session: SessionId) {
        let pending = self.requests.iter_mut().find(|pending| pending.number == number);
        if let Some(pending) = pending.filter(|pending| pending.answered.len() < limits::NODES) {
            pending.answered.insert(session);
        }
    }

    /// Removes the requests that `which` selects, and returns the latest end among them.
    fn remove(&mut self, which: impl Fn(&PendingRequest) -> bool) -> Option<i64> {
        let (mut last, mut freed) = (None, 0);
        self.requests.retain(|pending| {
            let remove = which(pending);
            if remove {
                last = last.max(Some(pending.until_us));
                freed += pending.request.line.as_str().len();
            }
            !remove
        });
        self.bytes -= freed;
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: u32 = 1000;
    const BOB: u32 = 1001;

    /// Returns a request with the line `line`, whose text is also its selector.
    fn sent(job: &str, uid: u32, remote: Remote, line: &str, until_us: i64, answered: &[u64]) -> SentRequest {
        let is_set = remote == Remote::GrantsLeases;
        SentRequest {
            request: RoutedRequest {
                job: job.try_into().unwrap(),
                remote,
                selectors: is_set.then(|| line.to_owned()).into_iter().collect(),
                level: None,
                duration_us: None,
                line: line.try_into().unwrap(),
            },
            uid,
            at_us: 7,
            until_us: Some(until_us),
            answered: answered.iter().copied().map(SessionId).collect(),
        }
    }

    fn set(job: &str, uid: u32, selector: &str, until_us: i64, answered: &[u64]) -> SentRequest {
        sent(job, uid, Remote::GrantsLeases, selector, until_us, answered)
    }

    fn reset(job: &str, uid: u32, answered: &[u64]) -> SentRequest {
        sent(job, uid, Remote::EndsLeases, "reset", 0, answered)
    }

    fn lines(pending: &PendingRequests, session: u64, now_us: i64) -> Vec<String> {
        let unanswered = pending.unanswered(&"7".try_into().unwrap(), SessionId(session), now_us);
        unanswered.into_iter().map(|resend| resend.line.as_str().to_owned()).collect()
    }

    #[test]
    fn sends_requests_again_while_the_lease_lasts() {
        let mut pending = PendingRequests::default();
        pending.add(set("7", ADA, "cpu.*", 100, &[1]), 0);
        pending.add(set("8", ADA, "cpu.*", 100, &[]), 0);
        assert_eq!(lines(&pending, 1, 50), [""; 0], "it has answered");
        assert_eq!(lines(&pending, 2, 50), ["cpu.*"]);
        assert_eq!(lines(&pending, 2, 100), [""; 0], "the lease has ended");
        let resend = pending.unanswered(&"7".try_into().unwrap(), SessionId(2), 50).remove(0);
        assert_eq!((resend.uid, resend.at_us), (ADA, 7));
        pending.answered(resend.number, SessionId(2));
        assert_eq!(lines(&pending, 2, 50), [""; 0]);
    }

    #[test]
    fn requests_for_steps_are_kept_beside_those_for_the_job() {
        let of = |mut sent: SentRequest, level: &str, line: &str| {
            sent.request.level = Some(level.to_owned());
            sent.request.line = line.try_into().unwrap();
            sent
        };
        let mut pending = PendingRequests::default();
        pending.add(of(set("7", ADA, "cpu.*", 100, &[]), "step", "steps"), 0);
        pending.add(set("7", ADA, "cpu.*", 100, &[]), 0);
        pending.add(of(set("7", ADA, "cpu.*", 100, &[]), "task", "tasks"), 0);
        pending.add(of(set("7", ADA, "cpu.*", 90, &[]), "step", "later steps"), 0);
        assert_eq!(lines(&pending, 1, 50), ["cpu.*", "tasks", "later steps"]);
        pending.add(of(reset("7", ADA, &[]), "step", "reset of steps"), 0);
        assert_eq!(lines(&pending, 1, 50), ["cpu.*", "tasks", "reset of steps"]);
        pending.add(reset("7", ADA, &[]), 0);
        assert_eq!(lines(&pending, 1, 50), ["reset"]);
    }

    #[test]
    fn a_later_request_replaces_an_earlier_one() {
        let mut pending = PendingRequests::default();
        pending.add(set("7", ADA, "cpu.*", 100, &[1]), 0);
        pending.add(set("7", ADA, "memory.*", 100, &[1]), 0);
        pending.add(set("7", ADA, "cpu.*", 90, &[]), 0);
        pending.add(set("7", BOB, "cpu.*", 120, &[]), 0);
        assert_eq!(lines(&pending, 1, 50), ["cpu.*", "cpu.*"]);
        pending.add(reset("7", ADA, &[1]), 0);
        assert_eq!(lines(&pending, 2, 50), ["cpu.*", "reset"], "Ada cannot end Bob's lease");
        assert_eq!(lines(&pending, 2, 101), ["cpu.*"], "Ada's leases have ended");
        pending.add(reset("7", 0, &[1]), 0);
        assert_eq!(lines(&pending, 2, 50), ["reset"]);
        assert_eq!(lines(&pending, 2, 120), [""; 0]);
        pending.add(reset("7", 0, &[]), 130);
        assert!(pending.requests.is_empty(), "there is nothing to end");
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn is_bounded_and_removes_the_request_that_ends_first() {
        let mut pending = PendingRequests::default();
        for number in 0..=limits::PENDING_REQUESTS {
            let until_us = 1000 + i64::try_from(number).unwrap();
            pending.add(set("7", ADA, &format!("m{number}"), until_us, &[]), 0);
        }
        let left = lines(&pending, 1, 0);
        assert_eq!(left.len(), limits::PENDING_REQUESTS);
        assert!(!left.contains(&"m0".to_owned()));
        let long = "x".repeat(200 * 1024);
        for number in 0..2 * limits::PENDING_BYTES / long.len() {
            pending.add(set("7", ADA, &format!("{long}{number}"), 10_000, &[]), 0);
        }
        assert!(pending.bytes <= limits::PENDING_BYTES);
    }
}
