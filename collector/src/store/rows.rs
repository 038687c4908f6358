//! The statements of PostgreSQL, row by row of the schema. Lists travel as arrays: one round trip each.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, SessionId};
use tokio_postgres::{Client, Error, Transaction};

use super::copy::{Timestamp, put_header, put_sample, put_trailer};
use super::{
    Elsewhere, elsewhere_by_source, job_key, key_of, labels_json, latest_tallies, stored_count, stored_us,
};
use crate::commit::{Accepted, Job, Outcome, REFUSED, Series, Session, by_and_reason};
use crate::limits;

fn timestamp(time_us: i64) -> Timestamp {
    Timestamp(stored_us(time_us))
}

/// The key of the job's row: of the one that this node began at that time, else of the one that still runs or did when
/// this node began, else of a new one.
pub(super) async fn give_job_key(transaction: &Transaction<'_>, job: &Job) -> Result<i32, Error> {
    let said = &job.descriptor;
    let (job_id, node, started) = (said.job_id.as_str(), job.node().as_str(), timestamp(said.started_us));
    let cluster = said.cluster.as_ref().map(|cluster| cluster.as_str());
    let owner = said.owner.as_ref().map(|owner| owner.as_str());
    let known = transaction
        .query_opt(
            "SELECT job_key FROM job LEFT JOIN job_node AS mine USING (job_key)
             WHERE job_id = $1 AND cluster IS NOT DISTINCT FROM $2
                 AND ((mine.node = $3 AND mine.started = $4) OR job.ended IS NULL OR job.ended >= $4)
             ORDER BY coalesce(mine.node = $3 AND mine.started = $4, false) DESC, job.started DESC LIMIT 1",
            &[&job_id, &cluster, &node, &started],
        )
        .await?;
    let row = match known {
        Some(row) => row,
        None => {
            let insert = "INSERT INTO job (job_id, cluster, owner, owner_uid, started) VALUES ($1, $2, $3, $4, $5) RETURNING job_key";
            transaction
                .query_one(insert, &[&job_id, &cluster, &owner, &said.owner_uid.map(i64::from), &started])
                .await?
        }
    };
    let key: i32 = row.get(0);
    transaction
        .execute("UPDATE job SET started = $2 WHERE job_key = $1 AND started > $2", &[&key, &started])
        .await?;
    let insert = "INSERT INTO job_node (job_key, node, started) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[&key, &node, &started]).await?;
    Ok(key)
}

/// Gives their ids to those of `series` that are in the database.
pub(super) async fn find_series(client: &Client, series: &[Arc<Series>]) -> Result<(), Error> {
    let positions: Vec<i32> = (0..).take(series.len()).collect();
    let (nodes, metrics, job_keys, labels) = identities(series);
    let found = client
        .query(
            "SELECT wanted.position, series.series_id
             FROM unnest($1::int4[], $2::text[], $3::text[], $4::int4[], $5::text[]) AS wanted (position, node, metric, job_key, labels)
             JOIN series ON series.node = wanted.node AND series.metric = wanted.metric
                 AND coalesce(series.job_key, 0) = coalesce(wanted.job_key, 0)
                 AND md5(series.labels::text) = md5(wanted.labels::jsonb::text)",
            &[&positions, &nodes, &metrics, &job_keys, &labels],
        )
        .await?;
    for row in found {
        let position = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        if let Some(series) = series.get(position) {
            series.id.get_or_init(|| row.get(1));
        }
    }
    Ok(())
}

type Identities<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<Option<i32>>, Vec<String>);

fn identities(series: &[Arc<Series>]) -> Identities<'_> {
    (
        series.iter().map(|series| series.node().as_str()).collect(),
        series.iter().map(|series| series.metric.name.as_str()).collect(),
        series.iter().map(|series| job_key(series)).collect(),
        series.iter().map(|series| labels_json(&series.labels)).collect(),
    )
}

