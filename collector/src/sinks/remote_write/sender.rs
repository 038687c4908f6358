//! The thread that sends: a task for each shard, with a connection of its own.
//!
//! A request is repeated after 5xx, 429, and without an answer. After another refusal it is halved, since a receiver
//! refuses a whole request for one bad sample, until the bad samples are found or the attempts are used up; what
//! remains is dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use polymeter_proto::text::Text;
use polymeter_service::clock::{Clock, monotonic_ns, realtime_ns};
use polymeter_service::log_throttle::LogThrottle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::config::{Protocol, RemoteWriteConfig};
use super::counters::{Counters, DropReason};
use super::http::{Answer, Connection, NoAnswer, Version, retry_delay};
use super::request;
use super::spool::{Log, Request};
use crate::limits;
use crate::thread::spawn;

/// The delay before the first repetition; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// The longest delay between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The longest delay that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The maximum number of requests that search for the bad samples of a refused one.
const SEARCH_MAX: u32 = 64;

/// The maximum number while the requests before were refused completely: such refusals rarely depend on a sample.
const SEARCH_AFTER_FAILURE: u32 = 4;

/// The state that all shards share.
#[derive(Debug)]
struct Shared {
    config: Arc<RemoteWriteConfig>,
    counters: Counters,
    /// The knowledge about the receiver, a [`Negotiation`].
    negotiation: AtomicU8,
    throttle: Mutex<LogThrottle>,
    clock: Clock,
}

/// The agreement with the receiver about the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Negotiation {
    /// 1.0.
    V1 = 1,
    /// 2.0, as the receiver confirmed, or the configuration demands.
    V2 = 2,
    /// 2.0 is tried; the receiver has not confirmed it.
    Trying = 3,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Sender {
    /// The time, since the start of the clock, at which the shards must end; none while they work.
    stop: watch::Sender<Option<Duration>>,
    thread: JoinHandle<()>,
    clock: Clock,
}

impl Sender {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread or its runtime cannot be created.
    pub(super) fn start(
        config: Arc<RemoteWriteConfig>,
        logs: Vec<Arc<Log>>,
        counters: Counters,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(None);
        let negotiation = match config.protocol {
            Protocol::Auto => Negotiation::Trying,
            Protocol::V1 => Negotiation::V1,
            Protocol::V2 => Negotiation::V2,
        };
        let shared = Arc::new(Shared {
            config,
            counters,
            negotiation: AtomicU8::new(negotiation as u8),
            throttle: Mutex::new(LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES)),
            clock,
        });
        let thread = spawn("remote-write", move || {
            runtime.block_on(async {
                let mut shards = JoinSet::new();
                for log in logs {
                    drop(shards.spawn(Shard::new(Arc::clone(&shared), log).run(stopped.clone())));
                }
                while shards.join_next().await.is_some() {}
            });
            // A name that is being resolved does not delay the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop, thread, clock })
    }

    /// Sends what can be sent within `patience`, and ends the thread. The rest stays in the spool.
    pub(super) fn stop(self, patience: Duration) {
        self.stop.send_replace(Some(self.clock.now().since_start + patience));
        if self.thread.join().is_err() {
            warn!(error = "its thread panicked", "cannot send samples by remote_write");
        }
    }
}

impl Shared {
    fn negotiation(&self) -> Negotiation {
        match self.negotiation.load(Ordering::Relaxed) {
            1 => Negotiation::V1,
            2 => Negotiation::V2,
            _ => Negotiation::Trying,
        }
    }

    /// Records an agreement. All shards talk to the same receiver, so that the first answer decides.
    fn agree(&self, on: Negotiation) {
        let before = self.negotiation.swap(on as u8, Ordering::Relaxed);
        if before != on as u8 {
            let version = if on == Negotiation::V1 { "1.0" } else { "2.0" };
            info!(url = %self.config.url, version, "remote_write: the receiver accepts this version");
        }
    }

    fn warn(&self, key: &str, message: &str, error: &str) {
        let now = self.clock.now().since_start;
        if self.throttle.lock().unwrap_or_else(PoisonError::into_inner).allows(key, now) {
            warn!(error, url = %self.config.url, "{message}");
        }
    }
}

/// The sender of a shard.
struct Shard {
    shared: Arc<Shared>,
    log: Arc<Log>,
    connection: Connection,
    backoff: Duration,
    random: u64,
    /// The number of requests that may search for bad samples.
    search: u32,
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Accepted; a receiver of 2.0 states how many samples it has written.
    Accepted(Option<u64>),
    /// To be repeated, not before the delay that the receiver asks for.
    Retry(String, Option<Duration>),
    /// To be repeated with 1.0.
    FallBack,
    /// Refused.
    Refused(Answer),
}

/// A request, or a part of it.
struct Part {
    /// The compressed body of 1.0.
    payload: Bytes,
    samples: u64,
}

impl Shard {
    fn new(shared: Arc<Shared>, log: Arc<Log>) -> Self {
        let connection = Connection::new(Arc::clone(&shared.config));
        Self { shared, log, connection, backoff: BACKOFF_MIN, random: monotonic_ns() | 1, search: SEARCH_MAX }
    }

