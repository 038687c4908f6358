//! Sampling plan of a running job, through the coordinator: same rights, limits and answers as the
//! command.

use axum::http::StatusCode;
use polymeter_proto::control::invalid;
use serde_json::{Map, Value, json};

use super::parameters::{KEY, find_job, key};
use crate::answer::Problem;
use crate::request::{Answer, Call, Endpoint, OBJECT};

fn nodes_schema() -> Value {
    json!({
        "type": "object",
        "required": ["job", "nodes"],
        "properties": {
            "job": {"type": "string"},
            "at_us": {"type": "integer", "description": "The common time at which it takes effect."},
            "nodes": {"type": "array", "items": {
                "type": "object",
                "required": ["node", "answer"],
                "properties": {"node": {"type": "string"}, "answer": {"type": ["object", "null"]}},
            }},
        },
    })
}

pub(super) static PLAN: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/plan",
    id: "plan",
    summary: "The present sampling plan of a running job, as each of its agents reports it.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: nodes_schema,
    body: None,
    handler: |call| ask(call, "plan", Map::new()),
};

pub(super) static SET_PERIODS: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/periods",
    id: "set_periods",
    summary: "Samples metrics of a running job at other periods for a while, as `polymeter set`. Each node grants or refuses.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: nodes_schema,
    body: Some(|| {
        json!({
            "type": "object",
            "required": ["plan"],
            "additionalProperties": false,
            "properties": {
                "plan": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Selectors and periods."},
                "for": {"type": "string", "description": "The duration, such as `10min`; without it, the maximum allowed."},
            },
        })
    }),
    handler: |call| with_body(call, "set", &["plan", "for"]),
};

pub(super) static RESET_PERIODS: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/reset",
    id: "reset_periods",
    summary: "Ends the user's leases of a running job, as `polymeter reset`.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: nodes_schema,
    body: Some(|| json!({"type": "object", "additionalProperties": false})),
    handler: |call| with_body(call, "reset", &[]),
};

/// Sends a request whose fields are those of the body, of which only `known` are allowed.
fn with_body(call: Call, verb: &'static str, known: &'static [&'static str]) -> Answer {
    let fields = match serde_json::from_slice(&call.body) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => {
            let problem = Problem::new(StatusCode::BAD_REQUEST, "malformed", "expected a JSON object");
            return Box::pin(async { Err(problem) });
        }
    };
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        let shown: String = name.chars().take(64).collect();
        let refusal = invalid(&shown, &"unknown member");
        return Box::pin(async { Err(refusal.into()) });
    }
    ask(call, verb, fields)
}

/// Sends a request about the job to its agents. The user must be permitted to see the job.
fn ask(call: Call, verb: &'static str, fields: Map<String, Value>) -> Answer {
    let key = key(&call.arguments);
    Box::pin(async move {
        let readers = &call.services.readers;
        let job_id = readers.read(call.principal, move |reader, _| Ok(find_job(reader, key)?.job_id)).await?;
        let answer = call.ask_agents(&job_id, verb, fields).await?;
        Ok(call.reply(json!(answer).to_string()))
    })
}
