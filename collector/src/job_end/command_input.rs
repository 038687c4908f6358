//! Report of a job that has ended.

use std::path::Path;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::gather::gather;
use polymeter_analysis::jobstats;
use polymeter_analysis::model::Report;
use polymeter_store::reader::{JobFilter, JobRow, Read, ReadCancel, Reader};
use polymeter_store::{StoreError, StoreUrl};

use super::command_log::ProblemLog;
use crate::limits;

#[derive(Debug)]
pub(super) struct Input {
    pub(super) job_id: String,
    pub(super) variables: Vec<(&'static str, String)>,
    /// Report as `polymeter report --json` prints it.
    pub(super) json: Vec<u8>,
}

/// None if there is no such job. `connected` gets the means to cancel the statement that runs.
pub(super) fn gather_input(
    store: &StoreUrl,
    job_key: i64,
    advice: &Path,
    log: &ProblemLog,
    connected: impl FnOnce(ReadCancel),
) -> Result<Option<Input>, StoreError> {
    let mut reader = Reader::open(store)?;
    connected(reader.canceller());
    let filter = JobFilter { job_key: Some(job_key), limit: 1, ..JobFilter::default() };
    let Some(job) = reader.jobs(&filter)?.pop() else { return Ok(None) };
    let mut report = gather(&mut reader as &mut dyn Read, &job, None)?;
    drop(reader);
    let (rules, faults) = Advice::load(advice);
    for fault in &faults.0 {
        log.problem(&format!("file of rules ignored: {fault}"), "correct the file");
    }
    rules.advise(&mut report);
    let mut json = match serde_json::to_vec_pretty(&report) {
        Ok(json) => json,
        // Numbers, text and lists always have a JSON form.
        Err(_) => return Ok(None),
    };
    json.push(b'\n');
    Ok(Some(Input { variables: variables(&job, &report), job_id: job.job_id, json }))
}

fn variables(job: &JobRow, report: &Report) -> Vec<(&'static str, String)> {
    let summary = jobstats::summary(report).ok();
    let summary = summary.filter(|summary| summary.len() <= limits::JOB_END_JOBSTATS_BYTES);
    let all = [
        ("POLYMETER_JOB_ID", Some(job.job_id.clone())),
        ("POLYMETER_JOB_DISPLAY_ID", job.display_id.clone()),
        ("POLYMETER_JOB_CLUSTER", job.cluster.clone()),
        ("POLYMETER_JOB_OWNER", job.owner.clone()),
        ("POLYMETER_JOB_OWNER_UID", job.owner_uid.map(|uid| uid.to_string())),
        ("POLYMETER_JOB_STATE", job.state.clone()),
        ("POLYMETER_JOBSTATS", summary),
    ];
    // The kernel takes no NUL, which no agent should send.
    let known = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.filter(|(_, value)| !value.contains('\0')).collect()
}
