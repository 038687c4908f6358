//! Report of a job, and parts of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::response::Response;
use polymeter_analysis::advice::Advice;
use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::device_text::device_text;
use polymeter_analysis::gather::gather;
use polymeter_analysis::meters::meters;
use polymeter_analysis::model::Report;
use polymeter_proto::units;
use polymeter_service::clock;
use polymeter_store::reader::{Access, JobRow, Read};
use serde_json::{Map, Value, json};

use super::parameters::{KEY, find_job, key};
use crate::answer::{Failure, Problem, number};
use crate::request::{Answer, Call, Endpoint, Kind, OBJECT, Parameter, Services};

pub(super) static REPORT: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/report",
    id: "report",
    summary: "The report of a job, as `polymeter report --json` prints it.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: || json!({"type": "object"}),
    body: None,
    handler: |call| part(call, |report| serde_json::to_value(report)),
};

/// Members of a report that are lists without a bound, and those that other resources have.
const LONG: [&str; 11] = [
    "by_node",
    "devices",
    "energy_sources",
    "steps",
    "tasks",
    "series",
    "sources",
    "losses",
    "marks",
    "plan_changes",
    "refused_requests",
];

const MEMBERS: Parameter = Parameter::query(
    "members",
    Kind::Choice(&["list"]),
    "`list` for the meters and findings only, as a list of jobs shows them.",
);

/// Triggers that fired, the latest ones, in a summary.
const FIRINGS: usize = 100;

/// Members of a summary for a list of jobs.
const LISTED: [&str; 2] = ["findings", "meters"];

pub(super) static SUMMARY: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/summary",
    id: "summary",
    summary: "The report of a job without its long lists: verdict, facts, usage, meters, findings, completeness. That of a running job may be 10 s old.",
    parameters: &[KEY, MEMBERS],
    formats: OBJECT,
    answer: || {
        json!({"type": "object", "required": ["meters", "findings"], "properties": {"verdict": {
            "type": "object",
            "required": ["state", "used", "things", "text"],
            "properties": {
                "state": {"type": "string"}, "used": {"type": ["string", "null"]}, "things": {"type": "integer"},
                "text": {"type": "string"},
            },
        }, "extents": {
            "type": "object", "additionalProperties": {"type": "array", "items": {"type": ["number", "null"]}},
        }, "meters": {"type": "array", "items": {
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
    handler: |call| Box::pin(summary(call)),
};

/// Answers with the summary of a job. That of a running job may be some seconds old.
async fn summary(call: Call) -> Result<Response, Problem> {
    let (key, services) = (key(&call.arguments), Arc::clone(&call.services));
    let read = call
        .services
        .readers
        .read(call.principal, move |reader, access| recent_summary(reader, access, key, &services));
    let text = read.await?;
    if call.arguments.text(MEMBERS.name).is_none() {
        return Ok(call.reply(text.to_string()));
    }
    Ok(call.reply(listed(&text).ok_or_else(Problem::internal)?))
}

/// Returns the part of a summary that lists show.
fn listed(summary: &str) -> Option<String> {
    let mut summary: Map<String, Value> = serde_json::from_str(summary).ok()?;
    summary.retain(|name, _| LISTED.contains(&name.as_str()));
    Some(Value::Object(summary).to_string())
}

fn recent_summary(
    reader: &mut dyn Read,
    access: Access,
    key: i64,
    services: &Services,
) -> Result<Arc<str>, Failure> {
    // Whether the user may see the job is decided anew.
    let job = find_job(reader, key)?;
    if let Some(text) = services.recent.get(&access, key, clock::monotonic_ns()) {
        return Ok(text);
    }
    let report = report(reader, &job, &services.links.advice)?;
    let text: Arc<str> = summary_of(report)?.to_string().into();
    if job.ended_ns.is_none() {
        services.recent.put(access, key, &text, clock::monotonic_ns());
    }
    Ok(text)
}

fn summary_of(mut report: Report) -> serde_json::Result<Value> {
    let meters = serde_json::to_value(meters(&report, &Facts::of(&report)))?;
    let (no_findings, extents) = (report.no_findings(), extents(&report));
    let measured_by_devices = device_text(&report);
    clear_long(&mut report);
    let mut value = serde_json::to_value(report)?;
    if let Value::Object(members) = &mut value {
        for name in LONG {
            members.remove(name);
        }
        members.insert("meters".to_owned(), meters);
        members.insert("extents".to_owned(), extents);
        members.insert("measured_by_devices".to_owned(), measured_by_devices.into());
        members.insert("no_findings".to_owned(), no_findings.into());
    }
    Ok(value)
}

/// Returns the least, the largest and the mean value of each metric over its series: pages leave out the
/// charts of metrics that do not change.
fn extents(report: &Report) -> Value {
    let mut series_of: BTreeMap<&str, Vec<[f64; 3]>> = BTreeMap::new();
    for series in &report.series {
        if let (Some(min), Some(max), Some(mean)) = (series.min, series.max, series.mean) {
            series_of.entry(&series.metric).or_default().push([min, max, mean]);
        }
    }
    let mut extents = Map::new();
    for (metric, values) in series_of {
        let min = values.iter().fold(f64::INFINITY, |least, [min, ..]| least.min(*min));
        let max = values.iter().fold(f64::NEG_INFINITY, |most, [_, max, _]| most.max(*max));
        let sum: f64 = values.iter().map(|[.., mean]| mean).sum();
        let mean = sum / units::to_f64(values.len() as u64);
        extents.insert(metric.to_owned(), json!([number(min), number(max), number(mean)]));
    }
    Value::Object(extents)
}

/// Empties the long lists of a report: their JSON form would take longer than the rest of the summary.
fn clear_long(report: &mut Report) {
    report.by_node.clear();
    report.devices.clear();
    report.energy_sources.clear();
    report.steps.clear();
    report.tasks.clear();
    report.series.clear();
    report.sources.clear();
    report.losses.clear();
    report.marks.clear();
    report.plan_changes.clear();
    report.refused_requests.clear();
    let early = report.firings.len().saturating_sub(FIRINGS);
    report.firings.drain(..early);
}

pub(super) static FINDINGS: Endpoint = Endpoint {
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
        let job = find_job(reader, key)?;
        let report = report(reader, &job, &advice)?;
        Ok(choose(&report)?)
    }))
}

fn report(reader: &mut dyn Read, job: &JobRow, advice: &Path) -> Result<Report, Failure> {
    let mut report = gather(reader, job, None)?;
    // Faults of the site's rules are reported by `--check` and by `polymeter report`.
    let (rules, _) = Advice::load(advice);
    rules.advise(&mut report);
    Ok(report)
}
