//! The statements of PostgreSQL for sessions and their ledgers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;
use tokio_postgres::{Client, Error, Transaction};

use super::copy::Timestamp;
use super::job_rows::end_whole_jobs;
use super::ledger::{LineChange, Pending};
use super::rows::timestamp;
use super::{Progress, handle_of, key_of, stored_count};
use crate::accepted::{LedgerLine, SessionRecord};

/// The stored state of a session.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The newest frame that is stored.
    pub(super) last: u64,
    /// Stored samples that its ledger does not count yet.
    pub(super) pending: Pending,
    /// It is believed to have ended.
    pub(super) is_ended: bool,
}

/// Gives their ids to those of `accounts` that are in the database.
pub(super) async fn find_accounts(client: &Client, accounts: &[Arc<LedgerLine>]) -> Result<(), Error> {
    let positions: Vec<i32> = (0..).take(accounts.len()).collect();
    let Identities { sessions, handles, job_keys, sources } = identities(accounts);
    let found = client
        .query(
            "SELECT wanted.position, known.ledger_id
             FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::text[])
                  AS wanted (position, session_id, handle, job_key, source)
             CROSS JOIN LATERAL (
                 SELECT ledger_id FROM ledger
                 WHERE ledger.session_id = wanted.session_id AND coalesce(ledger.handle, -1) = coalesce(wanted.handle, -1)
                     AND coalesce(ledger.job_key, 0) = coalesce(wanted.job_key, 0) AND ledger.source = wanted.source LIMIT 1
             ) AS known",
            &[&positions, &sessions, &handles, &job_keys, &sources],
        )
        .await?;
    for row in found {
        let position = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        if let Some(account) = accounts.get(position) {
            account.id.get_or_init(|| row.get(1));
        }
    }
    Ok(())
}

/// Makes lines for `accounts`, from those of version 4 of the schema, which knew no handles, where there are such.
pub(super) async fn insert_accounts(client: &Client, accounts: &[Arc<LedgerLine>]) -> Result<(), Error> {
    let Identities { sessions, handles, job_keys, sources } = identities(accounts);
    client
        .execute(
            "UPDATE ledger SET handle = new.handle
             FROM unnest($1::text[], $2::int8[], $3::int8[], $4::text[]) AS new (session_id, handle, job_key, source)
             WHERE ledger.session_id = new.session_id AND ledger.handle IS NULL AND ledger.job_key = new.job_key
                 AND ledger.source = new.source",
            &[&sessions, &handles, &job_keys, &sources],
        )
        .await?;
    client
        .execute(
            "INSERT INTO ledger (session_id, handle, job_key, source)
             SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[], $4::text[]) ON CONFLICT DO NOTHING",
            &[&sessions, &handles, &job_keys, &sources],
        )
        .await?;
    Ok(())
}

struct Identities<'a> {
    sessions: Vec<String>,
    handles: Vec<Option<i64>>,
    job_keys: Vec<Option<i64>>,
    sources: Vec<&'a str>,
}

fn identities(accounts: &[Arc<LedgerLine>]) -> Identities<'_> {
    Identities {
        sessions: accounts.iter().map(|account| account.session.id.to_string()).collect(),
        handles: accounts.iter().map(|account| handle_of(account)).collect(),
        job_keys: accounts.iter().map(|account| key_of(account.job.as_ref())).collect(),
        sources: accounts.iter().map(|account| account.source.as_str()).collect(),
    }
}

/// Makes rows for those of `sessions` that are new, and returns their nodes.
pub(super) async fn insert_sessions(
    transaction: &Transaction<'_>,
    sessions: &[Arc<SessionRecord>],
    seen: Timestamp,
) -> Result<Vec<String>, Error> {
    let said = || sessions.iter().map(|session| &session.descriptor);
    let mut nodes: Vec<_> = said().map(|said| said.node.as_str()).collect();
    let versions: Vec<_> = said().map(|said| said.agent_version.as_str()).collect();
    let started: Vec<_> = said().map(|said| timestamp(said.started_us)).collect();
    let introduced = transaction
        .query(
            "INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen)
             SELECT session_id, node, agent_version, started, 0, $5
             FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS new (session_id, node, agent_version, started)
             ON CONFLICT DO NOTHING RETURNING node",
            &[&session_ids(sessions), &nodes, &versions, &started, &seen],
        )
        .await?;
    nodes.sort_unstable();
    nodes.dedup();
    let insert = "INSERT INTO node (node, first_seen) SELECT node, $2 FROM unnest($1::text[]) AS new (node) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[&nodes, &seen]).await?;
    Ok(introduced.iter().map(|row| row.get(0)).collect())
}

