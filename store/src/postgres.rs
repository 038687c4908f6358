//! PostgreSQL, with or without TimescaleDB: the connection, the schema, and the transactions.
//!
//! A writer's thread drives its connection with an event loop of its own, so that the rest of the collector waits for
//! nothing but queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use polymeter_proto::series::SessionId;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

use super::copy::Timestamp;
use super::{
    Choice, DAY_US, Doing, Origin, SCHEMA_VERSION, StoreError, TimescaleMode, Way, job_ends, job_rows,
    jobs_without_key, ledger, lines_without_id, not_stored, rows, series_without_id, session_rows, sessions,
    stored_us, through, timescale,
};
use crate::accepted::{Accepted, Committed, JobRecord, LedgerLine, Outcome, SeriesRecord};
use crate::limits;

/// The migration to each version of the schema, the first to version 1.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../schema/postgres/1.sql"),
    include_str!("../schema/postgres/2.sql"),
    include_str!("../schema/postgres/3.sql"),
    include_str!("../schema/postgres/4.sql"),
    include_str!("../schema/postgres/5.sql"),
    concat!(include_str!("../schema/all/6.sql"), include_str!("../schema/postgres/6.sql")),
];

/// The functions and views that manage the partitions of `samples`, beside version 1.
const PARTITIONS: &str = include_str!("../schema/postgres/partitions_1.sql");

/// Where the first version leaves room to say that `samples` has partitions.
const PARTITIONING: &str = "/* PARTITIONING */";

/// Where version 5 gives `samples` keys of 64 bits.
const WIDENING: &str = "/* WIDEN SAMPLES */";

/// How a table that is no hypertable yet gets them.
const WIDEN: &str = "ALTER TABLE samples ALTER COLUMN series_id TYPE int8;";

/// The advisory lock under which collectors change the schema and the partitions: "polymete" in ASCII.
pub(super) const SCHEMA_LOCK: i64 = 0x706f_6c79_6d65_7465;

/// The advisory lock under which jobs get their rows, for no unique index can say when two are the same.
const JOB_LOCK: i64 = SCHEMA_LOCK + 1;

/// A connection to PostgreSQL.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    runtime: Runtime,
    client: Client,
    choice: Choice,
    origin: Origin,
    /// The days, counted from the epoch, whose partitions are known to be there.
    days: BTreeSet<i64>,
}

impl PostgresStore {
    pub(crate) fn open(config: &Config, mode: TimescaleMode) -> Result<Self, StoreError> {
        let runtime = event_loop()?;
        let (client, choice, origin) = runtime.block_on(async {
            let mut client = connect(config).await?;
            let (choice, is_new) = migrate(&mut client, mode).await?;
            let table =
                client.query_one("SELECT 'session'::regclass::oid", &[]).await.doing("looking for tables")?;
            let origin = Origin { file: None, table: Some(table.get(0)), is_new };
            Ok::<_, StoreError>((client, choice, origin))
        })?;
        Ok(Self { runtime, client, choice, origin, days: BTreeSet::new() })
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) const fn choice(&self) -> &Choice {
        &self.choice
    }

    pub(crate) fn last_sequence(&self, session: SessionId) -> Result<u64, StoreError> {
        let id = session.to_string();
        let query = async {
            self.client.query_opt("SELECT last_sequence FROM session WHERE session_id = $1", &[&id]).await
        };
        let row = self.runtime.block_on(query).doing("looking up a session")?;
        Ok(row.map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
    }

    pub(crate) fn end_silent(&mut self, cutoff_us: i64, now_us: i64) -> Result<(), StoreError> {
        let Self { runtime, client, .. } = self;
        let [cutoff, now] = [cutoff_us, now_us].map(|time_us| Timestamp(stored_us(time_us)));
        runtime
            .block_on(async {
                let transaction = client.transaction().await?;
                session_rows::end_silent(&transaction, cutoff, now).await?;
                transaction.commit().await
            })
            .doing("ending silent sessions")
    }

    pub(crate) fn tell_outcome(&self, outcome: &Outcome) -> Result<bool, StoreError> {
        self.runtime.block_on(job_rows::tell_outcome(&self.client, outcome)).doing("storing how a job ended")
    }

    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        let Self { runtime, client, choice, days, .. } = self;
        runtime.block_on(async {
            // Ids are handed out in transactions of their own: short ones, so that writers do not wait for each other,
            // and committed before an id is remembered.
            give_job_keys(client, &jobs_without_key(frames), frames).await.doing("storing jobs")?;
            give_account_ids(client, &lines_without_id(frames)).await.doing("storing the ledger's lines")?;
            give_series_ids(client, &series_without_id(frames)).await.doing("storing series")?;
            if choice.way == Way::Partitions {
                create_partitions(client, frames, days).await.doing("creating a partition")?;
            }
            write(client, frames).await.doing("storing samples")?
        })
    }
}

