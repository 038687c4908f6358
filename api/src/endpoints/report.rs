//! The report of a job, and parts of it.

use std::path::Path;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::gather::gather;
use polymeter_analysis::meters::meters;
use polymeter_analysis::model::Report;
use polymeter_store::reader::Read;
use serde_json::{Map, Value, json};

use super::parameters::{KEY, find_job, key};
use crate::body::Failure;
use crate::call::Call;
use crate::endpoint::{Answer, Endpoint, Method, OBJECT, any_object};

pub(super) static REPORT: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/report",
    id: "report",
    summary: "The report of a job, as `polymeter report --json` prints it.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: any_object,
    body: None,
    handler: |call| part(call, |report| serde_json::to_value(report)),
};

/// The members of a report that are lists without a bound, and those that other resources have.
const LONG: [&str; 9] =
    ["by_node", "steps", "tasks", "series", "sources", "losses", "marks", "plan_changes", "refused_requests"];

pub(super) static SUMMARY: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/summary",
    id: "summary",
    summary: "The report of a job without its long lists: facts, usage, meters, findings, completeness.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: || {
        json!({"type": "object", "required": ["meters", "findings"], "properties": {"meters": {"type": "array", "items": {
            "type": "object",
            "required": ["label", "share", "level", "word", "text"],
            "properties": {
                "label": {"type": "string"}, "share": {"type": ["number", "null"]},
                "level": {"enum": ["plain", "good", "warning", "critical"]}, "word": {"type": "string"},
                "text": {"type": "string"},
            },
        }}}})
    },
    body: None,
    handler: |call| {
        part(call, |report| {
            let mut value = serde_json::to_value(report)?;
            if let Value::Object(members) = &mut value {
                without_long(members);
                let meters = serde_json::to_value(meters(report, &Facts::of(report)))?;
                members.insert("meters".to_owned(), meters);
            }
            Ok(value)
        })
    },
};

fn without_long(members: &mut Map<String, Value>) {
    LONG.iter().for_each(|name| drop(members.remove(*name)));
}

pub(super) static FINDINGS: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/findings",
    id: "findings",
    summary: "The findings about a job, the most severe first.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: || json!({"type": "object", "required": ["findings"], "properties": {"findings": {"type": "array", "items": {"type": "object"}}}}),
    body: None,
    handler: |call| part(call, |report| Ok(json!({"findings": serde_json::to_value(&report.findings)?}))),
};

fn part(call: Call, choose: fn(&Report) -> serde_json::Result<Value>) -> Answer {
    let (key, advice) = (key(&call.arguments), call.services.links.advice.clone());
    Box::pin(call.object(move |reader, _| {
        let report = report(reader, key, &advice)?;
        choose(&report).map_err(|_unwritable| Failure::internal())
    }))
}

/// Gathers the report of a job, with its findings.
fn report(reader: &mut dyn Read, key: i64, advice: &Path) -> Result<Report, Failure> {
    let job = find_job(reader, key)?;
    let mut report = gather(reader, &job, None)?;
    // Faults of the site's rules are reported by `--check` and by `polymeter report`.
    let (rules, _) = Advice::load(advice);
    rules.advise(&mut report);
    Ok(report)
}
