//! Threads and connections that read the store: a bounded number, apart from those of the writers.
//!
//! A read is cancelled when its handle is dropped, since the client is gone, and when it takes too long.

mod pace;
mod places;
mod read_stop;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use polymeter_service::clock;
use polymeter_service::log::chain;
use polymeter_store::reader::{Access, GuardedReader, Read, Reader};
use polymeter_store::{StoreError, StoreUrl};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use self::pace::{Pace, PacedReader};
use self::places::{Place, ReaderPlaces};
use self::read_stop::ReadStop;
use crate::access::Principal;
use crate::answer::{Failure, Problem};
use crate::limits::{self, ApiLimits};
use crate::links::Links;

#[derive(Debug, Clone)]
pub(crate) struct Readers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    links: Links,
    places: ReaderPlaces,
    pace: Pace,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Connections that are not in use, each with the time at which it was opened.
    idle: Vec<(Reader, u64)>,
    running: HashMap<u64, Arc<ReadStop>>,
    next: u64,
    is_stopping: bool,
}

/// Read in progress. Dropping it cancels the read.
#[derive(Debug)]
pub(crate) struct Running<T> {
    stop: Arc<ReadStop>,
    result: JoinHandle<Result<T, Problem>>,
    /// Ends the read when it takes too long.
    timer: JoinHandle<()>,
}

impl<T> Running<T> {
    pub(crate) async fn result(&mut self) -> Result<T, Problem> {
        let result = (&mut self.result).await;
        self.timer.abort();
        result.unwrap_or_else(|_panicked| Err(Problem::internal()))
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.timer.abort();
        if !self.result.is_finished() {
            self.stop.cancel_later(false);
        }
    }
}

impl Readers {
    pub(crate) fn new(links: Links, limits: &ApiLimits) -> Self {
        // The threads that read a file have a low priority; a pause would keep its log from being emptied.
        let has_processes = links.store.file().is_none();
        let pace = Pace::new(Arc::clone(&links.is_behind), has_processes);
        let places = ReaderPlaces::new(limits.readers, links.administrators.clone());
        let timeout = limits.query_timeout;
        Self(Arc::new(Shared { links, places, pace, timeout, state: Mutex::default() }))
    }

    /// Starts `work` on a thread, with a reader that answers only what the principal may see.
    pub(crate) async fn start<T: Send + 'static>(
        &self,
        principal: Principal,
        work: impl FnOnce(&mut dyn Read, Access) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Running<T>, Problem> {
        let shared = Arc::clone(&self.0);
        let place = shared.places.take(principal.uid).await?;
        let stop = Arc::new(ReadStop::default());
        let timer = tokio::spawn(end_in_time(Arc::clone(&stop), shared.timeout));
        let of_work = Arc::clone(&stop);
        let result = tokio::task::spawn_blocking(move || shared.run(&of_work, principal, place, work));
        Ok(Running { stop, result, timer })
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        principal: Principal,
        work: impl FnOnce(&mut dyn Read, Access) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        self.start(principal, work).await?.result().await
    }

    pub(crate) fn stop(&self) {
        let running: Vec<Arc<ReadStop>> = {
            let mut state = self.0.state();
            state.is_stopping = true;
            state.idle.clear();
            state.running.values().cloned().collect()
        };
        running.iter().for_each(|stop| stop.cancel(false));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<T>(
        &self,
        stop: &Arc<ReadStop>,
        principal: Principal,
        place: Place,
        work: impl FnOnce(&mut dyn Read, Access) -> Result<T, Failure>,
    ) -> Result<T, Problem> {
        let access = principal.access(&*self.links.access);
        let number = {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            state.running.insert(number, Arc::clone(stop));
            number
        };
        let result = self.work(stop, (principal.uid, access.clone()), work);
        self.state().running.remove(&number);
        drop(place);
        let (is_cancelled, is_late) = stop.is_cancelled();
        result.map_err(|failure| match failure {
            Failure::Problem(problem) => problem,
            Failure::Store(_) | Failure::Gone if is_late => {
                warn!(uid = principal.uid, "read of the API cancelled: it took too long");
                let detail = format!(
                    "the answer takes longer than {} s; ask for a shorter time, fewer series, or fewer points",
                    self.timeout.as_secs()
                );
                Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail)
            }
            Failure::Store(_) | Failure::Gone if is_cancelled => {
                debug!(uid = principal.uid, "client of the API disconnected");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "the client disconnected")
            }
            Failure::Gone => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "the client disconnected"),
            Failure::Store(error) => store_problem(&error, &access),
        })
    }

    fn work<T>(
        &self,
        stop: &ReadStop,
        (uid, access): (u32, Access),
        work: impl FnOnce(&mut dyn Read, Access) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut reader, opened_ns) = self.reader(&self.links.store)?;
        let may_begin = stop.begin(reader.canceller()) && !self.state().is_stopping;
        let result = match may_begin {
            true => {
                let paced = PacedReader::new(&mut reader, &self.pace, uid, stop);
                work(&mut GuardedReader::new(paced, access.clone()), access)
            }
            false => Err(Failure::Gone),
        };
        let is_usable = stop.end();
        let mut state = self.state();
        match &result {
            Ok(_) if is_usable && !state.is_stopping => state.idle.push((reader, opened_ns)),
            Err(Failure::Store(_)) => state.idle.clear(),
            // An answer may be incomplete, or a late cancellation may arrive.
            Ok(_) | Err(_) => {}
        }
        result
    }

    /// Returns a connection that was opened a short time ago, or a new one.
    fn reader(&self, store: &StoreUrl) -> Result<(Reader, u64), StoreError> {
        let now_ns = clock::monotonic_ns();
        let (idle, old) = {
            let mut state = self.state();
            let (old, mut recent): (Vec<_>, Vec<_>) = std::mem::take(&mut state.idle)
                .into_iter()
                .partition(|(_, opened_ns)| now_ns.saturating_sub(*opened_ns) > limits::READER_AGE_NS);
            let idle = recent.pop();
            state.idle = recent;
            (idle, old)
        };
        // They are closed outside of the lock.
        drop(old);
        idle.map_or_else(|| Ok((Reader::open(store)?, now_ns)), Ok)
    }
}

/// Cancels a read that takes too long. The time for which it gave way to ingest does not count.
async fn end_in_time(stop: Arc<ReadStop>, limit: Duration) {
    let mut left = limit;
    while !left.is_zero() {
        tokio::time::sleep(left).await;
        left = stop.take_paused();
    }
    stop.cancel_later(true);
}

/// Only administrators see the cause, which may contain the address of the database.
fn store_problem(error: &StoreError, access: &Access) -> Problem {
    let cause = chain(error);
    warn!(error = %cause, "cannot read the store for a user of the API");
    let detail = match access {
        Access::All => format!("the collector cannot read its store: {cause}"),
        Access::Support | Access::Jobs(_) => {
            "the collector cannot read its store; try again later, or contact the administrator".to_owned()
        }
    };
    Problem::busy(detail, 5)
}
