//! Rules for requests with a lasting effect, which agents that connect later still receive. Pure: no I/O
//! and no clock.
//!
//! Requests are idempotent: an agent that receives one twice grants the same lease again, with the same end.

use polymeter_proto::control::{Remote, RoutedRequest};
use polymeter_store::{Replaced, StoredControlRequest};
use serde_json::Value;

use crate::limits;

/// Those of the `earlier` requests about the same job that the request in `line` of user `uid` replaces.
pub(super) fn replaced(line: &str, uid: u32, earlier: &[StoredControlRequest]) -> Replaced {
    let Ok(request) = RoutedRequest::parse(line.as_bytes()) else { return Replaced::default() };
    let earlier = earlier.iter().filter_map(|stored| {
        let parsed = RoutedRequest::parse(stored.request.line.as_bytes()).ok()?;
        (parsed.job == request.job).then_some((stored, parsed))
    });
    let mut replaced = Replaced::default();
    for (stored, parsed) in earlier {
        match request.remote {
            Remote::Refused
            | Remote::CollectorOnly
            | Remote::Immediate
            | Remote::ImmediateOrEnded
            | Remote::OneNode => {}
            Remote::GrantsLeases => {
                let is_replaced = stored.request.uid == uid
                    && parsed.remote == Remote::GrantsLeases
                    && parsed.level == request.level
                    && parsed.selectors.iter().all(|selector| request.selectors.contains(selector));
                if is_replaced {
                    replaced.numbers.push(stored.number);
                }
            }
            // It is kept as long as the leases that it ends, which a disconnected agent may still have. Root
            // ends all leases.
            Remote::EndsLeases => {
                let is_level = request.level.is_none() || parsed.level == request.level;
                let is_trigger = parsed.trigger.is_some();
                if (uid == 0 || stored.request.uid == uid) && is_level && !is_trigger {
                    replaced.numbers.push(stored.number);
                    replaced.until_us = replaced.until_us.max(Some(stored.request.expires_us));
                }
            }
            Remote::AddsTrigger => {
                if stored.request.uid == uid && is_same_trigger(&parsed, &request) {
                    replaced.numbers.push(stored.number);
                }
            }
            // As with leases, it is kept as long as the trigger would be.
            Remote::RemovesTrigger => {
                if (uid == 0 || stored.request.uid == uid) && is_same_trigger(&parsed, &request) {
                    replaced.numbers.push(stored.number);
                    replaced.until_us = replaced.until_us.max(Some(stored.request.expires_us));
                }
            }
        }
    }
    replaced
}

fn is_same_trigger(one: &RoutedRequest, other: &RoutedRequest) -> bool {
    one.trigger.is_some() && one.trigger == other.trigger
}

/// Agents that connect later receive the request, too.
pub(super) const fn is_lasting(remote: Remote) -> bool {
    matches!(remote, Remote::GrantsLeases | Remote::EndsLeases | Remote::AddsTrigger | Remote::RemovesTrigger)
}

/// End of a request's effect, before an agent has answered, in microseconds since the epoch. In any case the
/// request is kept while collectors forward it.
pub(super) fn first_expiry(request: &RoutedRequest, at_us: i64) -> i64 {
    if request.remote == Remote::AddsTrigger {
        return at_us.saturating_add(limits::TRIGGER_US);
    }
    let forwarded_us = at_us.saturating_add(limits::FORWARD_US);
    let requested = request.duration_us.filter(|_| request.remote == Remote::GrantsLeases);
    requested.map_or(forwarded_us, |lasts_us| at_us.saturating_add_unsigned(lasts_us).max(forwarded_us))
}

/// End of a request's leases as the agents report it; without answers, the requested end. A trigger is kept
/// if an agent has added it.
pub(super) fn lease_end(request: &RoutedRequest, at_us: i64, answers: &[Option<Value>]) -> Option<i64> {
    if request.remote == Remote::AddsTrigger {
        let mut given = answers.iter().flatten().peekable();
        let is_added = given.peek().is_none() || given.any(|answer| answer.get("code").is_none());
        return is_added.then(|| at_us.saturating_add(limits::TRIGGER_US));
    }
    if request.remote != Remote::GrantsLeases {
        return None;
    }
    let mut answers = answers.iter().flatten().peekable();
    if answers.peek().is_none() {
        return request.duration_us.map(|duration_us| at_us.saturating_add_unsigned(duration_us));
    }
    answers.filter_map(granted_until).max()
}

