//! Every verb, against a supervisor that denies all access.

use std::sync::Arc;

use polymeter_proto::control::{DeviceReport, VERBS};
use polymeter_proto::series::SessionId;
use polymeter_proto::text::Unprintable;
use proptest::prelude::*;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::control::context::Context;
use crate::counters::Counters;
use crate::request::{AccessError, AnnotateError, LeaseError, SamplingRequest, SupervisorRequest};
use crate::rights::Rights;

const USER: Principal = Principal { uid: 1000, administrator: false };
const ROOT: Principal = Principal { uid: 0, administrator: true };

fn checked(line: &str) -> Result<(), Refusal> {
    check(Request::parse(line.as_bytes())?, USER)
}

fn fault(line: &str) -> (String, Option<String>) {
    let refusal = checked(line).unwrap_err();
    (refusal.code, refusal.field)
}

/// Answers one request of the supervisor as if access to every job were denied with `error`.
fn deny(request: SupervisorRequest, error: AccessError) {
    match request {
        SupervisorRequest::View(reply) => drop(reply.send(crate::request::View::default())),
        SupervisorRequest::Unregister(_, reply) => drop(reply.send(false)),
        SupervisorRequest::Set(_, reply) => drop(reply.send(Err(LeaseError::Access(error)))),
        SupervisorRequest::Reset(_, _, _, reply) => drop(reply.send(Err(error))),
        SupervisorRequest::Release(_, reply) => drop(reply.send(Err(LeaseError::Access(error)))),
        SupervisorRequest::Resume(_, _, reply) => drop(reply.send(Err(error))),
        SupervisorRequest::Mark(_, reply) => drop(reply.send(Err(AnnotateError::Access(error)))),
        SupervisorRequest::Push(_, reply) => drop(reply.send(Err(AnnotateError::Access(error)))),
        SupervisorRequest::Regions(_, reply) => drop(reply.send(Err(AnnotateError::Access(error)))),
        SupervisorRequest::Metrics(_, _, reply) => drop(reply.send(Err(error))),
        SupervisorRequest::ViewOne(_, _, reply) => drop(reply.send(Err(error))),
        SupervisorRequest::Watch(_, _, _, reply) => drop(reply.send(Err(error))),
        other @ (SupervisorRequest::Register(..)
        | SupervisorRequest::Demand(..)
        | SupervisorRequest::Start(..)
        | SupervisorRequest::End(..)
        | SupervisorRequest::Flush(_)
        | SupervisorRequest::Reload(_)
        | SupervisorRequest::AddTrigger(..)
        | SupervisorRequest::RemoveTrigger(..)
        | SupervisorRequest::Keep(..)
        | SupervisorRequest::Triggers(..)
        | SupervisorRequest::Stop) => panic!("not expected: {other:?}"),
    }
}

fn answer(example: &str, principal: Principal, error: AccessError) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (_told, rights) = watch::channel(Rights::default());
    let (_told, devices) = watch::channel(DeviceReport::default());
    let counters = Arc::new(Counters::default());
    let context = Context { session: SessionId(1), counters, rights, devices };
    runtime.block_on(async {
        let (requests, mut received) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(request) = received.recv().await {
                deny(request, error);
            }
        });
        let handler = RequestHandler::new(principal, &requests, &context);
        execute(Request::parse(example.as_bytes()).unwrap(), &handler).await
    })
}

#[test]
fn every_example_is_valid() {
    for verb in VERBS {
        assert_eq!(checked(verb.example), Ok(()), "{}", verb.name);
    }
}