/// An event loop for one thread.
pub(crate) fn event_loop() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StoreError::Runtime)
}

/// Connects. A server that vanishes without a word is noticed in about a minute.
pub(crate) async fn connect(config: &Config) -> Result<Client, StoreError> {
    let mut config = config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::CONNECT);
    }
    if config.get_application_name().is_none() {
        config.application_name("polymeter-collector");
    }
    config.tcp_user_timeout(limits::CONNECT * 6).keepalives_idle(limits::CONNECT * 3);
    let (client, connection) = config.connect(NoTls).await.doing("connecting")?;
    // Its outcome shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}

/// Brings the schema up to date; of several collectors that start together, one does.
/// Says whether there was none.
async fn migrate(client: &mut Client, mode: TimescaleMode) -> Result<(Choice, bool), StoreError> {
    let doing = "bringing the schema up to date";
    client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await.doing(doing)?;
    let offer = timescale::look(client).await?;
    let found = schema_version(client).await.doing(doing)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { found });
    }
    // Only a new table can be made a hypertable; for an old one the extension is as it is.
    let offer = if found == 0 { timescale::install(client, mode, offer).await? } else { offer };
    let hypertable = found == 0 && timescale::wants_hypertable(&offer, mode)?;
    let partitioned = if found == 0 { !hypertable } else { is_partitioned(client).await.doing(doing)? };
    let transaction = client.transaction().await.doing(doing)?;
    for (version, migration) in
        (1..=SCHEMA_VERSION).zip(MIGRATIONS).skip_while(|(version, _)| *version <= found)
    {
        let partitioning = if partitioned { "PARTITION BY RANGE (time)" } else { "" };
        let widening = if found == 0 || partitioned { WIDEN.to_owned() } else { timescale::widen(&offer) };
        let migration = migration.replace(PARTITIONING, partitioning).replace(WIDENING, &widening);
        transaction.batch_execute(&migration).await.doing(doing)?;
        if partitioned && version == 1 {
            transaction.batch_execute(PARTITIONS).await.doing(doing)?;
        }
        transaction.execute("INSERT INTO schema_version VALUES ($1)", &[&version]).await.doing(doing)?;
    }
    if hypertable {
        timescale::make_hypertable(&transaction, &offer).await?;
    }
    transaction.commit().await.doing(doing)?;
    client.execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await.doing(doing)?;
    let is_new = found == 0;
    Ok((timescale::choose(client, &offer, mode, is_new).await?, is_new))
}

async fn schema_version(client: &Client) -> Result<i32, tokio_postgres::Error> {
    client.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version int4 NOT NULL)").await?;
    Ok(client.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.get(0))
}

async fn is_partitioned(client: &Client) -> Result<bool, tokio_postgres::Error> {
    Ok(client
        .query_one("SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass", &[])
        .await?
        .get(0))
}

async fn give_job_keys(
    client: &mut Client,
    jobs: &[Arc<JobRecord>],
    frames: &[Accepted],
) -> Result<(), tokio_postgres::Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&JOB_LOCK]).await?;
    let keys = job_rows::give_job_keys(&transaction, jobs, frames).await?;
    transaction.commit().await?;
    for (job, key) in jobs.iter().zip(keys) {
        job.key.get_or_init(|| key);
    }
    Ok(())
}

async fn give_account_ids(
    client: &Client,
    accounts: &[Arc<LedgerLine>],
) -> Result<(), tokio_postgres::Error> {
    if accounts.is_empty() {
        return Ok(());
    }
    session_rows::find_accounts(client, accounts).await?;
    let unknown: Vec<_> = accounts.iter().filter(|account| account.id.get().is_none()).cloned().collect();
    if !unknown.is_empty() {
        session_rows::insert_accounts(client, &unknown).await?;
        session_rows::find_accounts(client, &unknown).await?;
    }
    Ok(())
}

