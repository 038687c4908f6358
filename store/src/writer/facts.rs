//! Facts about jobs, their names and the requested resources, that schedulers reported.

use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::series::Identifier;

use super::rounds::rounds;
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const FACTS: [Column; 9] = [
    ("key", ColumnType::Integer),
    ("account", ColumnType::Text),
    ("queue", ColumnType::Text),
    ("nodes", ColumnType::Text),
    ("cores", ColumnType::Integer),
    ("state", ColumnType::Text),
    ("exit_code", ColumnType::Integer),
    ("exit_signal", ColumnType::Integer),
    ("unread", ColumnType::Text),
];

const DETAILS: [Column; 12] = [
    ("key", ColumnType::Integer),
    ("name", ColumnType::Text),
    ("display_id", ColumnType::Text),
    ("time_limit_s", ColumnType::Integer),
    ("memory_bytes", ColumnType::Integer),
    ("gpus", ColumnType::Integer),
    ("restarts", ColumnType::Integer),
    ("run", ColumnType::Text),
    ("scheduler", ColumnType::Text),
    ("node", ColumnType::Text),
    ("node_cores", ColumnType::Integer),
    ("node_gpus", ColumnType::Integer),
];

pub(super) fn text(name: &Option<Identifier>) -> Value<'static> {
    name.as_ref().map(ToString::to_string).into()
}

/// Returns a number; none for one that the database cannot hold, which is not plausible.
pub(super) fn integer(number: Option<u64>) -> Value<'static> {
    number.and_then(|number| i64::try_from(number).ok()).into()
}

pub(super) fn run(details: &JobDetails) -> Value<'static> {
    details.run.as_ref().and_then(|run| serde_json::to_string(run).ok()).into()
}

pub(super) fn store(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<(), DatabaseError> {
    let all = frames.iter().flat_map(|frame| &frame.job_facts);
    let keyed = all.filter_map(|(job, facts)| Some((job.key.get()?, facts)));
    for round in rounds(merged(keyed), |(key, _)| *key) {
        let batch = Batch::new(
            &FACTS,
            round.into_iter().map(|(key, facts)| {
                [
                    key.into(),
                    text(&facts.account),
                    text(&facts.queue),
                    text(&facts.nodes),
                    facts.cores.into(),
                    text(&facts.state),
                    facts.exit_code.into(),
                    facts.exit_signal.into(),
                    facts.unread.as_ref().map(ToString::to_string).into(),
                ]
            }),
        );
        connection.execute_batch(
            "UPDATE job SET account = coalesce(new.account, job.account), queue = coalesce(new.queue, job.queue),
                 nodes = coalesce(new.nodes, job.nodes), cores = coalesce(new.cores, job.cores),
                 state = coalesce(new.state, job.state), unread = coalesce(new.unread, job.unread),
                 -- The exit status that came with a state is final: an epilog that knows no state does not change it.
                 exit_code = CASE WHEN new.state IS NULL AND job.state IS NOT NULL THEN job.exit_code
                                  ELSE coalesce(new.exit_code, job.exit_code) END,
                 exit_signal = CASE WHEN new.state IS NULL AND job.state IS NOT NULL THEN job.exit_signal
                                    ELSE coalesce(new.exit_signal, job.exit_signal) END
             FROM {new} WHERE job.job_key = new.key",
            &batch,
        )?;
    }
    Ok(())
}

pub(super) fn store_details(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    let all = frames.iter().flat_map(|frame| &frame.job_details);
    let keyed = all.filter_map(|(job, details)| Some((job.key.get()?, job.node().as_str(), details)));
    for round in rounds(keyed, |(key, _, _)| *key) {
        update_details(connection, &round)?;
    }
    Ok(())
}

/// Adds details to jobs, each of which occurs once, with the reporting node. A detail that is none leaves the
/// stored one.
fn update_details(
    connection: &mut dyn Connection,
    details: &[(i64, &str, &JobDetails)],
) -> Result<(), DatabaseError> {
    let batch = Batch::new(
        &DETAILS,
        details.iter().map(|(key, node, details)| {
            [
                (*key).into(),
                details.name.as_ref().map(ToString::to_string).into(),
                text(&details.display_id),
                integer(details.time_limit_s),
                integer(details.memory_bytes),
                details.gpus.into(),
                details.restarts.into(),
                run(details),
                text(&details.scheduler),
                (*node).to_owned().into(),
                details.node_cores.into(),
                details.node_gpus.into(),
            ]
        }),
    );
    connection.execute_batch(
        "UPDATE job SET name = coalesce(new.name, job.name), display_id = coalesce(new.display_id, job.display_id),
             time_limit_s = coalesce(new.time_limit_s, job.time_limit_s),
             memory_bytes = coalesce(new.memory_bytes, job.memory_bytes), gpus = coalesce(new.gpus, job.gpus),
             restarts = coalesce(new.restarts, job.restarts), run = coalesce(new.run, job.run),
             scheduler = coalesce(new.scheduler, job.scheduler)
         FROM {new} WHERE job.job_key = new.key",
        &batch,
    )?;
    connection.execute_batch(
        "UPDATE job_node SET job_cores = coalesce(new.node_cores, job_node.job_cores),
             job_gpus = coalesce(new.node_gpus, job_node.job_gpus)
         FROM {new} WHERE job_node.job_key = new.key AND job_node.node = new.node
             AND (new.node_cores IS NOT NULL OR new.node_gpus IS NOT NULL)",
        &batch,
    )?;
    Ok(())
}

/// Merges facts about the same job that have the same effect together: a short job begins and ends in one
/// transaction.
fn merged<'a>(all: impl Iterator<Item = (i64, &'a JobFacts)>) -> Vec<(i64, JobFacts)> {
    let mut newest = std::collections::HashMap::new();
    let mut merged: Vec<(i64, JobFacts)> = Vec::new();
    for (key, facts) in all {
        let known = newest.get(&key).and_then(|position: &usize| merged.get_mut(*position));
        match known.and_then(|(_, known)| Some((then(known, facts)?, known))) {
            Some((both, known)) => *known = both,
            None => {
                newest.insert(key, merged.len());
                merged.push((key, facts.clone()));
            }
        }
    }
    merged
}