#[test]
fn no_verb_reveals_a_job_to_a_user_that_must_not_see_it() {
    for verb in VERBS {
        let hidden = answer(verb.example, USER, AccessError::Hidden);
        let mut unknown = answer(verb.example, USER, AccessError::Unknown);
        if let (Answer::Status(hidden), Answer::Status(unknown)) = (&hidden, &mut unknown) {
            // The time and the CPU time differ between both answers.
            unknown.counts = hidden.counts.clone();
            unknown.collector.clone_from(&hidden.collector);
        }
        if let (Answer::Time(_), Answer::Time(_)) = (&hidden, &unknown) {
            // It is the only content, and concerns no job.
            unknown = hidden.clone();
        }
        assert_eq!(hidden, unknown, "{}", verb.name);
        if [Access::Administrator, Access::Collector].contains(&verb.access) {
            let Answer::Refused(refusal) = &hidden else { panic!("{} is executed", verb.name) };
            assert_eq!(refusal.code, "forbidden", "{}", verb.name);
        }
    }
    let plan = r#"{"verb":"plan","job":"4242"}"#;
    assert_ne!(answer(plan, ROOT, AccessError::Unknown), answer(plan, USER, AccessError::Unknown));
}

#[test]
fn refusals_name_the_field() {
    for (line, field) in [
        ("{\"verb\":\"plan\",\"job\":\"\"}", "job"),
        ("{\"verb\":\"set\",\"job\":\"1\"}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{}}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"off\"}}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"10ms\"},\"for\":\"ever\"}", "for"),
        ("{\"verb\":\"mark\",\"job\":\"1\",\"name\":\"\\u001b\"}", "name"),
        ("{\"verb\":\"mark\",\"job\":\"1\",\"name\":\"x\",\"kind\":\"middle\"}", "kind"),
        ("{\"verb\":\"push\",\"metric\":\"Loss!\",\"value\":1}", "metric"),
        ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":1,\"labels\":{\"unit\":\"x\"}}", "labels"),
        ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":1,\"labels\":{\"a\":\"\\n\"}}", "labels"),
        ("{\"verb\":\"regions\",\"job\":\"\",\"process\":1,\"regions\":[]}", "job"),
        ("{\"verb\":\"watch\",\"job\":\"\"}", "job"),
        ("{\"verb\":\"watch\",\"metrics\":[\"cpu.[ab]\"]}", "metrics"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"../x\"]}", "cgroups"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"/sys/../etc\"]}", "cgroups"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.usge\":\"1s\"}}", "plan"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"1us\"}}", "plan"),
        ("{\"verb\":\"set\",\"ring\":true,\"plan\":{\"node.load1\":\"1s\"}}", "ring"),
        (
            "{\"verb\":\"set\",\"job\":\"1\",\"ring\":true,\"level\":\"step\",\"plan\":{\"cpu.*\":\"1s\"}}",
            "ring",
        ),
        ("{\"verb\":\"set\",\"job\":\"1\",\"ring\":true,\"plan\":{\"cpu.*\":\"1ms/1s\"}}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"ring\":true,\"plan\":{\"stacks.cpu\":\"10ms\"}}", "plan"),
        ("{\"verb\":\"start\",\"job\":\"\\u202e\"}", "job"),
        ("{\"verb\":\"start\",\"job\":\"1\",\"gpu_devices\":\"0;1\"}", "gpu_devices"),
    ] {
        assert_eq!(fault(line), ("invalid".to_owned(), Some(field.to_owned())), "{line}");
    }
}

macro_rules! parsed {
    ($line:expr, $variant:ident) => {
        match Request::parse($line.as_bytes()) {
            Ok(Request::$variant(request)) => request.parse(USER).unwrap(),
            other => panic!("{} is {other:?}", $line),
        }
    };
}

