//! Call stacks of a job as rows: one for each interval, process and stack.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_analysis::stacks::{Stacks, folded};
use polymeter_proto::name::Selector;
use polymeter_proto::units;
use polymeter_samples_file::{Encoder, SamplesError, SeriesTexts};
use polymeter_store::reader::{JobRow, Read, StackRow};
use serde_json::json;

use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::progress::Progress;
use crate::report::choice::ChosenJob;
use crate::store_failure::cannot_read;

/// About a kilobyte each.
const TEXTS_MAX: usize = 20_000;

/// An empty list is all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) metrics: &'a [Selector],
    pub(super) nodes: &'a [String],
}

impl Wanted<'_> {
    fn has(self, metric: &str, node: &str) -> bool {
        let has_metric = self.metrics.is_empty() || self.metrics.iter().any(|wanted| wanted.matches(metric));
        has_metric && (self.nodes.is_empty() || self.nodes.iter().any(|wanted| wanted == node))
    }
}

/// Number of samples; refuses a job without call stacks, and a step.
pub(super) fn check(
    wanted: Wanted<'_>,
    reader: &mut dyn Read,
    ChosenJob { job, step, .. }: &ChosenJob,
) -> Result<u64, Failure> {
    let job_id = printable_name(&job.job_id);
    if step.is_some() {
        let message = "cannot export the call stacks of a step: they belong to the job; name the job alone";
        return Err(Failure::Usage(message.to_owned()));
    }
    let intervals = reader.stack_intervals(job.job_key, None, &job.sampled_ns);
    let intervals = intervals.map_err(cannot_read)?;
    let chosen = intervals.iter().filter(|row| wanted.has(&row.metric, &row.node));
    let samples: u64 = chosen.map(|row| row.samples).sum();
    if samples > 0 {
        return Ok(samples);
    }
    let (what, remedy) = if intervals.is_empty() {
        ("call stacks", "`polymeter set stacks.cpu=10ms` samples them while the job runs")
    } else {
        ("call stacks of these metrics and nodes", "`polymeter flame --json` lists what there is")
    };
    Err(Failure::Failed(format!("cannot export {what}: job {job_id} has none; {remedy}")))
}

pub(super) fn fill(
    wanted: Wanted<'_>,
    reader: &mut dyn Read,
    job: &JobRow,
    encoder: &mut Encoder,
    progress: &Progress,
) -> Result<(), SamplesError> {
    let mut stacks = Stacks::default();
    reader.stack_nodes(job.job_key, |row| {
        stacks.add(row);
        Ok::<_, SamplesError>(())
    })?;
    let mut texts: HashMap<(String, String, u32, i64, u64), Arc<SeriesTexts>> = HashMap::new();
    let mut samples = 0_u64;
    reader.stacks_by_interval(job.job_key, &job.sampled_ns, |row| {
        if !wanted.has(&row.metric, &row.node) {
            return Ok(());
        }
        if texts.len() >= TEXTS_MAX {
            texts.clear();
        }
        let period_us = row.time_us.checked_div(row.samples).unwrap_or_default();
        let key = (row.metric.clone(), row.node.clone(), row.process, row.stack_id, period_us);
        let of_row = texts.entry(key).or_insert_with(|| Arc::new(texts_of(job, &stacks, &row, period_us)));
        samples = samples.saturating_add(row.samples);
        progress.show(samples);
        let time_us = row.interval_ns.unwrap_or(job.sampled_ns.start).div_euclid(1000);
        let is_open = encoder.add(of_row, time_us, units::to_f64(row.samples), None);
        if is_open { Ok(()) } else { Err(SamplesError::Stopped) }
    })
}

fn texts_of(job: &JobRow, stacks: &Stacks, row: &StackRow, period_us: u64) -> SeriesTexts {
    let stack = stacks.path(row.stack_id).map_or_else(|| "[unknown]".to_owned(), |path| folded(&path));
    let labels =
        json!({"process": row.process.to_string(), "period_us": period_us.to_string(), "stack": stack});
    SeriesTexts {
        job_id: Some(job.job_id.clone()),
        node: row.node.clone(),
        metric: row.metric.clone(),
        unit: "count".to_owned(),
        labels: labels.to_string(),
    }
}
