//! Requests at submission that are not granted: `plan` shows them while the job is there, and the data have them, so that
//! the job's owner learns of them although nobody answered her.

use polymeter_proto::ledger::{Event, RequestRefused};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;

use super::{Manager, TargetKey};
use crate::clock;
use crate::lanes::{Command, EventRecord};
use crate::log;
use crate::principal::Principal;
use crate::request::{LeaseError, LeaseGrant, RefusedRequest};

/// Requests of one job that are kept. A comment has room for more, and nobody reads them.
const REFUSED: usize = 64;

/// Those of one job.
#[derive(Debug, Default)]
pub(super) struct RefusedRequests {
    /// They are in the data.
    told: Vec<RefusedRequest>,
    /// The cgroup of another controller may come yet, by which they can be granted.
    pending: Vec<RefusedRequest>,
}

impl RefusedRequests {
    /// All of them.
    pub(super) fn all(&self) -> Vec<RefusedRequest> {
        self.told.iter().chain(&self.pending).cloned().collect()
    }

    /// Adds one, unless it is known or there are too many. Says whether it did.
    fn add(&mut self, refused: &RefusedRequest) -> bool {
        let adds = self.told.len() < REFUSED && !self.told.contains(refused);
        if adds {
            self.told.push(refused.clone());
        }
        adds
    }
}

impl Manager {
    /// Keeps requests that are refused for good, and puts them into the data and the log.
    pub(super) async fn refuse_requests(&mut self, job_id: &Identifier, refused: Vec<RefusedRequest>) {
        let key: TargetKey = Some(job_id.clone());
        for refused in refused {
            let Some(followed) = self.followed.get_mut(&key) else { return };
            if !followed.refused.add(&refused) {
                continue;
            }
            let RefusedRequest { request, period, reason } = refused;
            let asked = period.map_or_else(|| request.to_string(), |period| format!("{request}={period}"));
            log::warning(&format!("cannot grant request `{asked}` of the owner of job {job_id}: {reason}"));
            let Some(job) = followed.job.clone() else { return };
            let by = followed.owner_uid.and_then(|uid| Principal { uid, administrator: false }.name());
            let at_us = clock::realtime_us();
            let event =
                Event::RequestRefused(RequestRefused { at_us, job: job.handle, request, period, by, reason });
            self.command(Command::RecordEvent(Box::new(EventRecord { job: Some(job), event }))).await;
        }
    }

    /// Keeps requests that cannot be granted yet.
    pub(super) fn defer_requests(&mut self, job_id: &Identifier, refused: Vec<RefusedRequest>) {
        if let Some(followed) = self.followed.get_mut(&Some(job_id.clone())) {
            followed.refused.pending = refused;
        }
    }

    /// Forgets what could not be granted yet: it was granted, or is refused for another reason.
    pub(super) fn forget_deferred(&mut self, job_id: &Identifier) {
        self.defer_requests(job_id, Vec::new());
    }

    /// The job ends: what could not be granted until now is refused.
    pub(super) async fn refuse_deferred(&mut self, job_id: &Identifier) {
        let requested =
            self.started.take_sampling(job_id).map(|sampling| sampling.metrics).unwrap_or_default();
        let Some(followed) = self.followed.get_mut(&Some(job_id.clone())) else { return };
        let mut deferred = std::mem::take(&mut followed.refused.pending);
        if deferred.is_empty() {
            // They were never judged.
            let unknown = Text::of("the owner of the job did not become known");
            deferred.extend(requested.into_iter().map(|(selector, period)| RefusedRequest {
                request: Text::of(selector.as_str()),
                period: Some(period),
                reason: unknown.clone(),
            }));
        }
        self.refuse_requests(job_id, deferred).await;
    }
}

/// What of `wishes` is refused by `outcome`: all of it by an error. Of what was granted only a metric that was named is
/// refused where it cannot be had: of a glob nobody expects all.
pub(super) fn refused_of(
    requested: &[(Selector, Period)],
    outcome: &Result<LeaseGrant, LeaseError>,
) -> Vec<RefusedRequest> {
    let refused = |selector: &Selector, period: Period, reason: &str| RefusedRequest {
        request: Text::of(selector.as_str()),
        period: Some(period),
        reason: Text::of(reason),
    };
    match outcome {
        Err(error) => {
            let reason = error.to_string();
            requested.iter().map(|(selector, period)| refused(selector, *period, &reason)).collect()
        }
        Ok(granted) => {
            let missing = |(selector, period): &(Selector, Period)| {
                let named = granted.unavailable.iter().find(|(metric, _)| metric == selector.as_str());
                named.map(|(_, reason)| refused(selector, *period, reason))
            };
            requested.iter().filter_map(missing).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Cost;

    fn requested() -> Vec<(Selector, Period)> {
        ["perf.*", "perf.cycles"].map(|selector| (selector.parse().unwrap(), Period::SECOND)).to_vec()
    }

    #[test]
    fn an_error_refuses_all_and_what_is_missing_only_what_was_named() {
        let all = refused_of(&requested(), &Err(LeaseError::TooMany(64)));
        assert_eq!(all.iter().map(|one| one.request.as_str()).collect::<Vec<_>>(), ["perf.*", "perf.cycles"]);
        let missing = |metric: &str| (metric.to_owned(), "the CPU has no such counter".to_owned());
        let unavailable = vec![missing("perf.cycles"), missing("perf.instructions")];
        let granted = LeaseGrant { metrics: Vec::new(), unavailable, cost: Cost::default(), until_us: 0 };
        let some = refused_of(&requested(), &Ok(granted));
        assert_eq!(some.len(), 1);
        assert_eq!(some[0].request.as_str(), "perf.cycles");
        assert_eq!(some[0].reason.as_str(), "the CPU has no such counter");
    }

    #[test]
    fn what_is_refused_twice_is_kept_once_and_the_memory_is_bounded() {
        let mut kept = RefusedRequests::default();
        let refused = |number: usize| RefusedRequest {
            request: Text::of(&format!("m{number}")),
            period: None,
            reason: Text::of(""),
        };
        assert!(kept.add(&refused(0)));
        assert!(!kept.add(&refused(0)));
        let added = (0..2 * REFUSED).filter(|number| kept.add(&refused(*number))).count();
        assert_eq!(added, REFUSED - 1);
        assert_eq!(kept.all().len(), REFUSED);
        assert_eq!(kept.all()[0].reason.as_str(), "not stated");
    }
}