pub(super) async fn insert_metrics(client: &Client, series: &[Arc<Series>]) -> Result<(), Error> {
    let (names, units): (Vec<_>, Vec<_>) =
        series.iter().map(|series| (series.metric.name.as_str(), series.metric.unit.as_str())).unzip();
    let kinds: Vec<_> = series.iter().map(|series| series.metric.kind.as_str()).collect();
    client
        .execute(
            "INSERT INTO metric (metric, unit, kind)
             SELECT DISTINCT ON (metric) * FROM unnest($1::text[], $2::text[], $3::text[]) AS new (metric, unit, kind) ORDER BY metric
             ON CONFLICT DO NOTHING",
            &[&names, &units, &kinds],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_series(client: &Client, series: &[Arc<Series>]) -> Result<(), Error> {
    let (nodes, metrics, job_keys, labels) = identities(series);
    let job_ids: Vec<_> =
        series.iter().map(|series| series.job.as_ref().map(|job| job.descriptor.job_id.as_str())).collect();
    client
        .execute(
            "INSERT INTO series (node, metric, job_key, job_id, labels)
             SELECT node, metric, job_key, job_id, labels::jsonb
             FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::text[]) AS new (node, metric, job_key, job_id, labels)
             ON CONFLICT DO NOTHING",
            &[&nodes, &metrics, &job_keys, &job_ids, &labels],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_sessions(
    transaction: &Transaction<'_>,
    sessions: &[Arc<Session>],
    seen: Timestamp,
) -> Result<(), Error> {
    let said = || sessions.iter().map(|session| &session.descriptor);
    let mut nodes: Vec<_> = said().map(|said| said.node.as_str()).collect();
    let versions: Vec<_> = said().map(|said| said.agent_version.as_str()).collect();
    let started: Vec<_> = said().map(|said| timestamp(said.started_us)).collect();
    transaction
        .execute(
            "INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen)
             SELECT session_id, node, agent_version, started, 0, $5
             FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS new (session_id, node, agent_version, started)
             ON CONFLICT DO NOTHING",
            &[&session_ids(sessions), &nodes, &versions, &started, &seen],
        )
        .await?;
    nodes.sort_unstable();
    nodes.dedup();
    let insert = "INSERT INTO node (node, first_seen) SELECT node, $2 FROM unnest($1::text[]) AS new (node) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[&nodes, &seen]).await?;
    Ok(())
}

/// Up to where each of `sessions` is stored; nobody else can store of them until this transaction ends.
pub(super) async fn lock_sessions(
    transaction: &Transaction<'_>,
    sessions: &[Arc<Session>],
) -> Result<Last, Error> {
    let select = "SELECT session_id, last_sequence FROM session WHERE session_id = ANY ($1) ORDER BY session_id FOR UPDATE";
    let rows = transaction.query(select, &[&session_ids(sessions)]).await?;
    let by_text: std::collections::HashMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let last = |id: SessionId| by_text.get(&id.to_string()).copied().unwrap_or_default().cast_unsigned();
    Ok(sessions.iter().map(|session| (session.id, last(session.id))).collect())
}

pub(super) async fn copy_samples(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<u64, Error> {
    let mut samples =
        frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| samples.iter()).peekable();
    if samples.peek().is_none() {
        return Ok(0);
    }
    let copy = transaction
        .copy_in::<_, Bytes>("COPY samples (time, series_id, value) FROM STDIN (FORMAT binary)")
        .await?;
    let mut copy = pin!(copy);
    let mut buffer = BytesMut::with_capacity(limits::COPY_BYTES * 2);
    put_header(&mut buffer);
    for (series, column) in samples {
        // All ids were given out before; a row without one would be refused by the table.
        let Some(id) = series.id.get().copied() else { continue };
        for (time_us, value) in column {
            put_sample(&mut buffer, stored_us(time_us), id, value);
        }
        if buffer.len() >= limits::COPY_BYTES {
            copy.feed(buffer.split().freeze()).await?;
            buffer.reserve(limits::COPY_BYTES * 2);
        }
    }
    put_trailer(&mut buffer);
    copy.send(buffer.freeze()).await?;
    copy.finish().await
}

/// One statement for each frame that has such: there are few, and a frame is bounded.
pub(super) async fn insert_apart(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<u64, Error> {
    let mut rows = 0;
    for frame in frames.iter().filter(|frame| !frame.apart.is_empty()) {
        let (mut times, mut ids, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (series, column) in frame.apart.iter().flat_map(|samples| samples.iter()) {
            for (time_us, value) in column {
                times.push(timestamp(time_us));
                ids.push(series.id.get().copied());
                values.push(value);
            }
        }
        rows += transaction
            .execute(
                "INSERT INTO samples_apart (time, series_id, value, received)
                 SELECT new.*, $4 FROM unnest($1::timestamptz[], $2::int4[], $3::float8[]) AS new (time, series_id, value)",
                &[&times, &ids, &values, &timestamp(frame.received_us)],
            )
            .await?;
    }
    Ok(rows)
}

pub(super) async fn upsert_tallies(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let tallies = latest_tallies(frames);
    if tallies.is_empty() {
        return Ok(());
    }
    let sessions: Vec<_> = tallies.iter().map(|((session, ..), _)| session.to_string()).collect();
    let job_keys: Vec<_> = tallies.iter().map(|((_, key, _), _)| *key).collect();
    let sources: Vec<_> = tallies.iter().map(|((.., source), _)| source.as_str()).collect();
    let column = |of: fn(&polymeter_proto::ledger::Tally) -> u64| -> Vec<i64> {
        tallies.iter().map(|(_, tally)| stored_count(of(tally))).collect()
    };
    let (due, taken, late) =
        (column(|tally| tally.due), column(|tally| tally.taken), column(|tally| tally.late));
    let (missed, absent, dropped) =
        (column(|tally| tally.missed), column(|tally| tally.absent), column(|tally| tally.dropped));
    transaction
        .execute(
            "INSERT INTO ledger (session_id, job_key, source, due, taken, late, missed, absent, dropped)
             SELECT * FROM unnest($1::text[], $2::int4[], $3::text[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::int8[])
             ON CONFLICT (session_id, coalesce(job_key, 0), source) DO UPDATE SET due = excluded.due, taken = excluded.taken,
                 late = excluded.late, missed = excluded.missed, absent = excluded.absent, dropped = excluded.dropped",
            &[&sessions, &job_keys, &sources, &due, &taken, &late, &missed, &absent, &dropped],
        )
        .await?;
    Ok(())
}

pub(super) async fn add_elsewhere(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let all = elsewhere_by_source(frames);
    if all.is_empty() {
        return Ok(());
    }
    let sessions: Vec<_> = all.iter().map(|((session, ..), _)| session.to_string()).collect();
    let job_keys: Vec<_> = all.iter().map(|((_, key, _), _)| *key).collect();
    let sources: Vec<_> = all.iter().map(|((.., source), _)| source.as_str()).collect();
    let column = |of: fn(&Elsewhere) -> u64| -> Vec<i64> {
        all.iter().map(|(_, counts)| stored_count(of(counts))).collect()
    };
    let (skipped, rejected, apart) =
        (column(|counts| counts.skipped), column(|counts| counts.rejected), column(|counts| counts.apart));
    transaction
        .execute(
            "INSERT INTO ledger (session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected, apart)
             SELECT session_id, job_key, source, 0, 0, 0, 0, 0, 0, skipped, rejected, apart
             FROM unnest($1::text[], $2::int4[], $3::text[], $4::int8[], $5::int8[], $6::int8[])
                  AS new (session_id, job_key, source, skipped, rejected, apart)
             ON CONFLICT (session_id, coalesce(job_key, 0), source) DO UPDATE SET skipped = ledger.skipped + excluded.skipped,
                 rejected = ledger.rejected + excluded.rejected, apart = ledger.apart + excluded.apart",
            &[&sessions, &job_keys, &sources, &skipped, &rejected, &apart],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_losses(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let losses: Vec<_> =
        frames.iter().flat_map(|frame| frame.losses.iter().map(move |loss| (frame, loss))).collect();
    if losses.is_empty() {
        return Ok(());
    }
    let times: Vec<_> = losses.iter().map(|(frame, _)| timestamp(frame.received_us)).collect();
    let nodes: Vec<_> = losses.iter().map(|(frame, _)| frame.session.descriptor.node.as_str()).collect();
    let sessions: Vec<_> = losses.iter().map(|(frame, _)| frame.session.id.to_string()).collect();
    let samples: Vec<_> = losses.iter().map(|(_, loss)| stored_count(loss.samples)).collect();
    let reasons: Vec<_> = losses.iter().map(|(_, loss)| loss.reason.as_str()).collect();
    let job_keys: Vec<_> = losses.iter().map(|(_, loss)| key_of(loss.job.as_ref())).collect();
    let sources: Vec<_> =
        losses.iter().map(|(_, loss)| loss.source.as_deref().map(|source| source.as_str())).collect();
    let (first, last): (Vec<_>, Vec<_>) =
        losses.iter().map(|(_, loss)| (timestamp(loss.span_us.0), timestamp(loss.span_us.1))).unzip();
    transaction
        .execute(
            "INSERT INTO loss (time, node, session_id, samples, reason, first_time, last_time, job_key, source)
             SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::timestamptz[], $7::timestamptz[],
                                  $8::int4[], $9::text[])",
            &[&times, &nodes, &sessions, &samples, &reasons, &first, &last, &job_keys, &sources],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_plan_changes(
    transaction: &Transaction<'_>,
    frames: &[&Accepted],
) -> Result<(), Error> {
    let of_frame = |frame| {
        let Accepted { session, plan_changes, .. }: &Accepted = frame;
        plan_changes.iter().map(move |(job, change)| (session.descriptor.node.as_str(), job.as_ref(), change))
    };
    let changes: Vec<_> = frames.iter().copied().flat_map(of_frame).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let (times, until): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (timestamp(change.at_us), change.until_us.map(timestamp))).unzip();
    let (nodes, job_keys): (Vec<_>, Vec<_>) =
        changes.iter().map(|(node, job, _)| (*node, key_of(*job))).unzip();
    let job_ids: Vec<_> =
        changes.iter().map(|(_, job, _)| job.map(|job| job.descriptor.job_id.as_str())).collect();
    let (metrics, causes): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (change.metric.as_str(), change.cause.as_str())).unzip();
    let micros = |period: Option<Period>| period.map(|period| stored_count(period.as_micros()));
    let (old, new): (Vec<_>, Vec<_>) =
        changes.iter().map(|(.., change)| (micros(change.old), micros(change.new))).unzip();
    let by_whom: Vec<_> =
        changes.iter().map(|(.., change)| change.by.as_ref().map(|by| by.as_str())).collect();
    transaction
        .execute(
            "INSERT INTO plan_change (time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, by_whom, until)
             SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::int4[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::text[],
                                  $9::text[], $10::timestamptz[])",
            &[&times, &nodes, &job_keys, &job_ids, &metrics, &old, &new, &causes, &by_whom, &until],
        )
        .await?;
    Ok(())
}

pub(super) async fn insert_marks(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let of_frame = |frame| {
        let Accepted { session, marks, .. }: &Accepted = frame;
        marks.iter().map(move |(job, mark)| (session.descriptor.node.as_str(), job.as_ref(), mark))
    };
    let marks: Vec<_> = frames.iter().copied().flat_map(of_frame).collect();
    if marks.is_empty() {
        return Ok(());
    }
    let (times, nodes): (Vec<_>, Vec<_>) =
        marks.iter().map(|(node, _, mark)| (timestamp(mark.at_us), *node)).unzip();
    let job_keys: Vec<_> = marks.iter().map(|(_, job, _)| key_of(*job)).collect();
    let job_ids: Vec<_> =
        marks.iter().map(|(_, job, _)| job.map(|job| job.descriptor.job_id.as_str())).collect();
    let (names, kinds): (Vec<_>, Vec<_>) =
        marks.iter().map(|(.., mark)| (mark.name.as_str(), mark.kind.as_str())).unzip();
    let by_whom: Vec<_> = marks.iter().map(|(.., mark)| mark.by.as_ref().map(|by| by.as_str())).collect();
    transaction
        .execute(
            "INSERT INTO mark (time, node, job_key, job_id, name, by_whom, detail)
             SELECT time, node, job_key, job_id, name, by_whom, jsonb_build_object('kind', kind)
             FROM unnest($1::timestamptz[], $2::text[], $3::int4[], $4::text[], $5::text[], $6::text[], $7::text[])
                  AS said (time, node, job_key, job_id, name, by_whom, kind)",
            &[&times, &nodes, &job_keys, &job_ids, &names, &by_whom, &kinds],
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

/// What is known of an owner stays: of two nodes that say different things the first is believed.
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

/// They stand among the changes of plan. One statement each: there are few.
pub(super) async fn insert_refused_requests(
    transaction: &Transaction<'_>,
    frames: &[&Accepted],
) -> Result<(), Error> {
    for (job, refused) in frames.iter().flat_map(|frame| &frame.refused_requests) {
        transaction
            .execute(
                "INSERT INTO plan_change (time, node, job_key, job_id, metric, new_period_us, cause, by_whom)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                &[
                    &timestamp(refused.at_us),
                    &job.node().as_str(),
                    &key_of(Some(job)),
                    &job.descriptor.job_id.as_str(),
                    &refused.request.as_str(),
                    &refused.period.map(|period| stored_count(period.as_micros())),
                    &REFUSED,
                    &by_and_reason(refused),
                ],
            )
            .await?;
    }
    Ok(())
}

pub(super) async fn end_jobs(transaction: &Transaction<'_>, frames: &[&Accepted]) -> Result<(), Error> {
    let ends: Vec<_> = frames.iter().flat_map(|frame| &frame.job_ends).collect();
    if ends.is_empty() {
        return Ok(());
    }
    let (keys, nodes): (Vec<_>, Vec<_>) =
        ends.iter().map(|(job, _)| (job.key.get().copied(), job.node().as_str())).unzip();
    let ended: Vec<_> = ends.iter().map(|(_, at_us)| timestamp(*at_us)).collect();
    // Several nodes of a job end at once: their writers lock in one order, and never wait in a circle.
    transaction
        .execute("SELECT FROM job WHERE job_key = ANY ($1) ORDER BY job_key FOR UPDATE", &[&keys])
        .await?;
    transaction
        .execute(
            "UPDATE job_node SET ended = greatest(job_node.ended, new.ended)
             FROM (SELECT job_key, node, max(ended) AS ended
                   FROM unnest($1::int4[], $2::text[], $3::timestamptz[]) AS said (job_key, node, ended) GROUP BY job_key, node) AS new
             WHERE job_node.job_key = new.job_key AND job_node.node = new.node",
            &[&keys, &nodes, &ended],
        )
        .await?;
    transaction
        .execute(
            "UPDATE job SET ended = greatest(job.ended, new.ended)
             FROM (SELECT job_key, max(ended) AS ended
                   FROM unnest($1::int4[], $2::timestamptz[]) AS said (job_key, ended) GROUP BY job_key) AS new
             WHERE job.job_key = new.job_key",
            &[&keys, &ended],
        )
        .await?;
    Ok(())
}

pub(super) async fn advance_sessions(
    transaction: &Transaction<'_>,
    last: &Last,
    rows: &Last,
    seen: Timestamp,
) -> Result<(), Error> {
    let sessions: Vec<_> = last.keys().map(SessionId::to_string).collect();
    let sequences: Vec<_> = last.values().map(|last| stored_count(*last)).collect();
    let stored = |session| stored_count(rows.get(session).copied().unwrap_or_default());
    let stored: Vec<_> = last.keys().map(stored).collect();
    transaction
        .execute(
            "UPDATE session SET last_sequence = new.last, last_seen = $3, stored = session.stored + new.stored
             FROM unnest($1::text[], $2::int8[], $4::int8[]) AS new (session_id, last, stored) WHERE session.session_id = new.session_id",
            &[&sessions, &sequences, &seen, &stored],
        )
        .await?;
    Ok(())
}

/// The ids of `sessions` as the database has them.
fn session_ids(sessions: &[Arc<Session>]) -> Vec<String> {
    sessions.iter().map(|session| session.id.to_string()).collect()
}

/// A number of each session: the last sequence number, or how many samples.
pub(crate) type Last = HashMap<SessionId, u64>;
