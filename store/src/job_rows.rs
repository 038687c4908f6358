//! The statements of PostgreSQL for jobs, the nodes that they run on, and their ends.

use std::sync::Arc;

use polymeter_proto::series::Identifier;
use tokio_postgres::{Client, Error, Transaction};

use super::rows::timestamp;
use super::{JobEnd, REVIVAL, ends_before};
use crate::accepted::{Accepted, JobRecord, Outcome};

/// Gives their keys to `jobs`, whose frames are `frames`, in the order of their identities.
pub(super) async fn give_job_keys(
    transaction: &Transaction<'_>,
    jobs: &[Arc<JobRecord>],
    frames: &[Accepted],
) -> Result<Vec<i64>, Error> {
    let mut keys = Vec::with_capacity(jobs.len());
    for job in jobs {
        // A predecessor has ended before, whichever transaction its end is in.
        end_jobs(transaction, &ends_before(job, jobs, &keys, frames)).await?;
        let key = match find_job(transaction, job).await? {
            Some(key) => key,
            None => insert_job(transaction, job).await?,
        };
        join_job(transaction, job, key).await?;
        keys.push(key);
    }
    Ok(keys)
}

/// The job's row: the one that this handle has rows of already, else the one that this node began at that time, else the one
/// of the same owner that still runs, or did when this node began, or of which only the agent was lost.
async fn find_job(transaction: &Transaction<'_>, job: &JobRecord) -> Result<Option<i64>, Error> {
    let said = &job.descriptor;
    let (cluster, owner) = (said.cluster.as_ref().map(Identifier::as_str), said.owner.as_ref());
    let (session, handle) = (job.session.id.to_string(), i64::from(job.handle.0));
    let has_rows = "SELECT job_key FROM ledger WHERE session_id = $1 AND coalesce(handle, -1) = $2 AND job_key IS NOT NULL LIMIT 1";
    if let Some(row) = transaction.query_opt(has_rows, &[&session, &handle]).await? {
        return Ok(Some(row.get(0)));
    }
    let row = transaction
        .query_opt(
            "SELECT job_key FROM job LEFT JOIN job_node AS mine USING (job_key)
             WHERE job_id = $1 AND cluster IS NOT DISTINCT FROM $2
                 AND CASE WHEN owner_uid IS NULL OR $5::int8 IS NULL THEN owner IS NULL OR $6::text IS NULL OR owner = $6
                          ELSE owner_uid = $5 END
                 AND (mine.node = $3 AND mine.started = $4 OR job.ended IS NULL OR job.ended >= $4
                      OR job.ended >= $4 - $7::text::interval
                         AND EXISTS (SELECT FROM job_node AS other WHERE other.job_key = job.job_key AND other.lost))
             ORDER BY coalesce(mine.session_id = $8 AND mine.handle = $9, false) DESC,
                 coalesce(mine.node = $3 AND mine.started = $4, false) DESC, job.started DESC LIMIT 1",
            &[
                &said.job_id.as_str(),
                &cluster,
                &job.node().as_str(),
                &timestamp(said.started_us),
                &said.owner_uid.map(i64::from),
                &owner.map(Identifier::as_str),
                &format!("{} seconds", REVIVAL.as_secs()),
                &session,
                &handle,
            ],
        )
        .await?;
    Ok(row.map(|row| row.get(0)))
}

async fn insert_job(transaction: &Transaction<'_>, job: &JobRecord) -> Result<i64, Error> {
    let said = &job.descriptor;
    let insert = "INSERT INTO job (job_id, cluster, owner, owner_uid, started) VALUES ($1, $2, $3, $4, $5) RETURNING job_key";
    let (cluster, owner) = (said.cluster.as_ref(), said.owner.as_ref());
    let row = transaction
        .query_one(
            insert,
            &[
                &said.job_id.as_str(),
                &cluster.map(Identifier::as_str),
                &owner.map(Identifier::as_str),
                &said.owner_uid.map(i64::from),
                &timestamp(said.started_us),
            ],
        )
        .await?;
    Ok(row.get(0))
}