/// Returns the stored state of each of `sessions`, and locks their rows until the transaction ends.
pub(super) async fn lock_sessions(
    transaction: &Transaction<'_>,
    sessions: &[Arc<SessionRecord>],
) -> Result<HashMap<SessionId, Known>, Error> {
    let select = "SELECT session_id, last_sequence, pending::text, ended IS NOT NULL FROM session
         WHERE session_id = ANY ($1) ORDER BY session_id FOR UPDATE";
    let rows = transaction.query(select, &[&session_ids(sessions)]).await?;
    let known = |row: &tokio_postgres::Row| Known {
        last: row.get::<_, i64>(1).cast_unsigned(),
        pending: Pending::parse(row.get(2)),
        is_ended: row.get(3),
    };
    let mut by_text: HashMap<String, Known> = rows.iter().map(|row| (row.get(0), known(row))).collect();
    let take = |session: &Arc<SessionRecord>| {
        (session.id, by_text.remove(&session.id.to_string()).unwrap_or_default())
    };
    Ok(sessions.iter().map(take).collect())
}

/// Writes what has changed of lines of the ledger, by their ids.
pub(super) async fn update_ledger(
    transaction: &Transaction<'_>,
    changes: &[(i64, LineChange)],
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = changes.iter().map(|(id, _)| *id).collect();
    let tally = |of: fn(&Tally) -> u64| -> Vec<Option<i64>> {
        changes.iter().map(|(_, change)| change.tally.as_ref().map(|tally| stored_count(of(tally)))).collect()
    };
    let count = |of: fn(&LineChange) -> u64| -> Vec<i64> {
        changes.iter().map(|(_, change)| stored_count(of(change))).collect()
    };
    transaction
        .execute(
            "UPDATE ledger SET due = coalesce(new.due, ledger.due), taken = coalesce(new.taken, ledger.taken),
                 late = coalesce(new.late, ledger.late), missed = coalesce(new.missed, ledger.missed),
                 absent = coalesce(new.absent, ledger.absent), dropped = coalesce(new.dropped, ledger.dropped),
                 stored = ledger.stored + new.stored, skipped = ledger.skipped + new.skipped,
                 rejected = ledger.rejected + new.rejected, quarantined = ledger.quarantined + new.quarantined
             FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[],
                         $9::int8[], $10::int8[], $11::int8[])
                  AS new (ledger_id, due, taken, late, missed, absent, dropped, stored, skipped, rejected, quarantined)
             WHERE ledger.ledger_id = new.ledger_id",
            &[
                &ids,
                &tally(|tally| tally.due),
                &tally(|tally| tally.taken),
                &tally(|tally| tally.late),
                &tally(|tally| tally.missed),
                &tally(|tally| tally.absent),
                &tally(|tally| tally.dropped),
                &count(|change| change.stored),
                &count(|change| change.skipped),
                &count(|change| change.rejected),
                &count(|change| change.quarantined),
            ],
        )
        .await?;
    Ok(())
}

/// Notes up to where each session is stored. `pending` is what its ledger does not count yet.
pub(super) async fn advance_sessions(
    transaction: &Transaction<'_>,
    progress: &BTreeMap<SessionId, Progress>,
    pending: &HashMap<SessionId, Pending>,
    seen: Timestamp,
) -> Result<(), Error> {
    let ids: Vec<_> = progress.keys().map(SessionId::to_string).collect();
    let last: Vec<_> = progress.values().map(|progress| stored_count(progress.last)).collect();
    let stored: Vec<_> = progress.values().map(|progress| stored_count(progress.stored)).collect();
    let newest: Vec<_> = progress.values().map(|progress| progress.newest_us.map(timestamp)).collect();
    let ended: Vec<_> = progress.values().map(|progress| progress.ended_us.map(timestamp)).collect();
    let is_new: Vec<_> = progress.values().map(|progress| progress.is_new).collect();
    let pending: Vec<_> =
        progress.keys().map(|id| pending.get(id).map_or_else(|| "{}".to_owned(), Pending::to_json)).collect();
    transaction
        .execute(
            "UPDATE session SET last_sequence = new.last, last_seen = $2, stored = session.stored + new.stored,
                 pending = new.pending::jsonb, last_sample = greatest(session.last_sample, new.newest),
                 ended = CASE WHEN NOT new.is_new OR end_reason = 'stopped' THEN session.ended ELSE new.ended END,
                 end_reason = CASE WHEN NOT new.is_new OR end_reason = 'stopped' THEN end_reason
                                   WHEN new.ended IS NOT NULL THEN 'stopped' END
             FROM unnest($1::text[], $3::int8[], $4::int8[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::bool[])
                  AS new (session_id, last, stored, pending, newest, ended, is_new)
             WHERE session.session_id = new.session_id",
            &[&ids, &seen, &last, &stored, &pending, &newest, &ended, &is_new],
        )
        .await?;
    Ok(())
}

/// Reopens `sessions` that were recorded as ended and send again: removes their intervals of unknown state, and marks their lost
/// jobs as running. Returns their nodes.
pub(super) async fn reopen_sessions(
    transaction: &Transaction<'_>,
    sessions: &[String],
) -> Result<Vec<String>, Error> {
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    transaction
        .execute("DELETE FROM loss WHERE reason = 'unknown' AND session_id = ANY ($1)", &[&sessions])
        .await?;
    transaction
        .execute(
            "WITH running AS (
                 UPDATE job_node SET ended = NULL, lost = false WHERE lost AND session_id = ANY ($1) RETURNING job_key
             )
             UPDATE job SET ended = NULL WHERE job_key IN (SELECT job_key FROM running)",
            &[&sessions],
        )
        .await?;
    let nodes = transaction
        .query("SELECT DISTINCT node FROM session WHERE session_id = ANY ($1)", &[&sessions])
        .await?;
    Ok(nodes.iter().map(|row| row.get(0)).collect())
}