/// End of the leases that an answer grants.
pub(super) fn granted_until(answer: &Value) -> Option<i64> {
    answer.get("until_us")?.as_i64()
}

/// The agent has executed or refused the request, and need not receive it again.
pub(super) fn is_final(answer: &Value) -> bool {
    !matches!(answer.get("code").and_then(Value::as_str), Some("busy" | "stopping"))
}

#[cfg(test)]
mod tests {
    use polymeter_store::ControlRequest;
    use serde_json::json;

    use super::*;

    const ADA: u32 = 1000;
    const BOB: u32 = 1001;

    fn stored(number: i64, uid: u32, line: &str) -> StoredControlRequest {
        StoredControlRequest {
            number,
            request: ControlRequest {
                collector_id: "a".to_owned(),
                job_id: "7".to_owned(),
                uid,
                line: line.to_owned(),
                is_lasting: true,
                at_us: 0,
                expires_us: 100 * number,
            },
        }
    }

    fn set(selector: &str) -> String {
        json!({"verb": "set", "job": "7", "plan": {selector: "10ms"}}).to_string()
    }

    fn set_of(level: &str, selector: &str) -> String {
        json!({"verb": "set", "job": "7", "plan": {selector: "10ms"}, "level": level}).to_string()
    }

    const RESET: &str = r#"{"verb":"reset","job":"7"}"#;

