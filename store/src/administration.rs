//! Administration of a store: the jobs that retention exempts, and the removal of old rows on request.

use std::collections::BTreeSet;
use std::fmt;

use crate::backend::{AdministrationSession, Connection, Measure, Removal, Removed};
use crate::error::Context;
use crate::reader::Reader;
use crate::removal;
use crate::removal::clock_check::{self, ClockJump, ClockWatch};
use crate::retention::{Cutoffs, Level, LevelState, Part, Retention, Storage};
use crate::row::{TimeUs, from_row};
use crate::stop::Stop;
use crate::value::{Batch, Column, ColumnType, Value};
use crate::{StoreError, StoreUrl};

const HOUR_US: i64 = 3600 * 1_000_000;

/// How far samples of a job, and the beginnings of their summaries, may lie before its start.
const SAMPLES_BEFORE_US: i64 = 2 * HOUR_US;

/// Roles of a server's database that have rights on a store: of further collectors, of programs that read
/// everything, and of users.
pub const STORE_ROLES: [&str; 3] = ["polymeter_writer", "polymeter_reader", "polymeter_user"];

/// Connection that administers a store. Its user owns the store, or may change its tables.
pub struct Administration {
    connection: Box<dyn Connection>,
    removal: &'static Removal,
    measure: Measure,
}

impl fmt::Debug for Administration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Administration").field("connection", &self.connection).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptJob {
    pub job_key: i64,
    /// Id of the scheduler.
    pub job_id: String,
    /// End of the exemption, in microseconds since the epoch; none for ever.
    pub until_us: Option<i64>,
}

from_row!(KeptJob { job_key, job_id, until_us: TimeUs });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pruned {
    /// Removed, except for rows of kept jobs.
    Removed { kept_rows: u64 },
    /// Not removed yet: the rollups of the part are not complete.
    Postponed,
}

impl Administration {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let AdministrationSession { connection, removal, measure } = url.open_current_version()?;
        Ok(Self { connection, removal, measure })
    }

    /// Returns the retention of each level, the finest first.
    pub fn retention(&mut self) -> Result<Vec<LevelState>, StoreError> {
        removal::states(&mut *self.connection)
    }

    /// Returns the time of the database, in microseconds since the epoch.
    pub fn now_us(&mut self) -> Result<i64, StoreError> {
        removal::now_us(&mut *self.connection)
    }

    /// Returns those of [`STORE_ROLES`] that do not exist or have no rights; none in a file.
    pub fn missing_roles(&mut self) -> Result<Vec<String>, StoreError> {
        let Some(has_rights) = self.connection.dialect().has_rights else { return Ok(Vec::new()) };
        let mut missing = Vec::new();
        for role in STORE_ROLES {
            let found: bool =
                self.connection.select_one(has_rights, &[role.into()]).context("find the roles")?;
            if !found {
                missing.push(role.to_owned());
            }
        }
        Ok(missing)
    }

    /// Returns the jump of the clock that keeps rows from becoming old; none if the clock is plausible.
    pub fn clock_jump(&mut self) -> Result<Option<ClockJump>, StoreError> {
        clock_check::refused(&mut *self.connection)
    }

    /// Confirms that the clock of the database is right, so that rows become old by it again. Returns it with
    /// the time that was accepted before.
    pub fn confirm_clock(&mut self) -> Result<ClockJump, StoreError> {
        clock_check::confirm(&mut *self.connection)
    }

    pub fn storage(&mut self) -> Result<Storage, StoreError> {
        let now_us = self.now_us()?;
        (self.measure)(&mut *self.connection, now_us)
    }

    /// Exempts a job from retention until a time, in microseconds since the epoch, or for ever.
    pub fn keep(&mut self, job_key: i64, until_us: Option<i64>) -> Result<(), StoreError> {
        const ACTION: &str = "keep the job";
        let kept_at_us = removal::now_us(&mut *self.connection)?;
        let insert = "INSERT INTO kept_job (job_key, kept_at, until, is_complete) VALUES ($1, $2, $3, NOT EXISTS (
                 SELECT 1 FROM retention, job WHERE relation = 'samples' AND job.job_key = $1 AND dropped_before > job.started))
             ON CONFLICT (job_key) DO UPDATE SET until = excluded.until";
        let until = until_us.map_or(Value::Null, Value::time);
        self.connection.begin().context(ACTION)?;
        self.connection.execute(insert, &[job_key.into(), Value::time(kept_at_us), until]).context(ACTION)?;
        self.connection.commit().context(ACTION)
    }

    /// Ends the exemption of a job. Returns false if it had none.
    pub fn release(&mut self, job_key: i64) -> Result<bool, StoreError> {
        const ACTION: &str = "release the job";
        self.connection.begin().context(ACTION)?;
        // Its rows are left, from the time on at which it started.
        let started = "SELECT started FROM kept_job JOIN job USING (job_key) WHERE job_key = $1";
        let job = self.connection.select_first(started, &[job_key.into()]).context(ACTION)?;
        if let Some(TimeUs::<i64>(started_us)) = job {
            let incomplete = "UPDATE retention SET complete_before = $1 WHERE complete_before > $1";
            let begin = Value::time(started_us - SAMPLES_BEFORE_US);
            self.connection.execute(incomplete, &[begin]).context(ACTION)?;
        }
        let delete = "DELETE FROM kept_job WHERE job_key = $1";
        let deleted = self.connection.execute(delete, &[job_key.into()]).context(ACTION)?;
        self.connection.commit().context(ACTION)?;
        Ok(deleted > 0)
    }

    pub fn kept_jobs(&mut self) -> Result<Vec<KeptJob>, StoreError> {
        let select = "SELECT job_key, job_id, until FROM kept_job JOIN job USING (job_key) ORDER BY job_key";
        self.connection.select(select, &[]).context("read the kept jobs")
    }

    /// Returns what is removed now, the finest level first. With `before_us`, samples before it are removed
    /// even if the policy keeps them for longer.
    pub fn due(&mut self, before_us: Option<i64>) -> Result<Vec<Part>, StoreError> {
        let cutoffs = cutoffs(&mut *self.connection, before_us)?;
        if cutoffs.is_empty() { Ok(Vec::new()) } else { (self.removal.due)(&mut *self.connection, &cutoffs) }
    }
}

