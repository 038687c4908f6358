//! Requests that arrive through the collector, which has authenticated the user. They are executed as on the
//! control socket.
//!
//! All agents of a job get the same time, so that they change together. A request that arrives late, because
//! the node was cut off, takes effect at once, and its lease ends at the same time as on all nodes.

use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::control::{Answer, Refusal, Remote, Request, TimeRequest, UNASKED, identifier};
use polymeter_proto::wire::control::ControlLine;
use tokio::sync::{Semaphore, mpsc};

use super::context::Context;
use super::lines::{LINE_BYTES, too_long};
use super::request_handler::RequestHandler;
use super::verbs;
use crate::clock;
use crate::delivery::remote_requests::{RemoteRequest, RemoteRequestReceiver};
use crate::request::SupervisorRequest;

/// Most requests in progress, including those that wait for their time. A collector sends one per active
/// user.
const REQUESTS: usize = 16;

/// Longest time until a request takes effect. Collectors use a fraction of a second; more means that the
/// clocks differ.
const AHEAD_MAX_US: i64 = 10_000_000;

/// Executes requests until the sender or the runtime ends. Refuses them if remote control is not `enabled`.
pub(crate) async fn serve(
    mut remote: RemoteRequestReceiver,
    enabled: bool,
    requests: mpsc::Sender<SupervisorRequest>,
    context: Context,
) {
    let permits = Arc::new(Semaphore::new(REQUESTS));
    let mut devices = context.devices.clone();
    loop {
        let request = tokio::select! {
            request = remote.next() => request,
            Ok(()) = devices.changed(), if enabled => {
                remote.answers().give(UNASKED, to_line(&verbs::time::answer(&context, true)));
                continue;
            }
        };
        let Some(request) = request else { return };
        let (answers, id) = (remote.answers(), request.id);
        if !enabled {
            let message = "this node accepts no requests through the collector; use its control socket";
            answers.give(id, to_line(&Answer::Refused(Refusal::new("forbidden", None, message))));
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            let busy = Refusal::new("busy", None, "too many requests at once; try again in a moment");
            answers.give(id, to_line(&Answer::Refused(busy)));
            continue;
        };
        let (requests, context) = (requests.clone(), context.clone());
        tokio::spawn(async move {
            let answer = execute(&request, &requests, &context).await;
            answers.give(id, to_line(&answer));
            drop(permit);
        });
    }
}

async fn execute(
    remote: &RemoteRequest,
    requests: &mpsc::Sender<SupervisorRequest>,
    context: &Context,
) -> Answer {
    let (request, wait_us) = match validate(remote, clock::steady_us()) {
        Ok(validated) => validated,
        Err(refusal) => return Answer::Refused(refusal),
    };
    if wait_us > 0 {
        tokio::time::sleep(Duration::from_micros(wait_us)).await;
    }
    // The collector itself asks for the time, and tells its version.
    if let Request::Time(TimeRequest { collector_version: Some(version) }) = &request
        && let Ok(version) = identifier("collector_version", version)
    {
        context.counters.collector.set_version(version.as_str());
    }
    let principal = context.rights.borrow().remote_principal(remote.uid);
    let handler = RequestHandler::new(principal, requests, context).since(remote.at_us);
    verbs::execute(request, &handler).await
}

/// Returns the request, and the microseconds until it takes effect.
fn validate(remote: &RemoteRequest, now_us: i64) -> Result<(Request, u64), Refusal> {
    let line = remote.line.as_str().as_bytes();
    if line.len() as u64 >= LINE_BYTES {
        return Err(too_long());
    }
    let request = Request::parse(line)?;
    let verb = request.info();
    if verb.remote == Remote::Refused {
        let message =
            format!("cannot execute `{}` through the collector; use the node's control socket", verb.name);
        return Err(Refusal::new("forbidden", Some("verb"), &message));
    }
    let ahead_us = remote.at_us.saturating_sub(now_us);
    if ahead_us > AHEAD_MAX_US {
        let message = format!(
            "the request takes effect {} s from now; compare the clocks of this node and the collector",
            ahead_us / 1_000_000
        );
        return Err(Refusal::new("too_far", None, &message));
    }
    Ok((request, u64::try_from(ahead_us).unwrap_or(0)))
}

fn to_line(answer: &Answer) -> ControlLine {
    let mut bytes = answer.to_line();
    bytes.pop();
    let line = String::from_utf8(bytes).ok().and_then(|text| ControlLine::try_from(text).ok());
    // The refusal always fits.
    line.unwrap_or_else(|| {
        to_line(&Answer::Refused(Refusal::new(
            "too_long",
            None,
            "the request was executed, but its answer is too long to send through the collector; use the node's control socket, or name fewer metrics",
        )))
    })
}

#[cfg(test)]
mod tests {
    use polymeter_proto::control::{RegisteredAnswer, ResetAnswer, VERBS};

    use super::*;

    const NOW_US: i64 = 1_790_000_000_000_000;

    fn validated(line: &str, at_us: i64) -> Result<u64, String> {
        let remote = RemoteRequest { id: 1, uid: 7, at_us, line: line.try_into().unwrap() };
        validate(&remote, NOW_US).map(|(_, wait_us)| wait_us).map_err(|refusal| refusal.code)
    }

    #[test]
    fn takes_effect_at_its_time_or_at_once() {
        let set = r#"{"verb":"set","job":"1","plan":{"cpu.usage":"1s"}}"#;
        assert_eq!(validated(set, NOW_US + 250_000), Ok(250_000));
        assert_eq!(validated(set, NOW_US - 3_600_000_000), Ok(0));
        assert_eq!(validated(set, i64::MIN), Ok(0));
        assert_eq!(validated(set, NOW_US + AHEAD_MAX_US), Ok(10_000_000));
        assert_eq!(validated(set, NOW_US + AHEAD_MAX_US + 1), Err("too_far".into()));
        assert_eq!(validated(set, i64::MAX), Err("too_far".into()));
    }

    #[test]
    fn executes_remote_verbs_only() {
        let remote = VERBS.iter().filter(|verb| validated(verb.example, 0).is_ok());
        assert_eq!(
            remote.map(|verb| verb.name).collect::<Vec<_>>(),
            [
                "plan",
                "set",
                "reset",
                "pmu_release",
                "pmu_resume",
                "keep",
                "keep_last",
                "mark",
                "push",
                "trigger_add",
                "trigger_remove",
                "triggers",
                "time",
                "demand"
            ]
        );
        for verb in VERBS.iter().filter(|verb| verb.remote == Remote::Refused) {
            assert_eq!(validated(verb.example, 0), Err("forbidden".into()), "{}", verb.name);
        }
        assert_eq!(validated("hello", 0), Err("malformed".into()));
        assert_eq!(validated(&" ".repeat(64 * 1024), 0), Err("too_long".into()));
    }

    #[test]
    fn reports_answers_that_are_too_long() {
        let unavailable = vec![("x".repeat(300_000), String::new())];
        let short = to_line(&Answer::Registered(RegisteredAnswer { unavailable }));
        assert!(short.as_str().contains("\"code\":\"too_long\""), "{short:?}");
        let reset = Answer::Reset(ResetAnswer { ended: 1 });
        assert_eq!(to_line(&reset).as_str(), r#"{"answer":"reset","ended":1}"#);
    }
}
