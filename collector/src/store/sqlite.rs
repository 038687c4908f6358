//! The embedded store. One file, one writer.

mod files;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, SessionId};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use super::diagnosis::explain;
use super::file::{self, StoreFiles};
use super::{
    Doing, FileProblem, Origin, SCHEMA_VERSION, StoreError, elsewhere_by_source, job_key, jobs_without_key,
    key_of, labels_json, latest_tallies, not_stored, rows_by_session, series_without_id, sessions,
    stored_count, stored_us,
};
use crate::commit::{Accepted, Committed, Job, Series};
use crate::limits;

/// Version by version, what makes the schema.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../../schema/sqlite_1.sql"),
    include_str!("../../schema/sqlite_2.sql"),
    include_str!("../../schema/sqlite_3.sql"),
    include_str!("../../schema/sqlite_4.sql"),
];

/// A connection to a file of SQLite.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    connection: Connection,
    files: StoreFiles,
    origin: Origin,
}

impl SqliteStore {
    pub(crate) fn open(path: &Path, may_create: bool) -> Result<Self, StoreError> {
        let cannot_open = |source| explain(path, "opening", source);
        let cannot_make =
            |error| StoreError::Unusable(format!("cannot make the store {}: {error}", path.display()));
        if may_create {
            file::create(path).map_err(cannot_make)?;
        } else if fs::metadata(path).is_err_and(|error| file::is_gone(&error)) {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(cannot_open)?;
        connection.busy_timeout(limits::SQLITE_BUSY).map_err(cannot_open)?;
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(cannot_open)?;
        // An acknowledgement promises that the samples outlive a power cut: FULL, one fsync per commit.
        connection
            .execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;")
            .map_err(cannot_open)?;
        let is_new = migrate(&mut connection, path)?;
        let resolved = connection.path().map_or_else(|| path.to_owned(), Into::into);
        let files = StoreFiles::of_open(path, &resolved, mode == "wal").map_err(cannot_make)?;
        let origin = Origin { file: Some(files.database()), table: None, is_new };
        Ok(Self { connection, files, origin })
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) fn last_sequence(&mut self, session: SessionId) -> Result<u64, StoreError> {
        self.check_files()?;
        last_sequence(&self.connection, session).doing("looking up a session")
    }

    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        // Before as well: to write behind a hole would hide it.
        self.check_files()?;
        // Ids are handed out in transactions of their own, so that an id that is remembered is one that is committed.
        self.give_job_keys(&jobs_without_key(frames)).doing("storing jobs")?;
        self.give_series_ids(&series_without_id(frames)).doing("storing series")?;
        let committed = self.write(frames).doing("storing samples")??;
        self.check_files()?;
        self.check_log_head()?;
        Ok(committed)
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    fn give_job_keys(&mut self, jobs: &[Arc<Job>]) -> rusqlite::Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let transaction = self.begin()?;
        let keys =
            jobs.iter().map(|job| give_job_key(&transaction, job)).collect::<rusqlite::Result<Vec<_>>>()?;
        transaction.commit()?;
        for (job, key) in jobs.iter().zip(keys) {
            job.key.get_or_init(|| key);
        }
        Ok(())
    }

    fn give_series_ids(&mut self, series: &[Arc<Series>]) -> rusqlite::Result<()> {
        if series.is_empty() {
            return Ok(());
        }
        let transaction = self.begin()?;
        let ids = series
            .iter()
            .map(|series| give_series_id(&transaction, series))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        transaction.commit()?;
        for (series, id) in series.iter().zip(ids) {
            series.id.get_or_init(|| id);
        }
        Ok(())
    }