#[test]
fn fields_have_their_meaning() {
    let line =
        r#"{"verb":"register","job":"42","uid":7,"cgroups":["/sys/fs/cgroup/x"],"plan":{"cpu.*":"10ms"}}"#;
    let job = parsed!(line, Register);
    assert_eq!((job.job_id.as_str(), job.owner_uid), ("42", Some(7)));
    let line =
        r#"{"verb":"push","job":"42","metric":"loss","value":0.5,"unit":"nats","labels":{"rank":"3"}}"#;
    let pushed = parsed!(line, Push);
    assert_eq!((pushed.metric.name.as_str(), pushed.value), ("user.loss", 0.5));
    assert_eq!(pushed.labels.to_string(), "rank=3,unit=nats");
    let line = r#"{"verb":"regions","job":"42","process":731,"rank":3,"regions":[{"name":"a\u0007b","entries":2,"time_ns":9,"self_ns":7,"thread_ns":5,"threads":3}]}"#;
    let regions = parsed!(line, Regions);
    let [region] = regions.regions.as_slice() else { panic!("{regions:?}") };
    assert_eq!(region.labels.to_string(), r"process=731,rank=3,region=a\x07b");
    assert_eq!(region.values, [2, 9, 7, 5, 3]);
    let line = r#"{"verb":"start","job":"42","uid":7,"user":"zoe","plan":{"cpu.*":"10ms"},"for":"1h"}"#;
    let (start, refused) = parsed!(line, Start);
    assert_eq!((start.job_id.as_str(), start.owner_uid, refused), ("42", Some(7), None));
    let durations: Vec<_> = start.sampling.iter().map(|request| request.duration_us).collect();
    assert_eq!(durations, [Some(3_600_000_000)]);
    let line = r#"{"verb":"start","job":"42","plan":{"cpu.*":"1s"},"ring":{"cpu.*":"10ms"},"triggers":[{"name":"o","when":"oom"}]}"#;
    let (start, refused) = parsed!(line, Start);
    let parts: Vec<_> = start.sampling.iter().map(SamplingRequest::part).collect();
    assert_eq!((parts, start.triggers.len(), refused), (vec![(None, false), (None, true)], 1, None));
    let (start, _) = parsed!(r#"{"verb":"start","job":"42","gpu_devices":"0,GPU-8f6d,MIG-4a5b"}"#, Start);
    assert_eq!(start.gpu_devices.as_deref(), Some("0,GPU-8f6d,MIG-4a5b"));
}

#[test]
fn an_invalid_sampling_request_refuses_nothing_else() {
    for plan in [
        r#""plan":{"cpu.usge":"10ms"}"#,
        r#""plan":{"cpu.*":"soon"}"#,
        r#""plan":{"cpu.*":"off"}"#,
        r#""plan":{"cpu.*":"1s"},"for":"ever""#,
    ] {
        let (start, refused) = parsed!(format!(r#"{{"verb":"start","job":"42",{plan}}}"#), Start);
        assert_eq!((start.sampling.len(), refused.unwrap().code.as_str()), (0, "invalid"), "{plan}");
        let kept = start.refused.unwrap();
        assert!(kept.request.as_str().starts_with("cpu."), "{kept:?}");
    }
    let line = r#"{"verb":"start","job":"42","ring":{"cpu.*":"1s"},"triggers":[{"name":"o","when":"oomm"}]}"#;
    let (start, refused) = parsed!(line, Start);
    assert_eq!((start.sampling.len(), start.triggers.len()), (0, 0));
    assert_eq!(refused.unwrap().field.as_deref(), Some("triggers"));
    let kept = start.refused.unwrap();
    assert_eq!(kept.request.as_str(), "ring:cpu.*=1s, trigger o when oomm");
    assert!(kept.reason.as_str().contains("`oomm`"), "{kept:?}");
    let line = r#"{"verb":"start","job":"42","request":"faster","request_error":"no period"}"#;
    let (start, refused) = parsed!(line, Start);
    let kept = start.refused.unwrap();
    assert_eq!((kept.request.as_str(), kept.reason.as_str()), ("faster", "no period"));
    assert_eq!(refused.unwrap().field.as_deref(), Some("request"));
}

proptest! {
    #[test]
    fn names_and_refusals_are_printable(name in any::<String>(), hostile in "[\u{200b}-\u{202e}\u{feff}a-z ]{0,8}") {
        let is_printable = |text: &str| text.chars().all(|c| Unprintable::of(c).is_none());
        for name in [name, hostile] {
            let line = serde_json::json!({"verb": "mark", "job": name, "name": name}).to_string();
            let Ok(Request::Mark(mark)) = Request::parse(line.as_bytes()) else { panic!("{line}") };
            match mark.parse(USER) {
                Ok(mark) => prop_assert!(is_printable(mark.name.as_str()) && !name.trim().is_empty()),
                Err(refusal) => prop_assert!(is_printable(refusal.message.as_str())),
            }
        }
    }
}
