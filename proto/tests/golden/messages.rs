//! Messages, in both directions.

use polymeter_proto::series::JobHandle;
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

use super::extras::dictionary;
use super::{Direction, Golden, LARGE_SESSION, SESSION, T0};

/// Returns a control line. It is not JSON, so that it needs no escapes in the JSON files; the protocol does
/// not parse it.
fn control_line(text: &str) -> ControlLine {
    text.try_into().unwrap()
}

fn lost(job: Option<u32>, source: &str, samples: u64) -> Lost {
    Lost { job: job.map(JobHandle), source: source.try_into().unwrap(), samples }
}

fn skipped(reason: SkipReason, lost: Vec<Lost>, span_us: (i64, i64)) -> ToCollector {
    ToCollector::Skipped { session: SESSION, first: 2, last: 300, reason, span_us, lost }
}

pub(super) fn to_collector() -> Vec<Golden> {
    let golden = |name, message: ToCollector| (name, Direction::ToCollector, message.encode());
    let (session, entries) = (LARGE_SESSION, dictionary());
    vec![
        golden("message_dictionary", ToCollector::Dictionary { session, entries }),
        golden(
            "message_skipped_outbox_full",
            skipped(
                SkipReason::OutboxFull,
                vec![lost(Some(1), "memory.stat", 70_000), lost(None, "proc/stat", 5)],
                (T0, T0 + 1_000_000),
            ),
        ),
        golden(
            "message_skipped_already_acknowledged",
            skipped(SkipReason::AlreadyAcknowledged, vec![], (0, -3)),
        ),
        golden(
            "message_skipped_refused",
            skipped(SkipReason::Refused, vec![lost(None, "proc/stat", 1)], (T0, T0)),
        ),
        golden("message_skipped_damaged", skipped(SkipReason::Damaged, vec![], (0, 0))),
        golden(
            "message_answer",
            ToCollector::Answer {
                session: SESSION,
                request: 7,
                line: control_line("{answer:reset,ended:1}"),
            },
        ),
    ]
}

pub(super) fn to_agent() -> Vec<Golden> {
    let golden = |name, message: ToAgent| (name, Direction::ToAgent, message.encode());
    vec![
        golden("message_ack", ToAgent::Ack { session: SESSION, through: u64::MAX }),
        golden("message_resend", ToAgent::Resend { session: SESSION, from: 250 }),
        golden("message_need_dictionary", ToAgent::NeedDictionary { session: LARGE_SESSION }),
        golden(
            "message_refused",
            ToAgent::Refused {
                reason: "protocol version 9 is not supported: this program supports version 1".into(),
                frame: None,
            },
        ),
        golden(
            "message_refused_frame",
            ToAgent::Refused {
                reason: "the checksum does not fit".into(),
                frame: Some((LARGE_SESSION, 300)),
            },
        ),
        golden(
            "message_request",
            ToAgent::Request {
                session: SESSION,
                request: 7,
                uid: 100_000,
                at_us: T0,
                line: control_line("{verb:reset,job:4711}"),
            },
        ),
    ]
}
