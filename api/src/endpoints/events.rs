//! What happened to a job: marks, changes of the plan, losses, refused requests.

use polymeter_analysis::plan_fold::FoldedChanges;
use polymeter_store::StoreError;
use polymeter_store::reader::{Read, RefusedRow};
use serde_json::{Value, json};

use super::parameters::{KEY, find_job, key};
use crate::answer::{Column, Table, Type, micros, rows};
use crate::request::{Answer, Call, Endpoint, TABLE};

const fn endpoint(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answer: fn() -> Value,
    handler: fn(Call) -> Answer,
) -> Endpoint {
    Endpoint { path, id, summary, parameters: &[KEY], formats: TABLE, answer, body: None, handler }
}

/// Answers with the rows that `read` returns for the key of a job.
pub(super) fn list<T>(
    call: Call,
    table: &'static Table<T>,
    read: fn(&mut dyn Read, i64) -> Result<Vec<T>, StoreError>,
) -> Answer {
    let key = key(&call.arguments);
    Box::pin(call.stream(move |reader, _, chunks| {
        find_job(reader, key)?;
        table.write(chunks, read(reader, key)?, &[])
    }))
}

pub(super) static MARKS: Endpoint = endpoint(
    "/api/v1/jobs/{key}/marks",
    "marks",
    "The marks of a job.",
    || rows::MARKS.schema(&[]),
    |call| list(call, &rows::MARKS, |reader, key| reader.marks(key)),
);

pub(super) static KEPT_INTERVALS: Endpoint = endpoint(
    "/api/v1/jobs/{key}/kept-intervals",
    "kept_intervals",
    "The intervals of a job of which rings kept the samples. `samples` has these with `set=kept`.",
    || rows::KEPT_INTERVALS.schema(&[]),
    |call| list(call, &rows::KEPT_INTERVALS, |reader, key| reader.kept_intervals(key)),
);

pub(super) static FIRINGS: Endpoint = endpoint(
    "/api/v1/jobs/{key}/firings",
    "firings",
    "The triggers of a job that fired: why, what was done, and which nodes could not keep the interval.",
    || rows::FIRINGS.schema(&[]),
    |call| list(call, &rows::FIRINGS, |reader, key| reader.firings(key)),
);

pub(super) static PLAN_CHANGES: Endpoint = endpoint(
    "/api/v1/jobs/{key}/plan-changes",
    "plan_changes",
    "The changes of the sampling plan of a job. Where there are more than a thousand, those that differ in the metric only and those \
        that repeat others are one, and at most a thousand are listed.",
    || rows::PLAN_CHANGES.schema(&[]),
    |call| {
        list(call, &rows::PLAN_CHANGES, |reader, key| Ok(FoldedChanges::of(reader.plan_changes(key)?).lines))
    },
);

pub(super) static LOSSES: Endpoint = endpoint(
    "/api/v1/jobs/{key}/losses",
    "losses",
    "The samples of a job that are missing in the store.",
    || rows::LOSSES.schema(&[]),
    |call| list(call, &rows::LOSSES, |reader, key| reader.losses(key)),
);

static REFUSED_TABLE: Table<RefusedRow> = Table {
    name: "refused_requests",
    columns: &[
        Column::new("time_us", Type::Integer, "The time of the refusal.", |row| json!(micros(row.time_ns))),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("request", Type::Text, "The request.", |row| json!(row.request)),
        Column::optional("period_us", Type::Integer, "The requested period.", |row| json!(row.period_us)),
        Column::optional("window_us", Type::Integer, "The requested length of windows.", |row| {
            json!(row.window_us)
        }),
        Column::optional("actor", Type::Text, "The user of the request.", |row| json!(row.actor)),
        Column::new("reason", Type::Text, "The reason of the refusal.", |row| json!(row.reason)),
    ],
};
pub(super) static REFUSED_REQUESTS: Endpoint = endpoint(
    "/api/v1/jobs/{key}/refused-requests",
    "refused_requests",
    "The refused requests of a job's submission.",
    || REFUSED_TABLE.schema(&[]),
    |call| list(call, &REFUSED_TABLE, |reader, key| reader.refused_requests(key)),
);
