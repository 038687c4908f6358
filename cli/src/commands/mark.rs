//! `polymeter mark` and `push`: what a user puts into the data herself.

use std::collections::BTreeMap;

use polymeter_agent::control::{Answer, Mark, Push, Verb};
use polymeter_proto::ledger::MarkKind;

use super::job::Job;
use super::{Place, Reach, ask, json, refused};
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, clap::Args)]
pub(crate) struct MarkArguments {
    /// What is marked, such as `solver` or 'checkpoint 3'.
    #[arg(value_name = "NAME")]
    name: String,

    /// A phase of this name begins.
    #[arg(long)]
    begin: bool,

    /// The phase of this name ends.
    #[arg(long, conflicts_with = "begin")]
    end: bool,

    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PushArguments {
    /// The metric, which gets `user.` before its name, and its value now: loss=0.25.
    #[arg(value_name = "METRIC=VALUE")]
    value: String,

    /// The value's unit, such as images/s.
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,

    /// What tells the series from others of the metric: --label rank=3. May be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    place: Place,
}

impl MarkArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.reach.json
    }
}

impl PushArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.place.json
    }
}

pub(crate) fn mark(arguments: &MarkArguments) -> Result<(), Failure> {
    let kind = match (arguments.begin, arguments.end) {
        (true, _) => MarkKind::Begin,
        (_, true) => MarkKind::End,
        _ => MarkKind::Instant,
    };
    let mark = Mark {
        job: arguments.job.id(arguments.reach.socket())?,
        name: arguments.name.clone(),
        kind: Some(kind.as_str().to_owned()),
    };
    let answer = arguments.reach.ask(&Verb::Mark(mark), arguments.job.is_one())?;
    answer.map_or(Ok(()), |answer| done(answer, arguments.reach.json))
}

pub(crate) fn push(arguments: &PushArguments) -> Result<(), Failure> {
    let (metric, value) = pair(&arguments.value, "loss=0.25")?;
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    let value = number.ok_or_else(|| {
        Failure::Usage(format!("`{value}` is no number: write {metric}=0.25 or {metric}=1e-3"))
    })?;
    let labels: Result<BTreeMap<String, String>, Failure> =
        arguments.labels.iter().map(|label| pair(label, "rank=3")).collect();
    let push = Push {
        labels: labels?,
        job: arguments.job.id(&arguments.place.socket)?,
        metric,
        value,
        unit: arguments.unit.clone(),
    };
    done(ask(&arguments.place.socket, &Verb::Push(push))?, arguments.place.json)
}

fn pair(text: &str, example: &str) -> Result<(String, String), Failure> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::Usage(format!("`{text}` has no value: write it as {example}")))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// What was asked is done. That needs no words: a job's script says it in every loop.
fn done(answer: Answer, as_json: bool) -> Result<(), Failure> {
    let Answer::Done {} = &answer else { return Err(refused(answer)) };
    if as_json { terminal::print_json(&json(&answer)) } else { Ok(()) }
}
