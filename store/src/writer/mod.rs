//! Writing side of a store: frames become rows in one transaction. The statements are the same for every
//! backend.

mod device_jobs;
mod events;
mod facts;
pub(crate) mod firings;
mod found;
mod histograms;
mod ids;
mod job_ends;
mod jobs;
mod kept;
mod ledger;
mod ledger_lines;
mod plan_changes;
mod progress;
mod rounds;
mod series;
mod sessions;
mod shared_lists;
mod stacks;
mod transaction;

use std::collections::HashSet;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, JobDescriptor, JobName, Labels, MetricDescriptor, SessionId};

pub use self::device_jobs::{DeviceJob, DeviceJobs};
use self::transaction::transaction;
use crate::accepted::{Accepted, Committed, JobOutcome, JobRecord, StoredOutcome};
use crate::backend::{Connection, Opened};
use crate::error::{Context, DatabaseError};
use crate::job_end_queue::EndQueue;
use crate::value::Value;
use crate::{OpenOptions, StoreError, StoreOrigin, StoreUrl, WriteMode, removal};

/// Connection that writes to a store. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct Store {
    connection: Box<dyn Connection>,
    origin: StoreOrigin,
    write_mode: WriteMode,
    queue: EndQueue,
    collector_id: Option<String>,
}

impl Store {
    /// Connects, and migrates the schema to the current version.
    pub fn open(url: &StoreUrl, options: &OpenOptions) -> Result<Self, StoreError> {
        let Opened { connection, origin, write_mode } = url.open(options)?;
        let queue = if options.queues_job_ends { EndQueue::On } else { EndQueue::Off };
        Ok(Self { connection, origin, write_mode, queue, collector_id: options.collector_id.clone() })
    }

    pub const fn origin(&self) -> StoreOrigin {
        self.origin
    }

    pub const fn write_mode(&self) -> &WriteMode {
        &self.write_mode
    }

    /// Checks that other processes can find the committed data, as far as that can be checked quickly.
    pub fn check(&mut self) -> Result<(), StoreError> {
        self.connection.check()
    }

    /// Returns the newest stored frame of a session, 0 if there is none.
    pub fn last_sequence(&mut self, session: SessionId) -> Result<u64, StoreError> {
        self.connection.check()?;
        let select = "SELECT last_sequence FROM session WHERE session_id = $1";
        let last = self.connection.select_first(select, &[session.to_string().into()]);
        Ok(last.context("look up a session")?.unwrap_or(0))
    }

    /// Returns the time of the database, in microseconds since the epoch.
    pub fn now_us(&mut self) -> Result<i64, StoreError> {
        removal::now_us(&mut *self.connection)
    }

    /// Ends the sessions that have been silent since `cutoff_us` and have a successor on their node. Both
    /// times are the database's, in microseconds since the epoch.
    pub fn end_superseded(&mut self, cutoff_us: i64, now_us: i64) -> Result<(), StoreError> {
        let (cutoff, now) = (Value::time(cutoff_us), Value::time(now_us));
        let ended = transaction(&mut *self.connection, |connection| {
            sessions::end_superseded_before(connection, &cutoff, &now)
        });
        ended.context("end superseded sessions")
    }

    /// Ends the sessions that have been silent since `cutoff_us`, and their jobs. Both times are the
    /// database's, in microseconds since the epoch. Returns the keys of the jobs that it ended on a node.
    pub fn end_silent(&mut self, cutoff_us: i64, now_us: i64) -> Result<Vec<i64>, StoreError> {
        let (cutoff, now) = (Value::time(cutoff_us), Value::time(now_us));
        let queue = self.queue;
        let ended = transaction(&mut *self.connection, |connection| {
            sessions::end_silent(connection, &cutoff, &now, queue)
        });
        ended.context("end silent sessions")
    }

    /// Stores how far the clocks of nodes are ahead of the collector's, by session, in microseconds; none if
    /// they are not far apart. Returns the sessions that are in the store.
    pub fn set_clock_offsets(
        &mut self,
        offsets: &[(SessionId, Option<i64>)],
    ) -> Result<HashSet<SessionId>, StoreError> {
        transaction(&mut *self.connection, |connection| sessions::set_clock_offsets(connection, offsets))
            .context("store the offsets of clocks")
    }

    /// Stores the outcome of the newest job of that id on a cluster.
    pub fn store_outcome(&mut self, outcome: &JobOutcome) -> Result<StoredOutcome, StoreError> {
        jobs::store_outcome(&mut *self.connection, outcome).context("store the outcome of a job")
    }

    /// Returns true if frames with a job of this descriptor, in the session `own`, would be of a job that the
    /// store has from another session.
    pub fn has_other_job(&mut self, job: &JobDescriptor, own: SessionId) -> Result<bool, StoreError> {
        jobs::has_other(&mut *self.connection, job, own).context("look up a job")
    }

    /// Returns the names and labels of at most `limit` series of a job on its node, of metrics whose names
    /// begin with `begin`.
    pub fn user_series(
        &mut self,
        job: &Arc<JobRecord>,
        begin: &str,
        limit: usize,
    ) -> Result<Vec<(String, Labels)>, StoreError> {
        const ACTION: &str = "read the series of a job";
        let connection = &mut *self.connection;
        let Some(key) = jobs::stored_key(connection, job).context(ACTION)? else { return Ok(Vec::new()) };
        series::beginning_with(connection, begin, (key, job.node().as_str()), limit).context(ACTION)
    }

