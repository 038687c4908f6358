//! Maintenance of a store besides the writers: a thread that runs the tasks of the backend.
//!
//! One connection at a time maintains a store, also with several collectors. A task works in small
//! transactions, so that it can be interrupted between any two of them: a stop of the collector cancels the
//! running statement, and the next start goes on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::StoreError;
use crate::backend::{Backend, Connection, MaintenanceSession, Task};
use crate::error::chain;
use crate::removal;
use crate::removal::clock_check::{ClockJump, ClockWatch};
use crate::retention::Retention;
use crate::stop::Stop;

/// Rounds after which an obstacle is logged again: a day.
const OBSTACLE_ROUNDS: u64 = 1440;

/// Rounds after which a jump of the clock is logged again: an hour.
const JUMP_ROUNDS: u32 = 60;

const ROUND: Duration = Duration::from_secs(60);

/// Time after which a round that could not run is tried again at first; each time it doubles, up to
/// [`ROUND`]. A collector that ended just now may still hold the lock.
const FIRST_RETRY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Maintenance {
    stop: Arc<Stop>,
    retention: NewRetention,
    /// None once it is joined.
    thread: Option<JoinHandle<()>>,
}

type NewRetention = Arc<Mutex<Option<Retention>>>;

/// What the maintenance needs to judge the clock of the database.
pub struct ClockLinks {
    /// Returns the monotonic time, which goes on while the machine is suspended.
    pub monotonic_ns: fn() -> u64,
    /// Receives each minute the jump of the clock that keeps rows from becoming old, or none.
    pub report: Box<dyn Fn(Option<ClockJump>) + Send>,
}

impl fmt::Debug for ClockLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockLinks").finish_non_exhaustive()
    }
}

struct ClockCheck {
    watch: ClockWatch,
    links: ClockLinks,
    /// Rounds since a jump was found; 0 without one.
    refused_rounds: u32,
}

