//! Triggers that fired of a stored job, for `polymeter trigger list`.

use std::collections::BTreeMap;

use polymeter_analysis::firings;
use polymeter_client::connection::collector::Collector;
use polymeter_proto::control::{Answer, FiringLine, JobAnswer, NodeAnswer, TriggersAnswer};
use polymeter_store::reader::{FiringRow, JobFilter, JobRow};

use super::read_source::Source;
use crate::failure::Failure;
use crate::store_failure::cannot_read;

/// Tasks of an array and runs of a job among which one is searched.
const JOBS: u32 = 1000;

/// Returns what fired by node, as the agents would answer; none for a job that the user does not see.
pub(crate) fn find(collector: &Collector, id: &str) -> Result<Option<JobAnswer>, Failure> {
    let mut source = Source::of_collector(collector)?;
    let filter = JobFilter { named: Some(id.to_owned()), limit: JOBS, ..JobFilter::default() };
    let jobs = source.reader.jobs(&filter).map_err(cannot_read)?;
    let has_id = |job: &&JobRow| job.job_id == id || job.display_id.as_deref() == Some(id);
    let Some(job) = jobs.iter().find(has_id) else { return Ok(None) };
    let rows = source.reader.firings(job.job_key).map_err(cannot_read)?;
    by_node(id, &rows).map(Some).map_err(|error| Failure::because("cannot write the answer", &error))
}

fn by_node(job: &str, rows: &[FiringRow]) -> serde_json::Result<JobAnswer> {
    let mut by_node: BTreeMap<&str, Vec<FiringLine>> = BTreeMap::new();
    for row in rows {
        by_node.entry(&row.node).or_default().push(FiringLine {
            trigger: row.trigger.cast_unsigned(),
            name: row.rule.clone(),
            at_us: row.time_ns.div_euclid(1000),
            why: row.why.clone(),
            actions: firings::done(row),
        });
    }
    let mut nodes = Vec::with_capacity(by_node.len());
    for (node, fired) in by_node {
        let answer = Answer::Triggers(TriggersAnswer { triggers: Vec::new(), fired });
        nodes.push(NodeAnswer { node: node.to_owned(), answer: Some(serde_json::to_value(answer)?) });
    }
    Ok(JobAnswer { job: job.to_owned(), at_us: None, nodes })
}
