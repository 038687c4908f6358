//! Choice of a stored job by its id.

use polymeter_analysis::array::last_runs;
use polymeter_analysis::runs::{KEY, are_of_one_job, are_of_one_owner, note_on_runs, selector, whole_of};
use polymeter_client::job_choice::scheduler_job;
use polymeter_proto::suggest::similar;
use polymeter_proto::text::abridged_list;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobRow, JobsOf, Read};

use crate::client::read_source::{Source, Visible};
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::terminal;
use crate::store_failure::cannot_read;

/// Number in a refusal.
const SUGGESTIONS: usize = 3;

/// Number in a refusal.
const LISTED: usize = 10;

/// Number in a refusal without a wanted id.
const LISTED_JOBS: u32 = 5;

/// Tasks of an array with their runs.
const NAMED: u32 = 10_000;

#[derive(Debug)]
pub(crate) struct ChosenJob {
    pub(crate) job: JobRow,
    /// Step that the id names, as in `4009.batch`.
    pub(crate) step: Option<String>,
    /// What else the id stands for.
    pub(crate) note: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Chosen {
    Job(Box<ChosenJob>),
    /// Tasks of an array, or components of a heterogeneous job.
    Array {
        id: String,
        jobs: Vec<JobRow>,
    },
}

impl Chosen {
    fn job(job: JobRow, step: Option<&str>, note: Option<String>) -> Self {
        Self::Job(Box::new(ChosenJob { job, step: step.map(str::to_owned), note }))
    }
}

/// Finds the job with the id `wanted`, in any form in which schedulers print it, or with a key of the store:
/// `key:17`. If there are several runs of a job it is the last, and a note says so. If no id is wanted, finds
/// the job in which the command runs, else the last job of the user.
pub(crate) fn choose(source: &mut Source, wanted: Option<&str>) -> Result<ChosenJob, Failure> {
    match choose_any(source, wanted)? {
        Chosen::Job(chosen) => Ok(noted(*chosen)),
        Chosen::Array { id, jobs } => Err(names_one_of(&id, &jobs)),
    }
}

/// Prints the note.
fn noted(chosen: ChosenJob) -> ChosenJob {
    if let Some(note) = &chosen.note {
        terminal::print_error(&format!("polymeter: note: {note}\n"));
    }
    chosen
}

/// Does what [`choose`] does, but if no id is wanted, takes no job by its time: that in which the command
/// runs, else the only job of the source.
pub(crate) fn choose_only(source: &mut Source, wanted: Option<&str>) -> Result<ChosenJob, Failure> {
    if wanted.is_some() {
        return choose(source, wanted);
    }
    if let Some((_, Some(job))) = job_of_command(source).map_err(cannot_read)? {
        return Ok(ChosenJob { job, step: None, note: None });
    }
    let mut jobs = Vec::new();
    // Most stores with several jobs show this at once.
    for limit in [LISTED_JOBS, NAMED] {
        let filter = JobFilter { limit, ..JobFilter::default() };
        jobs = source.reader.jobs(&filter).map_err(cannot_read)?;
        let Some(last) = jobs.first() else { return Err(no_job(source)) };
        if !jobs.iter().all(|job| are_of_one_job(job, last)) {
            break;
        }
        if u32::try_from(jobs.len()).is_ok_and(|listed| listed < limit) {
            let first_first: Vec<JobRow> = jobs.iter().rev().cloned().collect();
            let note = note_on_runs(last, &first_first);
            return Ok(noted(ChosenJob { job: last.clone(), step: None, note }));
        }
    }
    jobs.truncate(LISTED);
    let ids = printable_name(&ids_of_tasks(&jobs).join(", ")).into_owned();
    Err(Failure::Failed(format!(
        "cannot choose a job: {} contains several; name one, such as {ids}; `polymeter jobs --ended` lists \
         them",
        source.place()
    )))
}

/// One of the tasks must be named.
pub(crate) fn names_one_of(id: &str, jobs: &[JobRow]) -> Failure {
    let ids = ids_of_tasks(jobs);
    Failure::Failed(format!(
        "cannot choose a job: {} stands for {} jobs; name one: {}",
        printable_name(id),
        ids.len(),
        printable_name(&abridged_list(&ids, LISTED))
    ))
}

/// Chooses without a note on other runs.
pub(crate) fn choose_any(source: &mut Source, wanted: Option<&str>) -> Result<Chosen, Failure> {
    let of_command = if wanted.is_none() { job_of_command(source).map_err(cannot_read)? } else { None };
    let of_scheduler = match of_command {
        // Even if an array has its id, too.
        Some((_, Some(job))) => return Ok(Chosen::job(job, None, None)),
        Some((id, None)) => Some(id),
        None => None,
    };
    let Some(wanted) = wanted.or(of_scheduler.as_deref()) else {
        let last = last_job(source).map_err(cannot_read)?;
        return last.map(|job| Chosen::job(job, None, None)).ok_or_else(|| no_job(source));
    };
    match find(source.reader.as_mut(), wanted).map_err(cannot_read)? {
        Found::Chosen(chosen) => Ok(chosen),
        Found::Several(jobs) => Err(several(wanted, &jobs)),
        Found::None => Err(unknown(source, wanted).map_err(cannot_read)?),
    }
}

/// Finds the job in which the command runs: its id, and its row if it is stored.
fn job_of_command(source: &mut Source) -> Result<Option<(String, Option<JobRow>)>, StoreError> {
    let Some(id) = source.of_run.clone().or_else(scheduler_job) else { return Ok(None) };
    let job = source.reader.last_job(Some(&id))?;
    Ok(Some((id, job)))
}

fn no_job(source: &Source) -> Failure {
    let of_user = if source.visible == Visible::Own { " of yours" } else { "" };
    Failure::Failed(format!("cannot choose a job: {} contains none{of_user}", source.place()))
}

/// Finds the user's job that started last. Root, and a user without a job in a store that shows all jobs,
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

enum Found {
    None,
    Chosen(Chosen),
    Several(Vec<JobRow>),
}

/// Searches an id: the job's own, the one that the scheduler prints (`4009_1`, `4009+1`), that of an array, a
/// key of the store, or one of them with a step (`4009.batch`).
fn find(reader: &mut dyn Read, wanted: &str) -> Result<Found, StoreError> {
    let found = find_job(reader, wanted, None)?;
    let step = wanted.rsplit_once('.').filter(|(id, step)| !id.is_empty() && !step.is_empty());
    match (found, step) {
        (Found::None, Some((id, step))) => find_job(reader, id, Some(step)),
        (found, _) => Ok(found),
    }
}

fn find_job(reader: &mut dyn Read, id: &str, step: Option<&str>) -> Result<Found, StoreError> {
    let key = id.strip_prefix(KEY).and_then(|key| key.parse::<i64>().ok());
    let filter = match key {
        Some(_) => JobFilter { job_key: key, limit: 1, ..JobFilter::default() },
        None => JobFilter { named: Some(id.to_owned()), limit: NAMED, ..JobFilter::default() },
    };
    let jobs = reader.jobs(&filter)?;
    let Some(last) = jobs.first() else { return Ok(Found::None) };
    if jobs.iter().all(|job| are_of_one_job(job, last)) {
        let first_first: Vec<JobRow> = jobs.iter().rev().cloned().collect();
        return Ok(Found::Chosen(Chosen::job(last.clone(), step, note_on_runs(last, &first_first))));
    }
    // One of the tasks of an array has the array's id as its own.
    let (parts, own): (Vec<JobRow>, Vec<JobRow>) =
        jobs.iter().cloned().partition(|job| job.display_id.as_deref().and_then(whole_of) == Some(id));
    let are_of_one = |jobs: &[JobRow], first: &JobRow| jobs.iter().all(|job| are_of_one_owner(job, first));
    Ok(match own.first() {
        None if are_of_one(&parts, last) => Found::Chosen(Chosen::Array { id: id.to_owned(), jobs: parts }),
        Some(first) if own.iter().all(|job| are_of_one_job(job, first)) && are_of_one(&parts, first) => {
            let note = format!(
                "{id} is also the id of an array; its tasks are {}",
                abridged_list(&ids_of_tasks(&parts), LISTED)
            );
            Found::Chosen(Chosen::job(first.clone(), step, Some(note)))
        }
        _ => Found::Several(jobs),
    })
}

fn ids_of_tasks(jobs: &[JobRow]) -> Vec<&str> {
    last_runs(jobs).iter().map(|(job, _)| job.display_id.as_deref().unwrap_or(&job.job_id)).collect()
}

fn several(wanted: &str, jobs: &[JobRow]) -> Failure {
    let names: Vec<String> = jobs.iter().map(selector).collect();
    Failure::Failed(format!(
        "cannot choose a job: {} jobs have the id `{}`; name one by its key: {}",
        jobs.len(),
        printable_name(wanted),
        printable_name(&abridged_list(&names, LISTED))
    ))
}

fn unknown(source: &mut Source, wanted: &str) -> Result<Failure, StoreError> {
    // A collector offers the ids of the jobs that the user may see.
    let ids = source.reader.candidate_ids(
        wanted,
        (source.visible == Visible::Own).then(|| JobsOf::user(rustix::process::geteuid().as_raw())),
    )?;
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