    /// The inner error is the store's own.
    fn write(&mut self, frames: &[Accepted]) -> rusqlite::Result<Result<Committed, StoreError>> {
        let transaction = self.begin()?;
        let mut last = HashMap::new();
        for session in sessions(frames) {
            last.insert(session.id, last_sequence(&transaction, session.id)?);
        }
        let (new, last) = match not_stored(frames, last) {
            Ok(split) => split,
            Err(error) => return Ok(Err(error)),
        };
        let rows = write_samples(&transaction, &new)?;
        let apart = write_apart(&transaction, &new)?;
        write_tallies(&transaction, &new)?;
        write_elsewhere(&transaction, &new)?;
        for frame in &new {
            write_losses(&transaction, frame)?;
            write_plan_changes(&transaction, frame)?;
            write_marks(&transaction, frame)?;
            write_job_ends(&transaction, frame)?;
            write_job_facts(&transaction, frame)?;
        }
        write_sessions(&transaction, frames, &last, &rows_by_session(&new))?;
        transaction.commit()?;
        let repeated = frames.len() - new.len();
        Ok(Ok(Committed { through: last.into_iter().collect(), rows, apart, repeated: repeated as u64 }))
    }
}

/// Brings the schema up to date, and says whether there was none.
fn migrate(connection: &mut Connection, path: &Path) -> Result<bool, StoreError> {
    let doing = "bringing the schema up to date";
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|source| explain(path, doing, source))?;
    let is_foreign = "SELECT count(*) > 0 AND NOT max(name = 'schema_version') FROM sqlite_master";
    if transaction.query_row(is_foreign, (), |row| row.get(0)).doing(doing)? {
        return Err(StoreError::File { path: path.to_owned(), problem: FileProblem::Foreign });
    }
    transaction
        .execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
        .doing(doing)?;
    let found: i32 = transaction
        .query_row("SELECT coalesce(max(version), 0) FROM schema_version", (), |row| row.get(0))
        .doing(doing)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { found });
    }
    for (version, migration) in
        (1..=SCHEMA_VERSION).zip(MIGRATIONS).skip_while(|(version, _)| *version <= found)
    {
        transaction.execute_batch(migration).doing(doing)?;
        transaction.execute("INSERT INTO schema_version VALUES (?1)", [version]).doing(doing)?;
    }
    transaction.commit().doing(doing)?;
    Ok(found == 0)
}

fn last_sequence(connection: &Connection, session: SessionId) -> rusqlite::Result<u64> {
    let mut statement =
        connection.prepare_cached("SELECT last_sequence FROM session WHERE session_id = ?1")?;
    let last: Option<i64> = statement.query_row([session.to_string()], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or_default().cast_unsigned())
}

/// Nanoseconds, from the microseconds that an agent said.
fn ns(time_us: i64) -> i64 {
    stored_us(time_us) * 1000
}

