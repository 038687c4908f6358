//! Runs of a job: a scheduler starts a job again under the same id, and its tasks and components have ids
//! in common. Pure, but for the query.

use polymeter_service::time_text::to_the_second;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobRow, Read};

use crate::model::{Report, RunReport};

/// Precedes the store's key of a job, in place of its id.
pub const KEY: &str = "key:";

const RUNS: u32 = 100;

const LISTED: usize = 5;

/// Tells whether two rows with the same id are runs of one job, rather than jobs of two clusters or users.
pub fn are_of_one_job(one: &JobRow, other: &JobRow) -> bool {
    one.job_id == other.job_id && are_of_one_owner(one, other)
}

/// Tells whether two jobs may be of one cluster and user, as far as that is known.
pub fn are_of_one_owner(one: &JobRow, other: &JobRow) -> bool {
    fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
        one.is_none() || other.is_none() || one == other
    }
    agree(&one.cluster, &other.cluster) && agree(&one.owner_uid, &other.owner_uid)
}

/// Id of the array or heterogeneous job whose task or component is printed so.
pub fn whole_of(display_id: &str) -> Option<&str> {
    let (whole, part) = display_id.rsplit_once(['_', '+'])?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(whole) && is_number(part)).then_some(whole)
}

/// Describes a job so that it can be told from others of the same id, with the argument that selects it.
pub fn selector(job: &JobRow) -> String {
    let cluster = job.cluster.as_ref().map_or_else(String::new, |cluster| format!("cluster {cluster}, "));
    let state = match (&job.state, job.ended_ns) {
        (Some(state), _) => format!(", {state}"),
        (None, None) => ", running".to_owned(),
        (None, Some(_)) => String::new(),
    };
    format!("{KEY}{} ({cluster}started {} UTC{state})", job.job_key, to_the_second(job.started_ns / 1000))
}

/// Adds the runs of the job that the reader sees, and notes on them and on the array that it belongs to.
pub(crate) fn add_to(reader: &mut dyn Read, job: &JobRow, report: &mut Report) -> Result<(), StoreError> {
    let filter = JobFilter { job_id: Some(job.job_id.clone()), limit: RUNS, ..JobFilter::default() };
    let mut runs = reader.jobs(&filter)?;
    runs.retain(|run| are_of_one_job(run, job));
    runs.reverse();
    let mut notes: Vec<String> = note_on_runs(job, &runs).into_iter().collect();
    if let Some((id, whole)) = job.display_id.as_deref().and_then(|id| Some((id, whole_of(id)?))) {
        let (part, kind) =
            if id.contains('_') { ("task", "array") } else { ("component", "heterogeneous job") };
        notes.push(format!(
            "{id} is a {part} of the {kind} {whole}: `polymeter report {whole}` shows it as a whole"
        ));
    }
    report.notes.splice(0..0, notes);
    if runs.len() > 1 {
        report.runs = runs
            .iter()
            .map(|run| RunReport {
                key: run.job_key,
                started_us: run.started_ns.div_euclid(1000),
                ended_us: run.ended_ns.map(|ended_ns| ended_ns.div_euclid(1000)),
                state: run.state.clone(),
            })
            .collect();
    }
    Ok(())
}

/// Says which of several runs `job` is, and how to choose another; none for an only run.
pub fn note_on_runs(job: &JobRow, runs: &[JobRow]) -> Option<String> {
    let position = runs.iter().position(|run| run.job_key == job.job_key)?;
    let others: Vec<String> =
        runs.iter().rev().filter(|run| run.job_key != job.job_key).map(selector).collect();
    let listed = others.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match others.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!others.is_empty()).then(|| {
        format!(
            "job {} ran {} times, and this is run {}; in place of the id, the key chooses another: {listed}{more}",
            job.job_id,
            runs.len(),
            position + 1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_row;

    fn run(key: i64, state: Option<&str>) -> JobRow {
        JobRow {
            job_key: key,
            started_ns: key * 1_000_000_000,
            state: state.map(str::to_owned),
            ..job_row("7")
        }
    }

    #[test]
    fn a_note_says_which_run_it_is_and_selects_the_others() {
        let runs = [run(1, Some("PREEMPTED")), run(2, Some("NODE_FAIL")), run(3, None)];
        let note = note_on_runs(&runs[1], &runs).unwrap();
        assert_eq!(
            note,
            "job 7 ran 3 times, and this is run 2; in place of the id, the key chooses another: \
             key:3 (started 1970-01-01 00:00:03 UTC), key:1 (started 1970-01-01 00:00:01 UTC, PREEMPTED)"
        );
        assert_eq!(note_on_runs(&runs[0], &runs[..1]), None);
        let many: Vec<JobRow> = (1..10).map(|key| run(key, None)).collect();
        assert!(note_on_runs(&many[8], &many).unwrap().ends_with(" and 3 more"));
    }

    fn owned(cluster: Option<&str>, uid: Option<i64>) -> JobRow {
        JobRow { cluster: cluster.map(str::to_owned), owner_uid: uid, ..job_row("7") }
    }

    #[test]
    fn jobs_of_two_clusters_or_users_are_no_runs() {
        assert!(are_of_one_job(&owned(None, Some(1)), &owned(Some("a"), None)));
        assert!(!are_of_one_job(&owned(Some("b"), None), &owned(Some("a"), None)));
        assert!(!are_of_one_job(&owned(None, Some(1)), &owned(None, Some(2))));
    }

    #[test]
    fn tasks_and_components_belong_to_a_whole() {
        assert_eq!((whole_of("4009_1"), whole_of("4009+0")), (Some("4009"), Some("4009")));
        assert_eq!(["4009", "_1", "4009_", "my_job", "a_1"].map(whole_of), [None; 5]);
    }
}