    /// Returns the runs of jobs that devices name.
    pub fn device_jobs(&mut self, names: &[JobName]) -> Result<DeviceJobs, StoreError> {
        device_jobs::find(&mut *self.connection, names).context("look up the jobs that devices name")
    }

    /// Returns true if a job has run on a node.
    pub fn had_jobs(&mut self, node: &Identifier) -> Result<bool, StoreError> {
        device_jobs::had_jobs(&mut *self.connection, node).context("look up the jobs of a node")
    }

    /// Stores the unit and the kind of metrics that the store does not have yet. Returns the name, the unit
    /// and the kind of each as the store has them.
    pub fn define_metrics(
        &mut self,
        metrics: &[MetricDescriptor],
    ) -> Result<Vec<(String, String, String)>, StoreError> {
        transaction(&mut *self.connection, |connection| series::define_metrics(connection, metrics))
            .context("store metrics")
    }

    /// Stores `frames` in one transaction, except for those that are already stored. In case of an error
    /// nothing is stored.
    pub fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        let connection = &mut *self.connection;
        // A commit behind a hole of the log would conceal it.
        connection.check()?;
        // Ids are assigned in separate transactions: short ones, so that writers do not wait for each other,
        // and committed before an id is cached.
        let new_jobs = jobs::assign_keys(connection, frames, self.queue).context("store jobs")?;
        ids::assign(connection, frames, &new_jobs, &last_seen(frames)).context("store series")?;
        stacks::announce(connection, frames).context("store the names of functions")?;
        connection.make_room(frames).context("create a partition")?;
        let by = CommittedBy { queue: self.queue, collector_id: self.collector_id.as_deref() };
        let committed = write(connection, frames, &new_jobs, &by)?;
        connection.check_committed()?;
        Ok(committed)
    }
}

struct CommittedBy<'a> {
    queue: EndQueue,
    collector_id: Option<&'a str>,
}

/// Returns the time at which the newest of `frames` arrived.
fn last_seen(frames: &[Accepted]) -> Value<'static> {
    Value::time(frames.iter().map(|frame| frame.received_us).max().unwrap_or_default())
}

/// Runs the transaction that stores frames. Rows are locked by session, then by job, each in the order of
/// their keys. Connections that lock in the same order cannot deadlock.
fn write(
    connection: &mut dyn Connection,
    frames: &[Accepted],
    new_jobs: &HashSet<i64>,
    by: &CommittedBy<'_>,
) -> Result<Committed, StoreError> {
    const ACTION: &str = "store samples";
    let sessions = progress::sessions(frames);
    let seen = last_seen(frames);
    connection.begin().context(ACTION)?;
    sessions::insert(connection, &sessions, &seen).context(ACTION)?;
    let known = sessions::lock(connection, &sessions).context(ACTION)?;
    let last = known.iter().map(|(id, known)| (*id, known.last)).collect();
    let (new, progress) = progress::not_stored(frames, &last)?;
    let mut pending = known.iter().map(|(id, known)| (*id, known.pending.clone())).collect();
    ledger_lines::set_known_ids(connection, &new, new_jobs).context(ACTION)?;
    let lines = ledger::line_changes(&new);
    let changes = ledger::settle(lines.known, &mut pending, connection.dialect().defers_ledger);
    let write_all = |connection: &mut dyn Connection| -> Result<(u64, u64, Vec<_>), DatabaseError> {
        let rows = connection.write_samples(&new)? + kept::insert(connection, &new)?;
        let quarantined = events::insert_quarantined(connection, &new)?;
        histograms::insert(connection, &new)?;
        stacks::insert(connection, &new)?;
        firings::insert(connection, &new)?;
        ledger_lines::update(connection, &changes)?;
        let line_ids = ledger_lines::insert(connection, lines.new)?;
        events::insert_losses(connection, &new)?;
        plan_changes::insert(connection, &new)?;
        events::insert_marks(connection, &new)?;
        job_ends::lock_jobs(connection, &new)?;
        job_ends::move_starts(connection, &new)?;
        job_ends::end_jobs(connection, &job_ends::of_frames(&new), by.queue)?;
        facts::store(connection, &new)?;
        facts::store_details(connection, &new)?;
        jobs::store_owners(connection, &new)?;
        sessions::advance(connection, &progress, &pending, by.collector_id)?;
        let reopened = known.iter().filter(|(id, known)| {
            known.is_ended && progress.get(*id).is_some_and(|progress| progress.is_new)
        });
        let mut nodes = sessions::reopen(connection, reopened.map(|(id, _)| *id))?;
        // These sessions begin with the frames at hand.
        let begun =
            sessions.iter().filter(|session| known.get(&session.id).is_some_and(|known| known.last == 0));
        nodes.extend(begun.map(|session| session.descriptor.node.as_str().to_owned()));
        sessions::end_superseded(connection, nodes, &seen)?;
        connection.commit()?;
        Ok((rows, quarantined, line_ids))
    };
    let (rows, quarantined, line_ids) = write_all(connection).context(ACTION)?;
    for (line, id) in line_ids {
        line.id.assign(id);
    }
    let repeated = (frames.len() - new.len()) as u64;
    Ok(Committed { through: progress::through(&progress), rows, quarantined, repeated })
}