/// The key of the job's row: of the one that this node began at that time, else of the one that still runs or did when
/// this node began, else of a new one.
fn give_job_key(connection: &Connection, job: &Job) -> rusqlite::Result<i32> {
    let said = &job.descriptor;
    let cluster = said.cluster.as_ref().map(|cluster| cluster.as_str());
    let known = connection
        .prepare_cached(
            "SELECT job_key FROM job LEFT JOIN job_node AS mine USING (job_key)
             WHERE job_id = ?1 AND cluster IS ?2
                 AND ((mine.node = ?3 AND mine.started = ?4) OR job.ended IS NULL OR job.ended >= ?4)
             ORDER BY (mine.node = ?3 AND mine.started = ?4) DESC, job.started DESC LIMIT 1",
        )?
        .query_row(params![said.job_id.as_str(), cluster, job.node().as_str(), ns(said.started_us)], |row| {
            row.get(0)
        })
        .optional()?;
    let key: i32 = match known {
        Some(key) => key,
        None => connection
            .prepare_cached("INSERT INTO job (job_id, cluster, owner, owner_uid, started) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING job_key")?
            .query_row(
                params![said.job_id.as_str(), cluster, said.owner.as_ref().map(|owner| owner.as_str()), said.owner_uid, ns(said.started_us)],
                |row| row.get(0),
            )?,
    };
    connection
        .prepare_cached("UPDATE job SET started = ?2 WHERE job_key = ?1 AND started > ?2")?
        .execute(params![key, ns(said.started_us)])?;
    connection
        .prepare_cached(
            "INSERT INTO job_node (job_key, node, started) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute(params![key, job.node().as_str(), ns(said.started_us)])?;
    Ok(key)
}

fn give_series_id(connection: &Connection, series: &Series) -> rusqlite::Result<i32> {
    let (node, metric, labels) =
        (series.node().as_str(), series.metric.name.as_str(), labels_json(&series.labels));
    let key = job_key(series);
    let known = connection
        .prepare_cached("SELECT series_id FROM series WHERE node = ?1 AND metric = ?2 AND coalesce(job_key, 0) = coalesce(?3, 0) AND labels = ?4")?
        .query_row(params![node, metric, key, labels], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    connection
        .prepare_cached("INSERT INTO metric (metric, unit, kind) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
        .execute(params![metric, series.metric.unit.as_str(), series.metric.kind.as_str()])?;
    let job_id = series.job.as_ref().map(|job| job.descriptor.job_id.as_str());
    connection
        .prepare_cached("INSERT INTO series (node, metric, job_key, job_id, labels) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING series_id")?
        .query_row(params![node, metric, key, job_id, labels], |row| row.get(0))
}

fn write_samples(connection: &Connection, frames: &[&Accepted]) -> rusqlite::Result<u64> {
    let mut insert =
        connection.prepare_cached("INSERT INTO samples (time, series_id, value) VALUES (?1, ?2, ?3)")?;
    let mut rows = 0;
    for (series, samples) in frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| samples.iter())
    {
        let id = series.id.get();
        for (time_us, value) in samples {
            insert.execute(params![ns(time_us), id, value])?;
            rows += 1;
        }
    }
    Ok(rows)
}

fn write_apart(connection: &Connection, frames: &[&Accepted]) -> rusqlite::Result<u64> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO samples_apart (time, series_id, value, received) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let mut rows = 0;
    for frame in frames {
        for (series, samples) in frame.apart.iter().flat_map(|samples| samples.iter()) {
            let id = series.id.get();
            for (time_us, value) in samples {
                insert.execute(params![ns(time_us), id, value, ns(frame.received_us)])?;
                rows += 1;
            }
        }
    }
    Ok(rows)
}

fn write_tallies(connection: &Connection, frames: &[&Accepted]) -> rusqlite::Result<()> {
    let mut upsert = connection.prepare_cached(
        "INSERT INTO ledger (session_id, job_key, source, due, taken, late, missed, absent, dropped)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (session_id, coalesce(job_key, 0), source) DO UPDATE SET due = excluded.due, taken = excluded.taken,
             late = excluded.late, missed = excluded.missed, absent = excluded.absent, dropped = excluded.dropped",
    )?;
    for ((session, job_key, source), tally) in latest_tallies(frames) {
        let [due, taken, late, missed, absent, dropped] =
            [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped].map(stored_count);
        let identity = (session.to_string(), job_key, source.as_str());
        upsert.execute(params![
            identity.0, identity.1, identity.2, due, taken, late, missed, absent, dropped
        ])?;
    }
    Ok(())
}

fn write_elsewhere(connection: &Connection, frames: &[&Accepted]) -> rusqlite::Result<()> {
    let mut upsert = connection.prepare_cached(
        "INSERT INTO ledger (session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected, apart)
         VALUES (?1, ?2, ?3, 0, 0, 0, 0, 0, 0, ?4, ?5, ?6)
         ON CONFLICT (session_id, coalesce(job_key, 0), source) DO UPDATE SET skipped = skipped + excluded.skipped,
             rejected = rejected + excluded.rejected, apart = apart + excluded.apart",
    )?;
    for ((session, job_key, source), counts) in elsewhere_by_source(frames) {
        let [skipped, rejected, apart] = [counts.skipped, counts.rejected, counts.apart].map(stored_count);
        upsert.execute(params![session.to_string(), job_key, source.as_str(), skipped, rejected, apart])?;
    }
    Ok(())
}

fn write_losses(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO loss (time, node, session_id, samples, reason, first_time, last_time, job_key, source)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for loss in &frame.losses {
        insert.execute(params![
            ns(frame.received_us),
            frame.session.descriptor.node.as_str(),
            frame.session.id.to_string(),
            stored_count(loss.samples),
            loss.reason.as_str(),
            ns(loss.span_us.0),
            ns(loss.span_us.1),
            key_of(loss.job.as_ref()),
            loss.source.as_deref().map(|source| source.as_str()),
        ])?;
    }
    Ok(())
}

fn write_plan_changes(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO plan_change (time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, by_whom, until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (job, change) in &frame.plan_changes {
        insert.execute(params![
            ns(change.at_us),
            frame.session.descriptor.node.as_str(),
            key_of(job.as_ref()),
            job.as_ref().map(|job| job.descriptor.job_id.as_str()),
            change.metric.as_str(),
            change.old.map(|period| stored_count(period.as_micros())),
            change.new.map(|period| stored_count(period.as_micros())),
            change.cause.as_str(),
            change.by.as_ref().map(|by| by.as_str()),
            change.until_us.map(ns),
        ])?;
    }
    Ok(())
}

fn write_marks(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO mark (time, node, job_key, job_id, name, by_whom, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, json_object('kind', ?7))",
    )?;
    for (job, mark) in &frame.marks {
        insert.execute(params![
            ns(mark.at_us),
            frame.session.descriptor.node.as_str(),
            key_of(job.as_ref()),
            job.as_ref().map(|job| job.descriptor.job_id.as_str()),
            mark.name.as_str(),
            mark.by.as_ref().map(|by| by.as_str()),
            mark.kind.as_str(),
        ])?;
    }
    Ok(())
}

fn write_job_ends(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    for (job, at_us) in &frame.job_ends {
        let key = job.key.get();
        connection
            .prepare_cached(
                "UPDATE job_node SET ended = max(coalesce(ended, ?3), ?3) WHERE job_key = ?1 AND node = ?2",
            )?
            .execute(params![key, job.node().as_str(), ns(*at_us)])?;
        connection
            .prepare_cached("UPDATE job SET ended = max(coalesce(ended, ?2), ?2) WHERE job_key = ?1")?
            .execute(params![key, ns(*at_us)])?;
    }
    Ok(())
}

fn write_job_facts(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE job SET account = coalesce(?2, account), queue = coalesce(?3, queue), nodes = coalesce(?4, nodes),
             cores = coalesce(?5, cores), state = coalesce(?6, state), exit_code = coalesce(?7, exit_code),
             exit_signal = coalesce(?8, exit_signal)
         WHERE job_key = ?1",
    )?;
    for (job, facts) in &frame.job_facts {
        let text = |name: &Option<Identifier>| name.as_ref().map(ToString::to_string);
        update.execute(params![
            job.key.get(),
            text(&facts.account),
            text(&facts.queue),
            text(&facts.nodes),
            facts.cores,
            text(&facts.state),
            facts.exit_code,
            facts.exit_signal,
        ])?;
    }
    Ok(())
}

fn write_sessions(
    connection: &Connection,
    frames: &[Accepted],
    last: &HashMap<SessionId, u64>,
    rows: &HashMap<SessionId, u64>,
) -> rusqlite::Result<()> {
    let mut node = connection
        .prepare_cached("INSERT INTO node (node, first_seen) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    let mut upsert = connection.prepare_cached(
        "INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, stored) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (session_id) DO UPDATE SET last_sequence = excluded.last_sequence, last_seen = excluded.last_seen,
             stored = stored + excluded.stored",
    )?;
    let seen_us = frames.iter().map(|frame| frame.received_us).max().unwrap_or_default();
    for session in sessions(frames) {
        let said = &session.descriptor;
        node.execute(params![said.node.as_str(), ns(seen_us)])?;
        let last = stored_count(last.get(&session.id).copied().unwrap_or_default());
        upsert.execute(params![
            session.id.to_string(),
            said.node.as_str(),
            said.agent_version.as_str(),
            ns(said.started_us),
            last,
            ns(seen_us),
            stored_count(rows.get(&session.id).copied().unwrap_or_default()),
        ])?;
    }
    Ok(())
}
