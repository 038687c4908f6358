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
    Doing, FileProblem, Origin, SCHEMA_VERSION, StoreError, job_ends, job_key, jobs_without_key, key_of,
    labels_json, ledger, lines_without_id, not_stored, series_without_id, sessions, sqlite_jobs,
    sqlite_sessions, stored_count, stored_us, through,
};
use crate::accepted::{Accepted, Committed, JobRecord, LedgerLine, Outcome, REFUSED, SeriesRecord};
use crate::limits;

/// Version by version, what makes the schema.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../schema/sqlite/1.sql"),
    include_str!("../schema/sqlite/2.sql"),
    include_str!("../schema/sqlite/3.sql"),
    include_str!("../schema/sqlite/4.sql"),
    include_str!("../schema/sqlite/5.sql"),
    concat!(include_str!("../schema/all/6.sql"), include_str!("../schema/sqlite/6.sql")),
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
        let known = sqlite_sessions::known(&self.connection, session).doing("looking up a session")?;
        Ok(known.map_or(0, |known| known.last))
    }

    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        // Before as well: to write behind a hole would hide it.
        self.check_files()?;
        // Ids are handed out in transactions of their own, so that an id that is remembered is one that is committed.
        self.give_job_keys(&jobs_without_key(frames), frames).doing("storing jobs")?;
        self.give_account_ids(&lines_without_id(frames)).doing("storing the ledger's lines")?;
        self.give_series_ids(&series_without_id(frames)).doing("storing series")?;
        let committed = self.write(frames).doing("storing samples")??;
        self.check_files()?;
        self.check_log_head()?;
        Ok(committed)
    }

    pub(crate) fn tell_outcome(&self, outcome: &Outcome) -> Result<bool, StoreError> {
        let Outcome { job_id, cluster, facts } = outcome;
        let told = self.connection.execute(
            "UPDATE job SET state = ?3, exit_code = coalesce(?4, exit_code), exit_signal = coalesce(?5, exit_signal)
             WHERE job_key = (SELECT job_key FROM job WHERE job_id = ?1 AND (?2 IS NULL OR cluster IS NULL OR cluster = ?2)
                              ORDER BY started DESC, job_key DESC LIMIT 1)",
            params![
                job_id.as_str(),
                cluster.as_ref().map(|cluster| cluster.as_str()),
                facts.state.as_ref().map(|state| state.as_str()),
                facts.exit_code,
                facts.exit_signal,
            ],
        );
        told.map(|rows| rows > 0).doing("storing how a job ended")
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    pub(crate) fn end_silent(&mut self, cutoff_us: i64, now_us: i64) -> Result<(), StoreError> {
        let mut end = || {
            let transaction = self.begin()?;
            sqlite_sessions::end_silent(&transaction, ns(cutoff_us), ns(now_us))?;
            transaction.commit()
        };
        end().doing("ending silent sessions")
    }

    fn give_job_keys(&mut self, jobs: &[Arc<JobRecord>], frames: &[Accepted]) -> rusqlite::Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let transaction = self.begin()?;
        let keys = sqlite_jobs::give_job_keys(&transaction, jobs, frames)?;
        transaction.commit()?;
        for (job, key) in jobs.iter().zip(keys) {
            job.key.get_or_init(|| key);
        }
        Ok(())
    }

    fn give_account_ids(&mut self, accounts: &[Arc<LedgerLine>]) -> rusqlite::Result<()> {
        if accounts.is_empty() {
            return Ok(());
        }
        let transaction = self.begin()?;
        let ids = accounts
            .iter()
            .map(|account| sqlite_sessions::give_account_id(&transaction, account))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        transaction.commit()?;
        for (account, id) in accounts.iter().zip(ids) {
            account.id.get_or_init(|| id);
        }
        Ok(())
    }

    fn give_series_ids(&mut self, series: &[Arc<SeriesRecord>]) -> rusqlite::Result<()> {
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
        let seen_us = frames.iter().map(|frame| frame.received_us).max().unwrap_or_default();
        let transaction = self.begin()?;
        let mut known = HashMap::new();
        for session in sessions(frames) {
            known.insert(session.id, sqlite_sessions::known(&transaction, session.id)?);
        }
        let last = |known: Option<sqlite_sessions::Known>| known.map_or(0, |known| known.last);
        let last = known.iter().map(|(id, known)| (*id, last(*known))).collect();
        let (new, progress) = match not_stored(frames, &last) {
            Ok(split) => split,
            Err(error) => return Ok(Err(error)),
        };
        let rows = write_samples(&transaction, &new)?;
        let quarantined = write_quarantine(&transaction, &new)?;
        sqlite_sessions::update_ledger(&transaction, &ledger::line_changes(&new))?;
        for frame in &new {
            write_losses(&transaction, frame)?;
            write_plan_changes(&transaction, frame)?;
            write_marks(&transaction, frame)?;
        }
        sqlite_jobs::end_jobs(&transaction, &job_ends(&new))?;
        for frame in &new {
            write_job_facts(&transaction, frame)?;
            write_job_owners(&transaction, frame)?;
            write_refused_requests(&transaction, frame)?;
        }
        sqlite_sessions::write_sessions(&transaction, &sessions(frames), &progress, ns(seen_us))?;
        for session in sessions(frames) {
            let was = known.get(&session.id).copied().flatten();
            let is_new = progress.get(&session.id).is_some_and(|progress| progress.is_new);
            if was.is_some_and(|was| was.is_ended) && is_new {
                sqlite_sessions::reopen_session(&transaction, session.id)?;
            }
            if was.is_none_or(|was| was.is_ended) {
                sqlite_sessions::supersede_sessions(
                    &transaction,
                    session.descriptor.node.as_str(),
                    ns(seen_us),
                )?;
            }
        }
        transaction.commit()?;
        let repeated = frames.len() - new.len();
        Ok(Ok(Committed { through: through(&progress), rows, quarantined, repeated: repeated as u64 }))
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

/// Nanoseconds, from the microseconds that an agent said.
pub(super) fn ns(time_us: i64) -> i64 {
    stored_us(time_us) * 1000
}

fn give_series_id(connection: &Connection, series: &SeriesRecord) -> rusqlite::Result<i64> {
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

fn write_quarantine(connection: &Connection, frames: &[&Accepted]) -> rusqlite::Result<u64> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO samples_quarantine (time, series_id, value, received) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let mut rows = 0;
    for frame in frames {
        for (series, samples) in frame.quarantined.iter().flat_map(|samples| samples.iter()) {
            let id = series.id.get();
            for (time_us, value) in samples {
                insert.execute(params![ns(time_us), id, value, ns(frame.received_us)])?;
                rows += 1;
            }
        }
    }
    Ok(rows)
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
            loss.line.as_ref().and_then(|account| key_of(account.job.as_ref())),
            loss.line.as_ref().map(|account| account.source.as_str()),
        ])?;
    }
    Ok(())
}