    #[test]
    fn a_later_request_replaces_an_earlier_one() {
        let earlier = [
            stored(1, ADA, &set("cpu.*")),
            stored(2, ADA, &set("memory.*")),
            stored(3, BOB, &set("cpu.*")),
            stored(4, ADA, r#"{"verb":"reset","job":"8"}"#),
            stored(5, ADA, "nonsense"),
        ];
        let replaced = |line: &str, uid| {
            let replaced = replaced(line, uid, &earlier);
            (replaced.numbers, replaced.until_us)
        };
        assert_eq!(replaced(&set("cpu.*"), ADA), (vec![1], None));
        let both = json!({"verb": "set", "job": "7", "plan": {"cpu.*": "1s", "memory.*": "1s"}}).to_string();
        assert_eq!(replaced(&both, ADA), (vec![1, 2], None));
        assert_eq!(replaced(&set("pids.*"), ADA), (vec![], None));
        assert_eq!(replaced(RESET, ADA), (vec![1, 2], Some(200)), "Ada cannot end Bob's lease");
        assert_eq!(replaced(RESET, 0), (vec![1, 2, 3], Some(300)));
        assert_eq!(replaced("nonsense", 0), (vec![], None));
    }

    #[test]
    fn releases_of_counters_replace_each_other_and_no_leases() {
        const RELEASE: &str = r#"{"verb":"pmu_release","job":"7","for":"1h"}"#;
        const RESUME: &str = r#"{"verb":"pmu_resume","job":"7"}"#;
        let earlier = [
            stored(1, ADA, &set("cpu.*")),
            stored(2, ADA, RELEASE),
            stored(3, BOB, RELEASE),
            stored(4, ADA, &set_of("step", "cpu.*")),
        ];
        let numbers = |line: &str| replaced(line, ADA, &earlier).numbers;
        assert_eq!((numbers(RELEASE), numbers(RESUME)), (vec![2], vec![2]));
        assert_eq!(numbers(&set("cpu.*")), [1]);
    }

    #[test]
    fn requests_for_steps_are_kept_beside_those_for_the_job() {
        let earlier = [
            stored(1, ADA, &set_of("step", "cpu.*")),
            stored(2, ADA, &set("cpu.*")),
            stored(3, ADA, &set_of("task", "cpu.*")),
        ];
        let numbers = |line: &str| replaced(line, ADA, &earlier).numbers;
        assert_eq!(numbers(&set_of("step", "cpu.*")), [1]);
        assert_eq!(numbers(&set("cpu.*")), [2]);
        assert_eq!(numbers(r#"{"verb":"reset","job":"7","level":"step"}"#), [1]);
        assert_eq!(numbers(RESET), [1, 2, 3]);
    }

    #[test]
    fn requests_about_a_trigger_replace_those_about_the_same_one() {
        let add = |name: &str| {
            json!({"verb": "trigger_add", "job": "7", "rule": {"name": name, "when": "oom"}}).to_string()
        };
        let remove = |name: &str| json!({"verb": "trigger_remove", "job": "7", "name": name}).to_string();
        let earlier = [
            stored(1, ADA, &add("a")),
            stored(2, ADA, &add("b")),
            stored(3, BOB, &add("a")),
            stored(4, ADA, &set("cpu.*")),
        ];
        let replaced = |line: &str, uid| {
            let replaced = replaced(line, uid, &earlier);
            (replaced.numbers, replaced.until_us)
        };
        assert_eq!(replaced(&add("a"), ADA), (vec![1], None));
        assert_eq!(replaced(&add("c"), ADA), (vec![], None));
        assert_eq!(replaced(&remove("b"), ADA), (vec![2], Some(200)));
        assert_eq!(replaced(&remove("a"), BOB), (vec![3], Some(300)), "Bob cannot remove Ada's trigger");
        assert_eq!(replaced(&remove("a"), 0), (vec![1, 3], Some(300)));
        assert_eq!(replaced(RESET, 0), (vec![4], Some(400)), "triggers are no leases");
        assert_eq!(replaced(&set("cpu.*"), ADA), (vec![4], None));
    }

    #[test]
    fn a_trigger_is_kept_once_an_agent_has_added_it() {
        let add = routed(Remote::AddsTrigger, None);
        let kept_us = Some(5 + limits::TRIGGER_US);
        assert_eq!(Some(first_expiry(&add, 5)), kept_us);
        let added = Some(json!({"answer": "trigger_added", "notes": []}));
        let refused = Some(json!({"answer": "refused", "code": "too_many"}));
        assert_eq!(lease_end(&add, 5, &[None, added, refused.clone()]), kept_us);
        assert_eq!(lease_end(&add, 5, &[None]), kept_us, "an agent that does not answer may add it later");
        assert_eq!(lease_end(&add, 5, &[None, refused]), None);
    }

    fn routed(remote: Remote, duration_us: Option<u64>) -> RoutedRequest {
        RoutedRequest {
            verb: "set",
            job: "7".try_into().unwrap(),
            remote,
            selectors: Vec::new(),
            level: None,
            trigger: None,
            duration_us,
            line: "{}".try_into().unwrap(),
        }
    }

    #[test]
    fn a_lease_ends_as_the_agents_answer() {
        let set = |duration_us| routed(Remote::GrantsLeases, duration_us);
        let granted = |until_us| Some(json!({"answer": "granted", "until_us": until_us}));
        let refused = Some(json!({"answer": "refused", "code": "longest_lease"}));
        assert_eq!(lease_end(&set(None), 5, &[None, granted(100), granted(101)]), Some(101));
        assert_eq!(lease_end(&set(Some(10)), 5, &[refused, None]), None);
        assert_eq!(lease_end(&set(Some(10)), 5, &[None, None]), Some(15));
        assert_eq!(lease_end(&set(None), 5, &[None]), None);
        assert_eq!(lease_end(&routed(Remote::EndsLeases, None), 5, &[granted(100)]), None);
    }

    #[test]
    fn a_request_is_kept_while_it_is_forwarded() {
        let forwarded_us = 5 + limits::FORWARD_US;
        let expiry = |remote, duration_us| first_expiry(&routed(remote, duration_us), 5);
        assert_eq!(expiry(Remote::GrantsLeases, Some(1)), forwarded_us);
        let long_us = 10 * limits::FORWARD_US;
        assert_eq!(expiry(Remote::GrantsLeases, Some(long_us.cast_unsigned())), 5 + long_us);
        assert_eq!(expiry(Remote::GrantsLeases, None), forwarded_us);
        assert_eq!(expiry(Remote::EndsLeases, Some(u64::MAX)), forwarded_us);
    }

    #[test]
    fn a_busy_agent_receives_a_request_again() {
        assert!(is_final(&json!({"answer": "granted"})) && is_final(&json!({"code": "unknown_metric"})));
        assert!(!is_final(&json!({"code": "busy"})) && !is_final(&json!({"code": "stopping"})));
    }
}