impl Maintenance {
    /// Starts the maintenance of a database. Without a policy for retention, the store's own stays in force.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        retention: Option<Retention>,
        links: ClockLinks,
    ) -> Result<Self, StoreError> {
        let stop = Arc::new(Stop::default());
        let ended = Ended(Arc::clone(&stop));
        let retention = Arc::new(Mutex::new(retention));
        let new_retention = Arc::clone(&retention);
        let thread = Builder::new().name("maintenance".to_owned());
        let thread = thread.spawn(move || run_rounds(&*backend, &new_retention, links, &ended.0));
        let thread = thread.map_err(StoreError::Thread)?;
        Ok(Self { stop, retention, thread: Some(thread) })
    }

    /// Sets another policy for retention, which the next round writes into the store.
    pub fn set_retention(&self, retention: Retention) {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = Some(retention);
    }

    /// Ends the thread, and cancels the statement that it runs. A thread whose database does not answer is
    /// left behind. Returns an error if the thread panicked.
    pub fn stop(mut self) -> std::thread::Result<()> {
        self.end()
    }

    fn end(&mut self) -> std::thread::Result<()> {
        match self.thread.take() {
            Some(thread) if self.stop.request() => thread.join(),
            Some(_) => {
                warn!("cannot end the database maintenance: the database does not answer");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        if self.end().is_err() {
            warn!("the thread of the database maintenance panicked");
        }
    }
}

/// Records the end of the thread when it is dropped, also after a panic.
struct Ended(Arc<Stop>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// The rounds in which the tasks run next.
#[derive(Default)]
struct Schedule {
    round: u64,
    /// By the name of the task. A task that has not run is due.
    tasks: HashMap<&'static str, Due>,
}

#[derive(Default)]
struct Due {
    round: u64,
    /// How often the task failed in turn.
    failures: u32,
}

impl Schedule {
    fn is_due(&self, task: &Task) -> bool {
        self.tasks.get(task.name).is_none_or(|due| due.round <= self.round)
    }

    fn record_success(&mut self, task: &Task) {
        let due = Due { round: self.round + u64::from(task.rounds), failures: 0 };
        self.tasks.insert(task.name, due);
    }

    /// Lets a failed task run again: at once, then after a round, after two, four and so on, as many as it
    /// has at most. It may have met a query that read what it wanted to remove, or a server that restarted.
    fn record_failure(&mut self, task: &Task) {
        let due = self.tasks.entry(task.name).or_default();
        let pause = (1_u32.checked_shl(due.failures).unwrap_or(u32::MAX) / 2).min(task.rounds);
        *due = Due { round: self.round + u64::from(pause), failures: due.failures.saturating_add(1) };
    }
}

fn run_rounds(backend: &dyn Backend, retention: &NewRetention, links: ClockLinks, stop: &Stop) {
    let mut clock = ClockCheck { watch: ClockWatch::default(), links, refused_rounds: 0 };
    let (mut schedule, mut retry) = (Schedule::default(), FIRST_RETRY);
    loop {
        let is_finished = run_round(backend, &mut schedule, retention, &mut clock, stop);
        let pause = if is_finished {
            schedule.round += 1;
            retry = FIRST_RETRY;
            ROUND
        } else {
            let pause = retry;
            retry = ROUND.min(retry * 2);
            pause
        };
        if stop.is_requested_within(pause) {
            return;
        }
    }
}

/// Runs the tasks that are due. Returns false if the database cannot be maintained now.
fn run_round(
    backend: &dyn Backend,
    schedule: &mut Schedule,
    retention: &NewRetention,
    clock: &mut ClockCheck,
    stop: &Stop,
) -> bool {
    while !stop.is_requested() {
        let mut session = match backend.open_for_maintenance() {
            Ok(Some(session)) => session,
            // Another collector maintains the database.
            Ok(None) => return false,
            Err(error) => {
                info!("database maintenance postponed: {}", chain(&error));
                return false;
            }
        };
        stop.set_cancel(session.cancel.take());
        let connection = &mut *session.connection;
        let begun = write_retention(connection, retention).and_then(|()| clock.check(connection));
        if let Err(error) = begun {
            info!("database maintenance postponed: {}", chain(&error));
            stop.set_cancel(None);
            return false;
        }
        if let Some(obstacle) = &session.obstacle
            && schedule.round.is_multiple_of(OBSTACLE_ROUNDS)
        {
            warn!("{obstacle}");
        }
        let is_finished = run_tasks(session, schedule, stop);
        stop.set_cancel(None);
        if is_finished {
            return true;
        }
    }
    false
}

impl ClockCheck {
    /// Compares the clock of the database with the elapsed time. Logs a jump every [`JUMP_ROUNDS`] rounds.
    fn check(&mut self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        let jump = self.watch.check(connection, (self.links.monotonic_ns)())?;
        (self.links.report)(jump);
        let Some(jump) = jump else {
            if std::mem::take(&mut self.refused_rounds) > 0 {
                info!("the clock of the database is plausible again: old rows are removed");
            }
            return Ok(());
        };
        if self.refused_rounds.is_multiple_of(JUMP_ROUNDS) {
            error!(
                error = %jump,
                remedy = "correct the clock; if it is right, run polymeter store confirm-clock",
                "cannot remove old rows: nothing becomes old until the clock is confirmed"
            );
        }
        self.refused_rounds = self.refused_rounds.saturating_add(1);
        Ok(())
    }
}

/// Writes a new policy for retention into the store. Without it nothing is removed.
///
/// The database may not answer for long: the policy is not locked meanwhile, so that
/// [`Maintenance::set_retention`] never waits.
fn write_retention(
    connection: &mut dyn Connection,
    new_retention: &Mutex<Option<Retention>>,
) -> Result<(), StoreError> {
    let waiting = || new_retention.lock().unwrap_or_else(PoisonError::into_inner);
    let new = *waiting();
    let Some(new) = new else { return Ok(()) };
    if let Some(before) = removal::write(connection, &new)?
        && before != Retention::FOREVER
    {
        info!("the retention changed from {before} to {new}");
    }
    // A policy that was set meanwhile is written by the next round.
    let mut waiting = waiting();
    if *waiting == Some(new) {
        *waiting = None;
    }
    Ok(())
}

/// Runs the tasks that are due. Returns false after an error: the other tasks need a new connection.
fn run_tasks(session: MaintenanceSession, schedule: &mut Schedule, stop: &Stop) -> bool {
    let MaintenanceSession { mut connection, tasks, .. } = session;
    for task in tasks {
        if stop.is_requested() {
            break;
        }
        if !schedule.is_due(task) {
            continue;
        }
        if let Err(error) = (task.run)(&mut *connection, stop) {
            schedule.record_failure(task);
            if !stop.is_requested() {
                warn!(error = %chain(&error), "cannot {}", task.name);
            }
            return false;
        }
        schedule.record_success(task);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::retention::Keep;
    use crate::sqlite;
    use crate::testing::Observed;

    #[test]
    fn a_store_of_another_version_is_left_as_it_is() {
        let (directory, mut connection) = sqlite::new_store();
        let backend = sqlite::Sqlite::new(directory.path().join("store.db"));
        let new: NewRetention = Arc::new(Mutex::new(Some(Retention::default())));
        let links = ClockLinks { monotonic_ns: || 0, report: Box::new(|_| ()) };
        let mut clock = ClockCheck { watch: ClockWatch::default(), links, refused_rounds: 0 };
        let before = Retention::of_states(&removal::states(&mut *connection).unwrap());
        connection.execute("INSERT INTO store_version VALUES (1000)", &[]).unwrap();
        let mut run = || run_round(&backend, &mut Schedule::default(), &new, &mut clock, &Stop::default());
        assert!(!run(), "it is tried again");
        assert_eq!(Retention::of_states(&removal::states(&mut *connection).unwrap()), before);
        connection.execute("DELETE FROM store_version WHERE version = 1000", &[]).unwrap();
        assert!(run());
        let after = Retention::of_states(&removal::states(&mut *connection).unwrap());
        assert_eq!(after, Retention::default());
        assert_ne!(after, before);
    }

    #[test]
    fn a_failed_task_runs_again_before_its_period_has_passed() {
        static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
        static RUNS: AtomicU32 = AtomicU32::new(0);
        const TASKS: [Task; 2] = [
            Task {
                name: "succeed at the fourth attempt",
                rounds: 5,
                run: |_, _| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
                    3 => Ok(()),
                    _ => Err(StoreError::WithoutTables),
                },
            },
            Task {
                name: "succeed",
                rounds: 5,
                run: |_, _| {
                    RUNS.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                },
            },
        ];
        let (directory, _connection) = sqlite::new_store();
        let backend = sqlite::Sqlite::new(directory.path().join("store.db"));
        let mut schedule = Schedule::default();
        let mut rounds = [vec![], vec![]];
        for round in 0..25 {
            schedule.round = round;
            let before = [&ATTEMPTS, &RUNS].map(|count| count.load(Ordering::Relaxed));
            let open = || backend.open_for_maintenance().unwrap().unwrap();
            let session = || MaintenanceSession { tasks: &TASKS, ..open() };
            // After an error the tasks have a new connection.
            while !run_tasks(session(), &mut schedule, &Stop::default()) {}
            for ((count, before), rounds) in [&ATTEMPTS, &RUNS].into_iter().zip(before).zip(&mut rounds) {
                rounds.extend((before..count.load(Ordering::Relaxed)).map(|_| round));
            }
        }
        assert_eq!(rounds, [vec![0, 0, 1, 3, 8, 8, 9, 11, 15, 20], vec![0, 5, 10, 15, 20]]);
    }

    #[test]
    fn a_policy_can_be_set_while_another_one_is_written() {
        let (_directory, connection) = sqlite::new_store();
        let first = Retention { samples: Keep::Days(10), ..Retention::default() };
        let second = Retention { samples: Keep::Days(20), ..Retention::default() };
        let new: NewRetention = Arc::new(Mutex::new(Some(first)));
        let mut connection = Observed::new(connection, |_, _, _| {
            // It would wait for the database here if the policy were locked.
            *new.try_lock().unwrap() = Some(second);
        });
        write_retention(&mut connection, &new).unwrap();
        let mut connection = connection.into_inner();
        assert_eq!(Retention::of_states(&removal::states(&mut *connection).unwrap()), first);
        assert_eq!(*new.lock().unwrap(), Some(second), "the next round writes it");
        write_retention(&mut *connection, &new).unwrap();
        assert_eq!(*new.lock().unwrap(), None);
        assert_eq!(Retention::of_states(&removal::states(&mut *connection).unwrap()), second);
    }
}
