//! What happened to a job: marks, changes of the plan, losses, refused requests.

use polymeter_store::StoreError;
use polymeter_store::reader::{LossRow, MarkRow, PlanChangeRow, Read, RefusedRow};
use serde_json::{Value, json};

use super::parameters::{KEY, find_job, key};
use crate::call::Call;
use crate::endpoint::{Answer, Endpoint, Method, TABLE};
use crate::table::{Column, Table, Type, micros};

/// Returns an endpoint that lists events of a job.
const fn endpoint(
    (path, id): (&'static str, &'static str),
    summary: &'static str,
    answer: fn() -> Value,
    handler: fn(Call) -> Answer,
) -> Endpoint {
    let (method, parameters, formats, body) = (Method::Get, &[KEY], TABLE, None);
    Endpoint { method, path, id, summary, parameters, formats, answer, body, handler }
}

fn list<T>(
    call: Call,
    table: &'static Table<T>,
    read: fn(&mut dyn Read, i64) -> Result<Vec<T>, StoreError>,
) -> Answer {
    let (key, format) = (key(&call.arguments), call.format);
    Box::pin(call.stream(move |reader, _, chunks| {
        find_job(reader, key)?;
        let rows = read(reader, key)?;
        let mut out = table.writer(format, chunks)?;
        rows.iter().try_for_each(|row| out.push(row))?;
        out.end(&[] as &[(&str, Value)])
    }))
}

static MARK_TABLE: Table<MarkRow> = Table {
    name: "marks",
    columns: &[
        Column::new("time_us", Type::Integer, "The time.", |row| json!(micros(row.time_ns))),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("name", Type::Text, "The name.", |row| json!(row.name)),
        Column::new("kind", Type::Text, "`instant`, or `begin` or `end` of a phase.", |row| json!(row.kind)),
        Column::optional("actor", Type::Text, "The user that made the mark.", |row| json!(row.actor)),
    ],
};
pub(super) static MARKS: Endpoint = endpoint(
    ("/api/v1/jobs/{key}/marks", "marks"),
    "The marks of a job.",
    || MARK_TABLE.schema(&[]),
    |call| list(call, &MARK_TABLE, |reader, key| reader.marks(key)),
);

static CHANGE_TABLE: Table<PlanChangeRow> = Table {
    name: "plan_changes",
    columns: &[
        Column::new("time_us", Type::Integer, "The time at which it took effect.", |row| {
            json!(micros(row.time_ns))
        }),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("metric", Type::Text, "The metric.", |row| json!(row.metric)),
        Column::optional(
            "old_period_us",
            Type::Integer,
            "The previous period; none if it was not sampled.",
            |row| json!(row.old_period_us),
        ),
        Column::optional(
            "new_period_us",
            Type::Integer,
            "The new period; none if it is no longer sampled.",
            |row| json!(row.new_period_us),
        ),
        Column::new("cause", Type::Text, "The cause.", |row| json!(row.cause)),
        Column::optional("actor", Type::Text, "The user that requested it.", |row| json!(row.actor)),
        Column::optional("until_us", Type::Integer, "The time at which it expires.", |row| {
            json!(row.until_ns.map(micros))
        }),
    ],
};
pub(super) static PLAN_CHANGES: Endpoint = endpoint(
    ("/api/v1/jobs/{key}/plan-changes", "plan_changes"),
    "The changes of the sampling plan of a job.",
    || CHANGE_TABLE.schema(&[]),
    |call| list(call, &CHANGE_TABLE, |reader, key| reader.plan_changes(key)),
);

static LOSS_TABLE: Table<LossRow> = Table {
    name: "losses",
    columns: &[
        Column::new("time_us", Type::Integer, "The time at which the loss was detected.", |row| {
            json!(micros(row.time_ns))
        }),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("session", Type::Text, "The agent's session.", |row| json!(row.session_id)),
        Column::optional("source", Type::Text, "The source; none if it is unknown.", |row| json!(row.source)),
        Column::new("samples", Type::Integer, "The number of samples.", |row| json!(row.samples)),
        Column::new("reason", Type::Text, "The reason.", |row| json!(row.reason)),
        Column::new("first_us", Type::Integer, "The time of the oldest lost sample.", |row| {
            json!(micros(row.first_time_ns))
        }),
        Column::new("last_us", Type::Integer, "The time of the newest lost sample.", |row| {
            json!(micros(row.last_time_ns))
        }),
    ],
};
pub(super) static LOSSES: Endpoint = endpoint(
    ("/api/v1/jobs/{key}/losses", "losses"),
    "The samples of a job that are missing in the store.",
    || LOSS_TABLE.schema(&[]),
    |call| list(call, &LOSS_TABLE, |reader, key| reader.losses(key)),
);

static REFUSED_TABLE: Table<RefusedRow> = Table {
    name: "refused_requests",
    columns: &[
        Column::new("time_us", Type::Integer, "The time of the refusal.", |row| json!(micros(row.time_ns))),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("request", Type::Text, "The request.", |row| json!(row.request)),
        Column::optional("period_us", Type::Integer, "The requested period.", |row| json!(row.period_us)),
        Column::optional("actor", Type::Text, "The user of the request.", |row| json!(row.actor)),
        Column::new("reason", Type::Text, "The reason of the refusal.", |row| json!(row.reason)),
    ],
};
pub(super) static REFUSED_REQUESTS: Endpoint = endpoint(
    ("/api/v1/jobs/{key}/refused-requests", "refused_requests"),
    "The refused requests of a job's submission.",
    || REFUSED_TABLE.schema(&[]),
    |call| list(call, &REFUSED_TABLE, |reader, key| reader.refused_requests(key)),
);