async fn give_series_ids(client: &Client, series: &[Arc<SeriesRecord>]) -> Result<(), tokio_postgres::Error> {
    if series.is_empty() {
        return Ok(());
    }
    // Each statement commits by itself: an id that is seen is an id that stays.
    rows::find_series(client, series).await?;
    let unknown: Vec<_> = series.iter().filter(|series| series.id.get().is_none()).cloned().collect();
    if !unknown.is_empty() {
        rows::insert_metrics(client, &unknown).await?;
        rows::insert_series(client, &unknown).await?;
        rows::find_series(client, &unknown).await?;
    }
    Ok(())
}

/// Creates the partitions that the samples of `frames` need, and the one after the newest.
async fn create_partitions(
    client: &mut Client,
    frames: &[Accepted],
    known: &mut BTreeSet<i64>,
) -> Result<(), tokio_postgres::Error> {
    let times = frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| &samples.times_us);
    let mut days: BTreeSet<i64> = times.map(|time_us| stored_us(*time_us) / DAY_US).collect();
    days.extend(days.last().map(|newest| newest + 1));
    days.retain(|day| !known.contains(day));
    if days.is_empty() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    for day in &days {
        let day = i32::try_from(*day).unwrap_or(i32::MAX);
        transaction
            .execute("SELECT polymeter_create_partition(date '1970-01-01' + $1::int4)", &[&day])
            .await?;
    }
    transaction.commit().await?;
    known.append(&mut days);
    Ok(())
}

/// The inner error is the store's own.
async fn write(
    client: &mut Client,
    frames: &[Accepted],
) -> Result<Result<Committed, StoreError>, tokio_postgres::Error> {
    let sessions = sessions(frames);
    let seen_us = frames.iter().map(|frame| frame.received_us).max().unwrap_or_default();
    let seen = Timestamp(stored_us(seen_us));
    let transaction = client.transaction().await?;
    // The rows of sessions, then of jobs, each in the order of their keys: who locks in one order never waits in a circle.
    let introduced = session_rows::insert_sessions(&transaction, &sessions, seen).await?;
    let mut known = session_rows::lock_sessions(&transaction, &sessions).await?;
    let last = known.iter().map(|(id, known)| (*id, known.last)).collect();
    let (new, progress) = match not_stored(frames, &last) {
        Ok(split) => split,
        Err(error) => return Ok(Err(error)),
    };
    let mut pending = known.iter_mut().map(|(id, known)| (*id, std::mem::take(&mut known.pending))).collect();
    let settled = ledger::settle(ledger::line_changes(&new), &mut pending);
    let rows = rows::copy_samples(&transaction, &new).await?;
    let quarantined = rows::insert_quarantine(&transaction, &new).await?;
    session_rows::update_ledger(&transaction, &settled).await?;
    rows::insert_losses(&transaction, &new).await?;
    rows::insert_plan_changes(&transaction, &new).await?;
    rows::insert_marks(&transaction, &new).await?;
    job_rows::lock_jobs(&transaction, &new).await?;
    job_rows::end_jobs(&transaction, &job_ends(&new)).await?;
    job_rows::tell_jobs(&transaction, &new).await?;
    job_rows::own_jobs(&transaction, &new).await?;
    rows::insert_refused_requests(&transaction, &new).await?;
    session_rows::advance_sessions(&transaction, &progress, &pending, seen).await?;
    let is_back = |id: &SessionId| progress.get(id).is_some_and(|progress| progress.is_new);
    let back = known.iter().filter(|(id, known)| known.is_ended && is_back(id));
    let back: Vec<String> = back.map(|(id, _)| id.to_string()).collect();
    let mut nodes = session_rows::reopen_sessions(&transaction, &back).await?;
    nodes.extend(introduced);
    session_rows::supersede_sessions(&transaction, &nodes, seen).await?;
    transaction.commit().await?;
    let repeated = frames.len() - new.len();
    Ok(Ok(Committed { through: through(&progress), rows, quarantined, repeated: repeated as u64 }))
}
