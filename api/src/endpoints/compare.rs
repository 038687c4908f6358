//! Comparison of jobs.

use std::collections::BTreeSet;

use polymeter_analysis::compare::{Subject, compare};
use polymeter_analysis::gather::gather;
use polymeter_store::reader::Read;
use serde_json::{Value, json};

use super::parameters::find_job;
use crate::answer::{Failure, Problem};
use crate::limits;
use crate::request::{Endpoint, Kind, OBJECT, Parameter};

const A: Parameter = Parameter::required(
    "a",
    Kind::Integers(limits::COMPARED_JOBS),
    "The key of a job, or of several, separated by commas: the first side.",
);

const B: Parameter = Parameter { name: "b", help: "The key of a job, or of several: the second side.", ..A };

pub(super) static COMPARE: Endpoint = Endpoint {
    path: "/api/v1/compare",
    id: "compare",
    summary: "The comparison of two jobs, or of two groups of jobs, as `polymeter compare --json` prints it.",
    parameters: &[A, B],
    formats: OBJECT,
    answer: schema,
    body: None,
    handler: |call| {
        let sides =
            [&A, &B].map(|side| (side, call.arguments.integers(side.name).unwrap_or_default().to_vec()));
        Box::pin(call.object(move |reader, _| {
            let mut known = BTreeSet::new();
            let [a, b] = &sides;
            let comparison = compare(&subjects(reader, a, &mut known)?, &subjects(reader, b, &mut known)?);
            Ok(serde_json::to_value(comparison)?)
        }))
    },
};

/// Reads the jobs of a side that are not in `known`, and adds them to it.
fn subjects(
    reader: &mut dyn Read,
    (side, keys): &(&Parameter, Vec<i64>),
    known: &mut BTreeSet<i64>,
) -> Result<Vec<Subject>, Failure> {
    let mut subjects = Vec::new();
    for key in keys {
        if !known.insert(*key) {
            return Err(Failure::from(Problem::invalid(side.name, format!("the job {key} is named twice"))));
        }
        let job = find_job(reader, *key)?;
        subjects.push(Subject::of(&gather(reader, &job, None)?));
    }
    Ok(subjects)
}

fn schema() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let value = json!({"type": ["number", "null"]});
    json!({
        "type": "object",
        "required": ["a", "b", "basis", "rows"],
        "properties": {
            "a": texts, "b": texts,
            "basis": {"enum": ["jobs", "parts_of_jobs"], "description": "The variation that the intervals cover."},
            "rows": {"type": "array", "items": {
                "type": "object",
                "required": ["phase", "metric", "unit", "a", "b", "difference", "percent", "interval", "verdict", "is_estimate"],
                "properties": {
                    "phase": {"type": ["string", "null"]}, "metric": text, "unit": text,
                    "a": value, "b": value, "difference": value, "percent": value,
                    "interval": {"type": ["array", "null"], "items": {"type": "number"}},
                    "verdict": {"enum": ["higher", "lower", "no_difference_shown", "too_few_values", "one_side_only"]},
                    "is_estimate": {"type": "boolean"},
                },
            }},
        },
    })
}