fn write_plan_changes(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO plan_change (time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until)
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
        "INSERT INTO mark (time, node, job_key, job_id, name, actor, detail)
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

fn write_job_facts(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE job SET account = coalesce(?2, account), queue = coalesce(?3, queue), nodes = coalesce(?4, nodes),
             cores = coalesce(?5, cores), state = coalesce(?6, state),
             -- What came with a state is the scheduler's last word: an epilog that knows none does not change it.
             exit_code = CASE WHEN ?6 IS NULL AND state IS NOT NULL THEN exit_code ELSE coalesce(?7, exit_code) END,
             exit_signal = CASE WHEN ?6 IS NULL AND state IS NOT NULL THEN exit_signal ELSE coalesce(?8, exit_signal) END
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

/// What is known of an owner stays: of two nodes that say different things the first is believed.
fn write_job_owners(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE job SET owner = coalesce(owner, ?2), owner_uid = coalesce(owner_uid, ?3) WHERE job_key = ?1",
    )?;
    for (job, owner) in &frame.job_owners {
        update.execute(params![job.key.get(), owner.name.as_ref().map(|name| name.as_str()), owner.uid])?;
    }
    Ok(())
}

fn write_refused_requests(connection: &Connection, frame: &Accepted) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO plan_change (time, node, job_key, job_id, metric, new_period_us, cause, actor, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for (job, refused) in &frame.refused_requests {
        insert.execute(params![
            ns(refused.at_us),
            job.node().as_str(),
            key_of(Some(job)),
            job.descriptor.job_id.as_str(),
            refused.request.as_str(),
            refused.period.map(|period| stored_count(period.as_micros())),
            REFUSED,
            refused.by.as_ref().map(|user| user.as_str()),
            refused.reason.as_str(),
        ])?;
    }
    Ok(())
}
