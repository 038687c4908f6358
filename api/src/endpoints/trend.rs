//! Trend of the runs of one name.

use axum::http::StatusCode;
use polymeter_analysis::trend::{Choice, QUANTITIES, trend};
use serde_json::{Map, Value, json};

use super::parameters::{FROM_US, UNTIL_US, time_ns};
use crate::answer::Problem;
use crate::request::{Endpoint, Kind, OBJECT, Parameter};

const NAME: Parameter = Parameter::required("name", Kind::Text, "The name of the jobs or runs, all of it.");

const OF_USER: Parameter = Parameter::query(
    "user",
    Kind::Text,
    "The owner, by name or numeric id; by default the owner of the run that started last.",
);

pub(super) static TREND: Endpoint = Endpoint {
    path: "/api/v1/trend",
    id: "trend",
    summary: "What the runs of one name used, at most those 10,000 that started last, and where that changed, as \
        `polymeter trend --json` prints it: runs that ended from `from_us` on and started before `until_us`.",
    parameters: &[NAME, OF_USER, FROM_US, UNTIL_US],
    formats: OBJECT,
    answer: schema,
    body: None,
    handler: |call| {
        let arguments = &call.arguments;
        let choice = Choice {
            name: arguments.owned(NAME.name).unwrap_or_default(),
            user: arguments.owned(OF_USER.name),
            since_ns: time_ns(arguments, FROM_US.name),
            until_ns: time_ns(arguments, UNTIL_US.name),
        };
        Box::pin(call.object(move |reader, _| {
            // Nothing tells a name of others from one that no job has.
            Ok(serde_json::to_value(trend(reader, &choice)?.ok_or_else(|| {
                Problem::new(StatusCode::NOT_FOUND, "unknown_name", "no ended job of this name, or not yours")
            })?)?)
        }))
    },
};

fn schema() -> Value {
    let text = json!({"type": "string"});
    let key = json!({"type": "integer", "description": "The key of the job."});
    let time = json!({"type": "integer", "description": "The start, in microseconds since the epoch."});
    let number = json!({"type": "number"});
    let known = json!({"type": ["number", "null"]});
    let list = |required: &[&str], properties: Value| json!({"type": "array", "items": {"type": "object", "required": required, "properties": properties}});
    let quantities = QUANTITIES.map(|of| of.key);
    let of_run = [("key", &key), ("job", &text), ("started_us", &time)].into_iter();
    let of_run = of_run.chain(quantities.iter().map(|quantity| (*quantity, &known)));
    let run: Map<String, Value> = of_run.map(|(name, schema)| (name.to_owned(), schema.clone())).collect();
    let level =
        json!({"quantity": {"enum": quantities}, "before": number, "after": number, "percent": known});
    let with = json!({"attribute": text, "before": text, "after": text});
    let change = json!({
        "key": key, "job": text, "started_us": time,
        "levels": list(&["quantity", "before", "after", "percent"], level),
        "with": list(&["attribute", "before", "after"], with),
    });
    json!({
        "type": "object",
        "required": ["name", "user", "uid", "left_out", "changes", "runs"],
        "properties": {
            "name": text,
            "user": {"type": ["string", "null"]},
            "uid": {"type": ["integer", "null"]},
            "left_out": {"type": "integer", "description": "The runs that did not finish, or have no figures yet."},
            "changes": list(&["key", "job", "started_us", "levels", "with"], change),
            "runs": list(&["key", "job", "started_us"], run.into()),
        },
    })
}