    async fn run(mut self, mut stopped: watch::Receiver<Option<Duration>>) {
        let log = Arc::clone(&self.log);
        let clock = self.shared.clock;
        loop {
            let Some(request) = log.next() else {
                if stopped.borrow().is_some() {
                    return;
                }
                tokio::select! {
                    () = log.wait() => {}
                    _ = stopped.changed() => {}
                }
                continue;
            };
            tokio::select! {
                () = self.deliver(&request) => log.finish(&request),
                () = end_of_patience(&mut stopped, clock) => return,
            }
        }
    }

    /// Sends a request until the receiver has accepted or refused it.
    async fn deliver(&mut self, request: &Request) {
        let whole = Part { payload: Bytes::from(request.payload.clone()), samples: request.samples.into() };
        let mut parts = VecDeque::from([whole]);
        let (mut search, mut has_success) = (self.search, false);
        while let Some(part) = parts.pop_front() {
            match self.send(&part).await {
                Ok(written) => {
                    has_success = true;
                    let counters = &self.shared.counters;
                    counters.requests.inc();
                    counters.sent_bytes.inc_by(part.payload.len() as u64);
                    let written = written.unwrap_or(part.samples).min(part.samples);
                    counters.sent.inc_by(written);
                    counters.drop_samples(DropReason::Refused, part.samples - written);
                }
                Err(refusal) => match halves(&part, &refusal).filter(|_| search > 0) {
                    // In their order, since both may have samples of the same series.
                    Some([first, second]) => {
                        search = search.saturating_sub(2);
                        parts.push_front(second);
                        parts.push_front(first);
                    }
                    None => self.drop_part(&part, &refusal),
                },
            }
        }
        self.search = if has_success { SEARCH_MAX } else { SEARCH_AFTER_FAILURE };
    }

    fn drop_part(&self, part: &Part, refusal: &Answer) {
        // A receiver of 2.0 may have written a part in spite of the refusal.
        let written = refusal.written.unwrap_or_default().min(part.samples);
        self.shared.counters.sent.inc_by(written);
        self.shared.counters.drop_samples(DropReason::Refused, part.samples - written);
        let message = describe(refusal);
        self.shared.warn(
            "refused",
            "the receiver of remote_write refused samples, which are dropped",
            &message,
        );
    }