/// Notes that the job runs on this node under this handle of this session, unless a later one is known.
async fn join_job(transaction: &Transaction<'_>, job: &JobRecord, key: i64) -> Result<(), Error> {
    let said = &job.descriptor;
    let session = job.session.id.to_string();
    let joined = transaction
        .execute(
            "INSERT INTO job_node AS known (job_key, node, started, session_id, handle) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (job_key, node) DO UPDATE
                 SET session_id = excluded.session_id, handle = excluded.handle, ended = NULL, lost = false
                 WHERE known.session_id = excluded.session_id AND known.handle < excluded.handle
                     OR known.session_id IS DISTINCT FROM excluded.session_id AND coalesce(
                         (SELECT session.started FROM session WHERE session.session_id = known.session_id), '-infinity') <= $6",
            &[
                &key,
                &job.node().as_str(),
                &timestamp(said.started_us),
                &session,
                &i64::from(job.handle.0),
                &timestamp(job.session.descriptor.started_us),
            ],
        )
        .await?;
    let owner = said.owner.as_ref().map(Identifier::as_str);
    transaction
        .execute(
            "UPDATE job SET started = least(started, $2), ended = CASE WHEN $3 THEN NULL ELSE ended END,
                 owner_uid = coalesce(owner_uid, $4::int8), owner = coalesce(owner, $5::text)
             WHERE job_key = $1 AND (started > $2 OR $3::bool AND ended IS NOT NULL OR owner_uid IS NULL AND $4::int8 IS NOT NULL
                                     OR owner IS NULL AND $5::text IS NOT NULL)",
            &[&key, &timestamp(said.started_us), &(joined > 0), &said.owner_uid.map(i64::from), &owner],
        )
        .await?;
    Ok(())
}

/// Ends jobs on the nodes of `ends`, unless a later handle follows them there; and as a whole where no node is left.
pub(super) async fn end_jobs(transaction: &Transaction<'_>, ends: &[JobEnd<'_>]) -> Result<(), Error> {
    if ends.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = ends.iter().map(|end| end.key).collect();
    let nodes: Vec<_> = ends.iter().map(|end| end.job.node().as_str()).collect();
    let sessions: Vec<_> = ends.iter().map(|end| end.job.session.id.to_string()).collect();
    let handles: Vec<_> = ends.iter().map(|end| i64::from(end.job.handle.0)).collect();
    let ended: Vec<_> = ends.iter().map(|end| timestamp(end.at_us)).collect();
    // Several nodes of a job end at once: their writers lock in one order, and never wait in a circle.
    transaction
        .execute("SELECT FROM job WHERE job_key = ANY ($1) ORDER BY job_key FOR UPDATE", &[&keys])
        .await?;
    transaction
        .execute(
            "UPDATE job_node SET ended = greatest(job_node.ended, new.ended), lost = false
             FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::timestamptz[])
                  AS new (job_key, node, session_id, handle, ended)
             WHERE job_node.job_key = new.job_key AND job_node.node = new.node
                 AND (job_node.session_id = new.session_id AND job_node.handle = new.handle OR job_node.session_id IS NULL)",
            &[&keys, &nodes, &sessions, &handles, &ended],
        )
        .await?;
    end_whole_jobs(transaction, &keys).await
}

/// Ends those of the jobs `keys` that run on no node any more.
pub(super) async fn end_whole_jobs(transaction: &Transaction<'_>, keys: &[i64]) -> Result<(), Error> {
    transaction
        .execute(
            "UPDATE job SET ended = (SELECT max(ended) FROM job_node WHERE job_node.job_key = job.job_key)
             WHERE job_key = ANY ($1) AND NOT EXISTS (SELECT FROM job_node WHERE job_node.job_key = job.job_key AND ended IS NULL)",
            &[&keys],
        )
        .await?;
    Ok(())
}