fn cutoffs(connection: &mut dyn Connection, before_us: Option<i64>) -> Result<Cutoffs, StoreError> {
    let now_us = removal::now_us(connection)?;
    let policy = removal::cutoffs(connection, now_us)?;
    if before_us.is_some_and(|before_us| before_us > now_us - HOUR_US) {
        return Err(StoreError::Unusable(
            "cannot remove samples of the last hour, which may not be in the summaries yet; give an earlier day"
                .to_owned(),
        ));
    }
    // The end of buckets of an hour.
    Ok(policy.with(Level::Samples, before_us.map(|before_us| before_us.div_euclid(HOUR_US) * HOUR_US)))
}

/// Removes what the policy does not keep, as the maintenance does, and passes each result to `each`. With
/// `before_us`, samples before it are removed even if the policy keeps them for longer. Fails while another
/// program maintains the store.
pub fn prune(
    url: &StoreUrl,
    before_us: Option<i64>,
    each: impl FnMut(&Part, Pruned),
) -> Result<(), StoreError> {
    prune_with(url, before_us, &Stop::default(), each)
}

fn prune_with(
    url: &StoreUrl,
    before_us: Option<i64>,
    stop: &Stop,
    mut each: impl FnMut(&Part, Pruned),
) -> Result<(), StoreError> {
    drop(Reader::open(url)?);
    let Some(mut session) = url.open_for_maintenance()? else {
        return Err(StoreError::Unusable(
            "cannot maintain the store: a collector maintains it at this moment; try again in a minute"
                .to_owned(),
        ));
    };
    let connection = &mut *session.connection;
    // The monotonic clock is not needed: this program has accepted no time before.
    if let Some(jump) = ClockWatch::default().check(connection, 0)? {
        return Err(StoreError::Unusable(format!(
            "cannot remove old rows: {jump}; correct the clock, or confirm it with polymeter store confirm-clock"
        )));
    }
    let cutoffs = cutoffs(connection, before_us)?;
    removal::remove_before(connection, stop, session.removal, &cutoffs, |part, removed| {
        each(
            part,
            match removed {
                Removed::Done { kept_rows } => Pruned::Removed { kept_rows },
                Removed::Postponed => Pruned::Postponed,
            },
        );
    })
}

/// Writes the policy of a store, as a collector does when it starts.
pub fn set_retention(url: &StoreUrl, retention: &Retention) -> Result<(), StoreError> {
    let mut session = url.open_current_version()?;
    removal::write(&mut *session.connection, retention).map(drop)
}

const MANAGER: [Column; 2] = [("account", ColumnType::Text), ("manager", ColumnType::Text)];

/// Writes the managers of accounts as pairs of an account and a user, so that the roles of a database see
/// their jobs. Does nothing in a store without roles.
pub fn set_managers(url: &StoreUrl, managers: &BTreeSet<(String, String)>) -> Result<(), StoreError> {
    const ACTION: &str = "store the managers of accounts";
    let connection = &mut *url.open_to_administer()?.connection;
    if connection.dialect().has_rights.is_none() {
        return Ok(());
    }
    let select = "SELECT account, manager FROM account_manager";
    let stored: Vec<(String, String)> = connection.select(select, &[]).context(ACTION)?;
    if stored.into_iter().collect::<BTreeSet<_>>() == *managers {
        return Ok(());
    }
    connection.begin().context(ACTION)?;
    connection.execute("DELETE FROM account_manager", &[]).context(ACTION)?;
    let rows = Batch::new(
        &MANAGER,
        managers.iter().map(|(account, manager)| [account.clone().into(), manager.clone().into()]),
    );
    let insert =
        "INSERT INTO account_manager (account, manager) SELECT account, manager FROM {new} WHERE true
         ON CONFLICT DO NOTHING";
    connection.execute_batch(insert, &rows).context(ACTION)?;
    connection.commit().context(ACTION)
}
