//! The sampling plan of a running job, through the coordinator: same rights, limits and answers as the
//! command.

use axum::response::Response;
use polymeter_proto::control::{CollectorAnswer, invalid};
use serde_json::{Map, Value, json};

use super::parameters::{KEY, find_job, key};
use crate::call::{Call, json as json_response};
use crate::endpoint::{Answer, Endpoint, Method, OBJECT};
use crate::problem::Problem;

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
    method: Method::Get,
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
    method: Method::Post,
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
    method: Method::Post,
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
            let status = axum::http::StatusCode::BAD_REQUEST;
            let problem = Problem::new(status, "malformed", "expected a JSON object");
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

/// Sends a request about the job to its agents. The job must be one that the user may see.
fn ask(call: Call, verb: &'static str, mut fields: Map<String, Value>) -> Answer {
    let key = key(&call.arguments);
    Box::pin(async move {
        let find = move |reader: &mut dyn polymeter_store::reader::Read, _| Ok(find_job(reader, key)?.job_id);
        let job_id = call.services.readers.read(call.principal, find).await?;
        fields.insert("verb".to_owned(), json!(verb));
        fields.insert("job".to_owned(), json!(job_id));
        match call.control(Value::Object(fields).to_string().into_bytes()).await? {
            CollectorAnswer::Nodes(answer) => Ok(object(&call, &json!(answer))),
            CollectorAnswer::Refused(refusal) => Err(refusal.into()),
            CollectorAnswer::Done {} | CollectorAnswer::Reading(_) | CollectorAnswer::Tokens(_) => {
                Ok(object(&call, &json!({})))
            }
        }
    })
}

fn object(call: &Call, value: &Value) -> Response {
    let text = value.to_string();
    call.permit.charge(text.len());
    json_response(text)
}