    /// Sends a part until there is a final answer: the number of samples that were written, if the receiver states
    /// it, or the refusal.
    async fn send(&mut self, part: &Part) -> Result<Option<u64>, Answer> {
        loop {
            let negotiation = self.shared.negotiation();
            let (version, body) = if negotiation == Negotiation::V1 {
                (Version::V1, part.payload.clone())
            } else {
                match to_v2(&part.payload) {
                    Some(body) => (Version::V2, body),
                    None => {
                        return Err(Answer {
                            status: 0,
                            retry_after: None,
                            written: None,
                            text: "the request is damaged".to_owned(),
                        });
                    }
                }
            };
            let answer = self.connection.post(version, body).await;
            match classify(answer, negotiation, Duration::from_nanos(realtime_ns())) {
                Outcome::Accepted(written) => {
                    if version == Version::V2 {
                        self.shared.agree(Negotiation::V2);
                    }
                    self.backoff = BACKOFF_MIN;
                    return Ok(written);
                }
                Outcome::Refused(answer) => {
                    self.backoff = BACKOFF_MIN;
                    return Err(answer);
                }
                Outcome::FallBack => self.shared.agree(Negotiation::V1),
                Outcome::Retry(cause, delay) => {
                    self.shared.counters.retries.inc();
                    self.shared.warn(
                        "retry",
                        "cannot send samples by remote_write; they wait in the spool",
                        &cause,
                    );
                    let delay = delay.unwrap_or_default().min(RETRY_AFTER_MAX).max(self.next_backoff());
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    /// Returns the next delay: between a half and the whole of one that doubles.
    fn next_backoff(&mut self) -> Duration {
        let whole = self.backoff;
        self.backoff = (whole * 2).min(BACKOFF_MAX);
        // Xorshift: it only keeps shards and collectors apart.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = u32::try_from(self.random % 1000).unwrap_or_default();
        whole / 2 + whole / 2 * part / 1000
    }
}

/// Returns when the sender was told to stop, and the time for it has expired.
async fn end_of_patience(stopped: &mut watch::Receiver<Option<Duration>>, clock: Clock) {
    let deadline = match stopped.wait_for(Option::is_some).await {
        Ok(deadline) => deadline.unwrap_or_default(),
        // The sink is gone.
        Err(_) => Duration::ZERO,
    };
    tokio::time::sleep(deadline.saturating_sub(clock.now().since_start)).await;
}

/// Decides what an answer means. `now` is the time since the epoch.
fn classify(answer: Result<Answer, NoAnswer>, negotiation: Negotiation, now: Duration) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Outcome::Retry(error.to_string(), None),
    };
    let is_trying = negotiation == Negotiation::Trying;
    match answer.status {
        // A receiver of 1.0 that ignores the content type finds no series, and reports success without the headers of
        // 2.0.
        200..300 if is_trying && answer.written.is_none() => Outcome::FallBack,
        200..300 => Outcome::Accepted(answer.written),
        429 | 500..600 => {
            let delay = answer.retry_after.as_deref().and_then(|value| retry_delay(value, now));
            Outcome::Retry(describe(&answer), delay)
        }
        // Refusals of the sender are no statement about the version.
        _ if is_trying && answer.written.is_none() && ![401, 403, 404].contains(&answer.status) => {
            Outcome::FallBack
        }
        _ => Outcome::Refused(answer),
    }
}

/// Returns the two halves of a refused part, if a part of it may be accepted: only receivers of 1.0 refuse a whole
/// request.
fn halves(part: &Part, refusal: &Answer) -> Option<[Part; 2]> {
    if refusal.status != 400 || refusal.written.is_some() {
        return None;
    }
    let body = request::decompress(&part.payload)?;
    let halves = request::halves(&body)?.map(|half| {
        let payload = snap::raw::Encoder::new().compress_vec(&half).ok()?;
        Some(Part { payload: payload.into(), samples: request::count(&half) })
    });
    let [Some(first), Some(second)] = halves else { return None };
    Some([first, second])
}

/// Returns a compressed body of 1.0 as one of 2.0.
fn to_v2(payload: &[u8]) -> Option<Bytes> {
    let body = request::to_v2(&request::decompress(payload)?).ok()?;
    Some(snap::raw::Encoder::new().compress_vec(&body).ok()?.into())
}

/// Returns the status and the message of a receiver, made printable and short.
fn describe(answer: &Answer) -> String {
    format!("status {}: {}", answer.status, Text::of(&answer.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, written: Option<u64>) -> Answer {
        Answer { status, retry_after: None, written, text: String::new() }
    }

    #[test]
    fn answers_are_classified_as_the_specifications_say() {
        use Negotiation::{Trying, V1, V2};
        let of =
            |status, written, negotiation| classify(Ok(answer(status, written)), negotiation, Duration::ZERO);
        assert_eq!(of(204, None, V1), Outcome::Accepted(None));
        assert_eq!(of(204, Some(7), Trying), Outcome::Accepted(Some(7)));
        assert_eq!(of(200, None, Trying), Outcome::FallBack, "Prometheus 2.42 ignores the content type");
        assert_eq!(of(415, None, Trying), Outcome::FallBack);
        assert_eq!(of(400, None, Trying), Outcome::FallBack);
        assert_eq!(of(415, None, V2), Outcome::Refused(answer(415, None)));
        for status in [301, 400, 401, 404, 413, 422] {
            assert_eq!(of(status, None, V1), Outcome::Refused(answer(status, None)));
        }
        assert_eq!(of(401, None, Trying), Outcome::Refused(answer(401, None)));
        for status in [429, 500, 502, 503, 599] {
            assert!(matches!(of(status, None, Trying), Outcome::Retry(_, None)), "{status}");
        }
        let busy = Answer { retry_after: Some("7".to_owned()), ..answer(429, None) };
        let delay = Some(Duration::from_secs(7));
        assert_eq!(
            classify(Ok(busy), V1, Duration::ZERO),
            Outcome::Retry("status 429: not stated".to_owned(), delay)
        );
    }

    #[test]
    fn messages_of_receivers_are_short_and_printable() {
        let text = format!("a\u{1b}[31m{}", "ü".repeat(1000));
        let message = describe(&Answer { text, ..answer(400, None) });
        assert!(message.starts_with("status 400: a") && message.len() < 1100, "{message}");
        assert!(!message.contains('\u{1b}'));
    }
}