pub(super) async fn tell_jobs(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let mut told: Vec<_> = frames.iter().flat_map(|frame| &frame.job_facts).collect();
    // Several nodes tell of a job at once: their writers lock in one order, and never wait in a circle.
    told.sort_by_key(|(job, _)| job.key.get().copied());
    for (job, facts) in told {
        let text = |name: &Option<Identifier>| name.as_ref().map(ToString::to_string);
        let count = |count: Option<u32>| count.map(i64::from);
        transaction
            .execute(
                "UPDATE job SET account = coalesce($2, account), queue = coalesce($3, queue), nodes = coalesce($4, nodes),
                     cores = coalesce($5, cores), state = coalesce($6, state),
                     -- What came with a state is the scheduler's last word: an epilog that knows none does not change it.
                     exit_code = CASE WHEN $6 IS NULL AND state IS NOT NULL THEN exit_code ELSE coalesce($7, exit_code) END,
                     exit_signal = CASE WHEN $6 IS NULL AND state IS NOT NULL THEN exit_signal
                                        ELSE coalesce($8, exit_signal) END
                 WHERE job_key = $1",
                &[
                    &job.key.get(),
                    &text(&facts.account),
                    &text(&facts.queue),
                    &text(&facts.nodes),
                    &count(facts.cores),
                    &text(&facts.state),
                    &count(facts.exit_code),
                    &count(facts.exit_signal),
                ],
            )
            .await?;
    }
    Ok(())
}

/// Stores how the newest job of that id ended. Says whether there is one.
pub(super) async fn tell_outcome(client: &Client, outcome: &Outcome) -> Result<bool, Error> {
    let Outcome { job_id, cluster, facts } = outcome;
    let count = |count: Option<u32>| count.map(i64::from);
    let rows = client
        .execute(
            "UPDATE job SET state = $3, exit_code = coalesce($4, exit_code), exit_signal = coalesce($5, exit_signal)
             WHERE job_key = (SELECT job_key FROM job
                              WHERE job_id = $1 AND ($2::text IS NULL OR cluster IS NULL OR cluster = $2)
                              ORDER BY started DESC, job_key DESC LIMIT 1)",
            &[
                &job_id.as_str(),
                &cluster.as_ref().map(|cluster| cluster.as_str()),
                &facts.state.as_ref().map(|state| state.as_str()),
                &count(facts.exit_code),
                &count(facts.exit_signal),
            ],
        )
        .await?;
    Ok(rows > 0)
}

/// Locks the rows of all jobs that will be changed, in one order: several nodes tell of a job at once, and their writers never
/// wait in a circle.
pub(super) async fn lock_jobs(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let ended = frames.iter().flat_map(|frame| frame.job_ends.iter().map(|(job, _)| job));
    let told = frames.iter().flat_map(|frame| frame.job_facts.iter().map(|(job, _)| job));
    let owned = frames.iter().flat_map(|frame| frame.job_owners.iter().map(|(job, _)| job));
    let keys: Vec<_> = ended.chain(told).chain(owned).map(|job| job.key.get().copied()).collect();
    if !keys.is_empty() {
        let lock = "SELECT FROM job WHERE job_key = ANY ($1) ORDER BY job_key FOR UPDATE";
        transaction.execute(lock, &[&keys]).await?;
    }
    Ok(())
}

/// Stores owners that became known later. A known owner is never replaced: if two nodes disagree, the first one counts.
pub(super) async fn own_jobs(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let mut owners: Vec<_> = frames.iter().flat_map(|frame| &frame.job_owners).collect();
    // Their writers lock in one order, as above.
    owners.sort_by_key(|(job, _)| job.key.get().copied());
    for (job, owner) in owners {
        let name = owner.name.as_ref().map(|name| name.as_str());
        transaction
            .execute(
                "UPDATE job SET owner = coalesce(owner, $2), owner_uid = coalesce(owner_uid, $3) WHERE job_key = $1",
                &[&job.key.get(), &name, &owner.uid.map(i64::from)],
            )
            .await?;
    }
    Ok(())
}
