//! Samples that were lost over the last days, for administrators.

use polymeter_proto::units;
use serde_json::json;

use super::parameters::now_ns;
use crate::answer::{micros, number};
use crate::limits;
use crate::request::{Endpoint, OBJECT};

/// Length of a part of the time, and the number of parts: a week.
const PART_NS: i64 = 6 * 3_600_000_000_000;
const PARTS: usize = 28;

pub(super) static LOSS_TREND: Endpoint = Endpoint {
    path: "/api/v1/loss-trend",
    id: "loss_trend",
    summary: "The samples that were lost in the last week, in parts of six hours by the times at which the losses were detected; for administrators, \
        others have none. `is_complete` is false if there were more than 10,000 losses: the first parts lack some.",
    parameters: &[],
    formats: OBJECT,
    answer: || {
        json!({"type": "object", "required": ["from_us", "part_s", "lost", "is_complete"], "properties": {
            "from_us": {"type": "integer"}, "part_s": {"type": "number"}, "lost": {"type": "array", "items": {"type": "integer"}},
            "is_complete": {"type": "boolean"},
        }})
    },
    body: None,
    handler: |call| {
        Box::pin(call.object(|reader, _| {
            let begin_ns = now_ns().saturating_sub(PART_NS.saturating_mul(i64::try_from(PARTS).unwrap_or(i64::MAX)));
            let losses = reader.last_losses(limits::TREND_LOSSES)?;
            let mut lost = [0_u64; PARTS];
            for loss in losses.iter().filter(|loss| loss.time_ns >= begin_ns) {
                let part = usize::try_from((loss.time_ns - begin_ns) / PART_NS).unwrap_or(usize::MAX).min(PARTS - 1);
                if let Some(sum) = lost.get_mut(part) {
                    *sum = sum.saturating_add(loss.samples);
                }
            }
            let is_full = losses.len() >= usize::try_from(limits::TREND_LOSSES).unwrap_or(usize::MAX);
            let is_complete = !is_full || losses.first().is_some_and(|loss| loss.time_ns < begin_ns);
            let part_s = number(units::seconds_between(0, PART_NS));
            Ok(json!({"from_us": micros(begin_ns), "part_s": part_s, "lost": lost, "is_complete": is_complete}))
        }))
    },
};
