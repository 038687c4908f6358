//! Call stacks of a job: a tree of functions with their times, for flame graphs. The answer is bounded,
//! whatever the number of samples.

use std::ops::Range;

use polymeter_analysis::phases::spans_of;
use polymeter_analysis::stacks::profile::{Choice, Profile, Spans};
use polymeter_analysis::stacks::{Difference, Missing, page_data, remarks_before, summary};
use polymeter_store::reader::{JobRow, Read};
use serde_json::{Value, json};

use super::parameters::{FROM_US, KEY, NODE, UNTIL_US, find_job, key, time_ns};
use crate::answer::Failure;
use crate::limits;
use crate::request::{Arguments, Endpoint, Kind, OBJECT, Parameter};

const METRIC: Parameter = Parameter::query(
    "metric",
    Kind::Text,
    "The metric, such as `stacks.cpu` or `stacks.wait`; without it, `stacks.cpu`, or what the job has.",
);

const PROCESS: Parameter = Parameter::query(
    "process",
    Kind::Integer(0, u32::MAX as i64),
    "The id of a process on its node; without it, all processes.",
);

const PHASE: Parameter =
    Parameter::query("phase", Kind::Text, "The name of phases; without it, the whole time.");

const AGAINST: Parameter = Parameter::query(
    "against",
    Kind::Integer(0, i64::MAX),
    "The key of a job, which may be the same: the answer is the difference from its samples.",
);

const AGAINST_NODE: Parameter =
    Parameter::query("against_node", Kind::Text, "The name of a node of the job `against`.");

const AGAINST_PROCESS: Parameter = Parameter::query(
    "against_process",
    Kind::Integer(0, u32::MAX as i64),
    "The id of a process of the job `against`.",
);

const AGAINST_FROM_US: Parameter = Parameter::query(
    "against_from_us",
    Kind::Integer(0, limits::LATEST_US),
    "The begin of the time of the job `against`, in microseconds since the epoch.",
);

const AGAINST_UNTIL_US: Parameter = Parameter::query(
    "against_until_us",
    Kind::Integer(0, limits::LATEST_US),
    "The end of the time of the job `against`, which is excluded, in microseconds since the epoch.",
);

struct ChoiceParameters {
    node: Parameter,
    process: Parameter,
    from_us: Parameter,
    until_us: Parameter,
}

const CHOSEN: ChoiceParameters =
    ChoiceParameters { node: NODE, process: PROCESS, from_us: FROM_US, until_us: UNTIL_US };

const CHOSEN_AGAINST: ChoiceParameters = ChoiceParameters {
    node: AGAINST_NODE,
    process: AGAINST_PROCESS,
    from_us: AGAINST_FROM_US,
    until_us: AGAINST_UNTIL_US,
};

pub(super) static STACKS: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/stacks",
    id: "stacks",
    summary: "The functions in which a job spent its time, as a tree. Only the owner of a job, support staff and administrators see \
        them; for others there are none.",
    parameters: &[
        KEY,
        METRIC,
        NODE,
        PROCESS,
        PHASE,
        FROM_US,
        UNTIL_US,
        AGAINST,
        AGAINST_NODE,
        AGAINST_PROCESS,
        AGAINST_FROM_US,
        AGAINST_UNTIL_US,
    ],
    formats: OBJECT,
    answer: schema,
    body: None,
    handler: |call| {
        let arguments = call.arguments.clone();
        Box::pin(call.object(move |reader, _| {
            let job = find_job(reader, key(&arguments))?;
            answer(reader, &job, &arguments)
        }))
    },
};

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["functions", "nodes", "total_us", "summary", "remarks"],
        "properties": {
            "functions": {"type": "array", "items": {"type": "array", "items": {"type": "string"}},
                "description": "Names of functions with their modules; a module in brackets where there is no symbol."},
            "nodes": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}},
                "description": "The tree: the position of the caller or -1, that of the function, and the time in the function \
                    itself and in all, in microseconds. A caller precedes what it calls. In a difference these are the sums of \
                    both sides; then follow the times in all of `against` and of the job."},
            "total_us": {"type": "integer"},
            "compared_us": {"type": "array", "items": {"type": "integer"},
                "description": "In a difference, the times of `against` and of the job, in microseconds."},
            "summary": {"type": "object", "description": "The part `call_stacks` of a report for these samples."},
            "remarks": {"type": "array", "items": {"type": "string"}, "description": "What is missing, in words."},
        },
    })
}

fn answer(reader: &mut dyn Read, job: &JobRow, arguments: &Arguments) -> Result<Value, Failure> {
    let metric = arguments.text(METRIC.name).map(str::to_owned);
    let (profile, missing) = profile(reader, job, arguments, &CHOSEN, metric)?;
    let tree = profile.tree();
    let summary = summary(&profile, missing);
    let mut remarks = summary.remarks();
    let mut difference = None;
    if let Some(key) = arguments.integer(AGAINST.name) {
        let other = find_job(reader, key)?;
        let metric = Some(profile.metric.clone());
        let (before, missing) = self::profile(reader, &other, arguments, &CHOSEN_AGAINST, metric)?;
        remarks.extend(remarks_before(&before, missing));
        difference = Some(Difference::of(&before.tree(), &tree));
    }
    let mut answer = page_data(&tree, difference.as_ref());
    if let Some(answer) = answer.as_object_mut() {
        if difference.is_none() {
            answer.remove("compared_us");
        }
        answer.insert("remarks".to_owned(), json!(remarks));
        answer.insert("summary".to_owned(), json!(summary));
    }
    Ok(answer)
}

fn profile(
    reader: &mut dyn Read,
    job: &JobRow,
    arguments: &Arguments,
    chosen: &ChoiceParameters,
    metric: Option<String>,
) -> Result<(Profile, Missing), Failure> {
    let bound = |parameter: &Parameter, otherwise| time_ns(arguments, parameter.name).unwrap_or(otherwise);
    let span_ns = bound(&chosen.from_us, job.sampled_ns.start)..bound(&chosen.until_us, job.sampled_ns.end);
    let spans = spans(reader, job, arguments, chosen, &span_ns)?;
    let process = arguments.integer(chosen.process.name).and_then(|process| u32::try_from(process).ok());
    let choice = Choice { metric, process, spans, processes: None };
    let profile = Profile::read(reader, job.job_key, &choice)?;
    let missing = Missing::read(reader, job.job_key, &profile.metric, &choice.spans)?;
    Ok((profile, missing))
}

/// Spans of the wanted samples, each with its node.
fn spans(
    reader: &mut dyn Read,
    job: &JobRow,
    arguments: &Arguments,
    chosen: &ChoiceParameters,
    span_ns: &Range<i64>,
) -> Result<Spans, Failure> {
    let node = arguments.text(chosen.node.name).map(str::to_owned);
    let Some(phase) = arguments.text(PHASE.name) else { return Ok(vec![(node, span_ns.clone())]) };
    let phases = spans_of(reader.marks(job.job_key)?, phase, job).into_iter();
    let wanted = phases.filter(|(of, _)| node.as_ref().is_none_or(|node| node == of));
    let within = wanted
        .map(|(of, phase_ns)| (Some(of), phase_ns.start.max(span_ns.start)..phase_ns.end.min(span_ns.end)));
    Ok(within.collect())
}