/// Returns the facts that have the same effect as `first` and then `second`; none if that depends on the
/// state that the store has.
fn then(first: &JobFacts, second: &JobFacts) -> Option<JobFacts> {
    let has_status = first.exit_code.is_some() || first.exit_signal.is_some();
    // A status without a state counts only if the store has no state.
    if first.state.is_none() && second.state.is_some() && has_status {
        return None;
    }
    let newer = |new: &Option<Identifier>, old: &Option<Identifier>| new.as_ref().or(old.as_ref()).cloned();
    let is_final = first.state.is_some() && second.state.is_none();
    let status = |new: Option<u32>, old: Option<u32>| if is_final { old } else { new.or(old) };
    Some(JobFacts {
        account: newer(&second.account, &first.account),
        queue: newer(&second.queue, &first.queue),
        nodes: newer(&second.nodes, &first.nodes),
        cores: second.cores.or(first.cores),
        state: newer(&second.state, &first.state),
        exit_code: status(second.exit_code, first.exit_code),
        exit_signal: status(second.exit_signal, first.exit_signal),
        unread: second.unread.as_ref().or(first.unread.as_ref()).cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(state: Option<&str>, exit_code: Option<u32>) -> JobFacts {
        let state = state.map(|state| state.try_into().unwrap());
        JobFacts { state, exit_code, ..JobFacts::default() }
    }

    /// Returns the state and the exit code of a job that had `job` before, as the statement sets them.
    fn applied(job: &JobFacts, new: &JobFacts) -> JobFacts {
        let is_final = new.state.is_none() && job.state.is_some();
        let exit_code = if is_final { job.exit_code } else { new.exit_code.or(job.exit_code) };
        JobFacts { state: new.state.clone().or(job.state.clone()), exit_code, ..JobFacts::default() }
    }

    #[test]
    fn merged_facts_have_the_effect_of_both() {
        let states = [None, Some("FAILED"), Some("COMPLETED")];
        let all: Vec<_> = states
            .iter()
            .flat_map(|state| [None, Some(1), Some(2)].map(|code| facts(*state, code)))
            .collect();
        let mut merged = 0;
        for (first, second) in all.iter().flat_map(|first| all.iter().map(move |second| (first, second))) {
            let Some(both) = then(first, second) else { continue };
            merged += 1;
            for job in &all {
                assert_eq!(
                    applied(job, &both),
                    applied(&applied(job, first), second),
                    "{first:?} {second:?}"
                );
            }
        }
        // All pairs except for a status without a state before a state.
        assert_eq!(merged, 81 - 2 * 6);
    }

    #[test]
    fn facts_of_the_begin_and_the_end_of_a_job_are_one_change() {
        let begin = JobFacts { cores: Some(4), ..JobFacts::default() };
        let end = facts(Some("COMPLETED"), Some(0));
        let of_other = facts(None, Some(1));
        let list = [(1, &begin), (2, &of_other), (1, &end), (2, &end)];
        let both = JobFacts { cores: Some(4), ..end.clone() };
        assert_eq!(merged(list.into_iter()), [(1, both), (2, of_other.clone()), (2, end)]);
    }
}
