//! The choice of a stored job by its id.

use polymeter_client::job_choice::scheduler_job;
use polymeter_proto::suggest::similar;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobRow, Read};

use crate::client::read_source::{Source, Visible};
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::store_failure::store_failure;

/// The maximum number of ids that a refusal suggests.
const SUGGESTIONS: usize = 3;

/// A stored job.
#[derive(Debug)]
pub(crate) struct ChosenJob {
    pub(crate) job: JobRow,
    /// The step that the id names, as in `4009.batch`.
    pub(crate) step: Option<String>,
}

/// Returns the last of the jobs with the id `wanted`, in any form in which schedulers print it. If no id is
/// wanted, returns the job in which the command runs, else the last job of the user.
pub(crate) fn choose(source: &mut Source, wanted: Option<&str>) -> Result<ChosenJob, Failure> {
    let failed = |error| store_failure("cannot read the store", &error);
    let of_scheduler = if wanted.is_none() { scheduler_job() } else { None };
    let Some(wanted) = wanted.or(of_scheduler.as_deref()) else {
        let last = last_job(source).map_err(failed)?;
        return last.map(|job| ChosenJob { job, step: None }).ok_or_else(|| {
            let of_user = if source.visible == Visible::Own { " of yours" } else { "" };
            Failure::Failed(format!("cannot choose a job: {} contains none{of_user}", source.place()))
        });
    };
    match find(source.reader.as_mut(), wanted).map_err(failed)? {
        Some(chosen) => Ok(chosen),
        None => Err(unknown(source, wanted).map_err(failed)?),
    }
}

/// Returns the user's job that started last. Root, and a user without a job in a store that shows all jobs,
/// gets the last of all.
fn last_job(source: &mut Source) -> Result<Option<JobRow>, StoreError> {
    let uid = rustix::process::geteuid();
    if !uid.is_root() {
        let owner_uid = Some(i64::from(uid.as_raw()));
        let own = source.reader.jobs(&JobFilter { owner_uid, limit: 1, ..JobFilter::default() })?.pop();
        if own.is_some() || source.visible == Visible::Own {
            return Ok(own);
        }
    }
    source.reader.last_job(None)
}

/// Returns the job with an id: its own, the one that the scheduler prints (`4009_1`, `4009+1`), or either
/// with a step (`4009.batch`).
fn find(reader: &mut dyn Read, wanted: &str) -> Result<Option<ChosenJob>, StoreError> {
    if let Some(job) = find_job(reader, wanted)? {
        return Ok(Some(ChosenJob { job, step: None }));
    }
    let Some((id, step)) = wanted.rsplit_once('.').filter(|(id, step)| !id.is_empty() && !step.is_empty())
    else {
        return Ok(None);
    };
    Ok(find_job(reader, id)?.map(|job| ChosenJob { job, step: Some(step.to_owned()) }))
}

fn find_job(reader: &mut dyn Read, id: &str) -> Result<Option<JobRow>, StoreError> {
    if let Some(job) = reader.last_job(Some(id))? {
        return Ok(Some(job));
    }
    let printed = JobFilter { display_id: Some(id.to_owned()), limit: 1, ..JobFilter::default() };
    Ok(reader.jobs(&printed)?.pop())
}

/// Returns the failure for an id without a job.
fn unknown(source: &mut Source, wanted: &str) -> Result<Failure, StoreError> {
    let owner_uid = (source.visible == Visible::Own).then(|| i64::from(rustix::process::geteuid().as_raw()));
    let ids = source.reader.candidate_ids(wanted, owner_uid)?;
    let similar = similar(wanted, ids.iter().map(String::as_str)).into_iter().take(SUGGESTIONS);
    let similar: Vec<String> = similar.map(|id| format!("`{}`", printable_name(id))).collect();
    let suggestion = if !similar.is_empty() {
        format!("; did you mean {}?", similar.join(" or "))
    } else if wanted.contains(['_', '+']) {
        "; the scheduler's controller did not report this id: use the job's own id, SLURM_JOB_ID".to_owned()
    } else {
        "; `polymeter jobs --ended` lists stored jobs".to_owned()
    };
    let (wanted, place) = (printable_name(wanted), source.place());
    let cause = match source.visible {
        Visible::All => format!(": {place} does not contain it"),
        Visible::Own => ", or not yours".to_owned(),
    };
    Ok(Failure::Failed(format!("unknown job `{wanted}`{cause}{suggestion}")))
}