/// Ends the sessions of `nodes` that did not say that they end, and whose newest sample is older than a later session of the
/// node: their agents were killed. What another writer stores of them at this moment is left alone.
pub(super) async fn supersede_sessions(
    transaction: &Transaction<'_>,
    nodes: &[String],
    now: Timestamp,
) -> Result<(), Error> {
    if nodes.is_empty() {
        return Ok(());
    }
    let rows = transaction
        .query(
            "SELECT old.session_id, later.started
             FROM session AS old
             CROSS JOIN LATERAL (
                 SELECT started FROM session AS later
                 WHERE later.node = old.node AND later.started > greatest(old.started, coalesce(old.last_sample, old.last_seen))
                 ORDER BY started LIMIT 1
             ) AS later
             WHERE old.ended IS NULL AND old.node = ANY ($1)
             ORDER BY old.session_id FOR UPDATE OF old SKIP LOCKED",
            &[&nodes],
        )
        .await?;
    let over = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    end_sessions(transaction, over, "superseded", now).await
}

/// Ends sessions of which nothing was heard since `cutoff`, and the jobs of sessions that ended before it and that no other
/// session has taken up.
pub(super) async fn end_silent(
    transaction: &Transaction<'_>,
    cutoff: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let rows = transaction
        .query(
            "SELECT old.session_id, least($2, (
                 SELECT min(later.started) FROM session AS later
                 WHERE later.node = old.node AND later.started > greatest(old.started, coalesce(old.last_sample, old.last_seen))))
             FROM session AS old WHERE old.ended IS NULL AND old.last_seen < $1
             ORDER BY old.session_id FOR UPDATE OF old SKIP LOCKED",
            &[&cutoff, &now],
        )
        .await?;
    let over = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    end_sessions(transaction, over, "silent", now).await?;
    let lost = "FROM job_node LEFT JOIN session USING (session_id)
         WHERE job_node.ended IS NULL AND CASE WHEN job_node.session_id IS NULL THEN job_node.started < $1
                   ELSE session.ended IS NOT NULL AND session.last_seen < $1 END";
    let select = format!("SELECT DISTINCT job_key {lost}");
    let keys: Vec<i64> = transaction.query(&select, &[&cutoff]).await?.iter().map(|row| row.get(0)).collect();
    if keys.is_empty() {
        return Ok(());
    }
    transaction
        .execute("SELECT FROM job WHERE job_key = ANY ($1) ORDER BY job_key FOR UPDATE", &[&keys])
        .await?;
    let update = format!(
        "UPDATE job_node AS its SET lost = true, ended = greatest(its.started, (
             SELECT max(coalesce(last_sample, last_seen)) FROM session
             WHERE session.session_id = its.session_id OR its.session_id IS NULL AND session.node = its.node))
         WHERE its.ended IS NULL AND (its.job_key, its.node) IN (SELECT job_key, job_node.node {lost})"
    );
    transaction.execute(&update, &[&cutoff]).await?;
    end_whole_jobs(transaction, &keys).await
}

/// Ends `over`, sessions each with the time until which nothing is known, and notes that as a loss of their node and of each
/// job that they followed to the end.
async fn end_sessions(
    transaction: &Transaction<'_>,
    over: Vec<(String, Timestamp)>,
    reason: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if over.is_empty() {
        return Ok(());
    }
    let (ids, until): (Vec<_>, Vec<_>) = over.into_iter().unzip();
    transaction
        .execute(
            "INSERT INTO loss (time, node, session_id, job_key, samples, reason, first_time, last_time)
             SELECT $3, session.node, session_id, part.job_key, 0, 'unknown', coalesce(last_sample, last_seen), until
             FROM unnest($1::text[], $2::timestamptz[]) AS over (session_id, until) JOIN session USING (session_id)
             CROSS JOIN LATERAL (
                 SELECT DISTINCT ledger.job_key FROM ledger
                 LEFT JOIN job_node ON job_node.job_key = ledger.job_key AND job_node.node = session.node
                 WHERE ledger.session_id = session.session_id
                     AND (ledger.job_key IS NULL OR job_node.ended IS NULL
                          OR job_node.session_id IS DISTINCT FROM session.session_id)
             ) AS part
             WHERE until > coalesce(last_sample, last_seen)",
            &[&ids, &until, &now],
        )
        .await?;
    transaction
        .execute(
            "UPDATE session SET ended = coalesce(last_sample, last_seen), end_reason = $2 WHERE session_id = ANY ($1)",
            &[&ids, &reason],
        )
        .await?;
    Ok(())
}

/// The ids of `sessions` as the database has them.
fn session_ids(sessions: &[Arc<SessionRecord>]) -> Vec<String> {
    sessions.iter().map(|session| session.id.to_string()).collect()
}
