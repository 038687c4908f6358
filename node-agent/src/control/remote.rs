//! Requests that users made on another machine: the collector says who asks, and the same handler answers as on the socket.
//!
//! All agents of a job are given the same time, so that they change together. What comes late, because the node was cut off,
//! is done at once, and its lease ends when it ends everywhere.

use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::wire::control::ControlLine;
use tokio::sync::{Semaphore, mpsc};

use super::answer::{Answer, Refusal};
use super::request_handler::RequestHandler;
use super::verb::Verb;
use super::{Context, LINE_BYTES};
use crate::clock;
use crate::delivery::remote_requests::{RemoteRequest, RemoteRequestReceiver};
use crate::request::ManagerRequest;

/// Requests that are being answered or wait for their time. A collector has one per user who is typing.
const AT_ONCE: usize = 16;

/// How far ahead a request may take effect. Collectors request for a fraction of a second; more means that the clocks differ.
const AHEAD_MOST_US: i64 = 10_000_000;

/// Answers requests until the sender or the runtime ends. Where users' requests are not `wanted` from elsewhere, that is the answer.
pub(crate) async fn serve(
    mut remote_requests: RemoteRequestReceiver,
    wanted: bool,
    requests: mpsc::Sender<ManagerRequest>,
    context: Context,
) {
    let connections = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(request) = remote_requests.next().await {
        let (answers, id) = (remote_requests.answers(), request.id);
        if !wanted {
            let message = "this node takes no requests through the collector; request on the node";
            answers.give(id, line(&Answer::refused(Refusal::new("forbidden", None, message))));
            continue;
        }
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            let busy = Refusal::new("busy", None, "too many requests at once; try again in a moment");
            answers.give(id, line(&Answer::refused(busy)));
            continue;
        };
        let (requests, context) = (requests.clone(), context.clone());
        tokio::spawn(async move {
            let answer = answer(&request, &requests, &context).await;
            answers.give(id, line(&answer));
            drop(permit);
        });
    }
}

async fn answer(
    request: &RemoteRequest,
    requests: &mpsc::Sender<ManagerRequest>,
    context: &Context,
) -> Answer {
    let (verb, wait_us) = match validate(request, clock::realtime_us()) {
        Ok(validated) => validated,
        Err(refusal) => return Answer::refused(refusal),
    };
    if wait_us > 0 {
        tokio::time::sleep(Duration::from_micros(wait_us)).await;
    }
    let principal = context.rights.borrow().remote_principal(request.uid);
    RequestHandler::new(principal, requests, context).since(request.at_us).answer(verb).await
}

/// The request, and how many microseconds from now it takes effect; or why it is not done.
fn validate(request: &RemoteRequest, now_us: i64) -> Result<(Verb, u64), Refusal> {
    if request.line.as_str().len() as u64 >= LINE_BYTES {
        return Err(Refusal::new("too_long", None, "a request has at most 65536 bytes"));
    }
    let verb = Verb::parse(request.line.as_str().as_bytes())?;
    match verb {
        Verb::Plan(_) | Verb::Set(_) | Verb::Reset(_) | Verb::Mark(_) => {}
        Verb::Status
        | Verb::Jobs
        | Verb::Metrics(_)
        | Verb::Push(_)
        | Verb::Watch(_)
        | Verb::Register(_)
        | Verb::Unregister(_)
        | Verb::Start(_)
        | Verb::End(_)
        | Verb::Flush => {
            let message = "this can be asked on the node only, over its control socket";
            return Err(Refusal::new("forbidden", Some("verb"), message));
        }
    }
    let ahead_us = request.at_us.saturating_sub(now_us);
    if ahead_us > AHEAD_MOST_US {
        let message = format!(
            "it would take effect in {} s; do the clocks of this node and the collector differ?",
            ahead_us / 1_000_000
        );
        return Err(Refusal::new("too_far", None, &message));
    }
    Ok((verb, u64::try_from(ahead_us).unwrap_or(0)))
}

/// An answer as it travels.
fn line(answer: &Answer) -> ControlLine {
    let mut bytes = answer.line();
    bytes.pop();
    let whole = String::from_utf8(bytes).ok().and_then(|text| ControlLine::try_from(text).ok());
    // The refusal is short enough.
    whole.unwrap_or_else(|| {
        line(&Answer::refused(Refusal::new(
            "too_long",
            None,
            "it is done, and the answer is too long to travel; request on the node, or for fewer metrics",
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: i64 = 1_790_000_000_000_000;

    fn validated(line: &str, at_us: i64) -> Result<u64, String> {
        let request = RemoteRequest { id: 1, uid: 7, at_us, line: line.try_into().unwrap() };
        validate(&request, NOW_US).map(|(_, wait_us)| wait_us).map_err(|refusal| refusal.code)
    }

    #[test]
    fn it_is_done_at_its_time_or_at_once() {
        let set = r#"{"verb":"set","job":"1","plan":{"cpu.usage":"1s"}}"#;
        assert_eq!(validated(set, NOW_US + 250_000), Ok(250_000));
        assert_eq!(validated(set, NOW_US - 3_600_000_000), Ok(0));
        assert_eq!(validated(set, i64::MIN), Ok(0));
        assert_eq!(validated(set, NOW_US + AHEAD_MOST_US), Ok(10_000_000));
        assert_eq!(validated(set, NOW_US + AHEAD_MOST_US + 1), Err("too_far".into()));
        assert_eq!(validated(set, i64::MAX), Err("too_far".into()));
    }

    #[test]
    fn only_what_is_about_a_job_can_be_asked_from_elsewhere() {
        assert_eq!(validated(r#"{"verb":"plan","job":"1"}"#, 0), Ok(0));
        assert_eq!(validated(r#"{"verb":"reset","job":"1"}"#, 0), Ok(0));
        assert_eq!(validated(r#"{"verb":"mark","job":"1","name":"x"}"#, 0), Ok(0));
        for verb in ["status", "jobs", "metrics", "flush"] {
            assert_eq!(validated(&format!(r#"{{"verb":"{verb}"}}"#), 0), Err("forbidden".into()), "{verb}");
        }
        assert_eq!(validated(r#"{"verb":"unregister","job":"1"}"#, 0), Err("forbidden".into()));
        assert_eq!(validated(r#"{"verb":"register","job":"1"}"#, 0), Err("forbidden".into()));
        assert_eq!(validated("hello", 0), Err("malformed".into()));
        assert_eq!(validated(&" ".repeat(64 * 1024), 0), Err("too_long".into()));
    }

    #[test]
    fn an_answer_that_is_too_long_says_so() {
        let unavailable = vec![("x".repeat(300_000), String::new())];
        let short = line(&Answer::Registered { unavailable });
        assert!(short.as_str().contains("\"code\":\"too_long\""), "{short:?}");
        assert_eq!(line(&Answer::Reset { ended: 1 }).as_str(), r#"{"answer":"reset","ended":1}"#);
    }
}
