//! Notices that were sent about jobs.

use polymeter_store::reader::NoticeRow;
use serde_json::json;

use crate::answer::{Column, Table, Type, micros};
use crate::limits;
use crate::request::{Endpoint, Kind, Parameter, TABLE};

static NOTICES_TABLE: Table<NoticeRow> = Table {
    name: "notices",
    columns: &[
        Column::new("time_us", Type::Integer, "The time.", |of| json!(micros(of.time_ns))),
        Column::new("rule", Type::Text, "The id of the rule.", |of| json!(of.rule)),
        Column::new("job", Type::Text, "The scheduler's id of the job.", |of| json!(of.job_id)),
        Column::new("key", Type::Integer, "The key of the job.", |of| json!(of.job_key)),
        Column::optional("uid", Type::Integer, "The owner of the job.", |of| json!(of.uid)),
        Column::new("recipient", Type::Text, "The recipient.", |of| json!(of.recipient)),
        Column::new("subject", Type::Text, "The subject.", |of| json!(of.subject)),
        Column::new("text", Type::Text, "The text.", |of| json!(of.text)),
        Column::optional(
            "result",
            Type::Text,
            "What became of it, by action; none while it is sent, or if its collector ended meanwhile.",
            |of| json!(of.result),
        ),
    ],
};

pub(super) static NOTICES: Endpoint = Endpoint {
    path: "/api/v1/notices",
    id: "notices",
    summary: "The notices that were sent about the jobs of the user, or of all users for administrators; the newest first.",
    parameters: &[Parameter::query("limit", Kind::Integer(1, limits::NOTICES), "The number of notices.")],
    formats: TABLE,
    answer: || NOTICES_TABLE.schema(&[]),
    body: None,
    handler: |call| {
        let limit = call.arguments.integer("limit").unwrap_or(limits::NOTICES);
        let limit = u32::try_from(limit).unwrap_or(1);
        Box::pin(
            call.stream(move |reader, _, chunks| {
                NOTICES_TABLE.write(chunks, reader.notices(None, limit)?, &[])
            }),
        )
    },
};
