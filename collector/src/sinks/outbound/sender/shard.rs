//! Task of a shard: it sends the requests of a spool, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polymeter_proto::text::Text;
use polymeter_service::clock::{Clock, monotonic_ns, realtime_ns};
use polymeter_service::http_client::NoAnswer;
use tokio::sync::watch;
use tracing::info;

use super::outcome::{Outcome, classify, describe};
use super::part::{Part, halves};
use super::sender_state::Shared;
use crate::sinks::outbound::counters::DropReason;
use crate::sinks::outbound::http::{Answer, Connection};
use crate::sinks::outbound::protocol::{Body, Count, Form, Statement};
use crate::sinks::outbound::spool::{Log, Request};
use crate::sinks::outbound::udp::Datagrams;

/// Delay before the first repetition; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

const BACKOFF_MAX: Duration = Duration::from_secs(30);

const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Requests that search for the bad samples of a refused one.
const SEARCH_MAX: u32 = 64;

/// Fewer while the requests before were refused completely: such refusals rarely depend on a sample.
const SEARCH_AFTER_FAILURE: u32 = 4;

pub(super) struct Shard {
    shared: Arc<Shared>,
    log: Arc<Log>,
    connection: Connection,
    datagrams: Datagrams,
    backoff: Duration,
    random: u64,
    search: u32,
}

struct Accepted {
    statement: Statement,
    /// Samples that are no numbers, which the protocol cannot state.
    not_numbers: u64,
}

impl Shard {
    pub(super) fn new(shared: Arc<Shared>, log: Arc<Log>) -> Self {
        let connection = Connection::new(Arc::clone(&shared.config));
        Self {
            shared,
            log,
            connection,
            datagrams: Datagrams::default(),
            backoff: BACKOFF_MIN,
            random: monotonic_ns() | 1,
            search: SEARCH_MAX,
        }
    }

    /// Sends requests until `stopped` has a time, and all were sent or the time has come.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<Option<Duration>>) {
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
                () = self.deliver(&request) => {
                    log.finish(&request, clock.now().since_start);
                    if self.connection.take_loss() {
                        self.resend(&log);
                    }
                }
                () = end_of_patience(&mut stopped, clock) => return,
            }
        }
    }

    /// Sends again what the receiver accepted lately: it may have been killed before it wrote that to its
    /// disk.
    fn resend(&self, log: &Log) {
        let samples = log.rewind();
        self.shared.counters.resent.inc_by(samples);
        if samples > 0 && self.shared.allows("resend") {
            info!(
                samples,
                url = %self.shared.config.url,
                "{}: the receiver was lost; what it accepted lately is sent again",
                self.shared.config.protocol.sink
            );
        }
    }

    async fn deliver(&mut self, request: &Request) {
        let whole = Part { payload: Bytes::from(request.payload.clone()), samples: request.samples.into() };
        let mut parts = VecDeque::from([whole]);
        let (mut search, mut has_success) = (self.search, false);
        while let Some(part) = parts.pop_front() {
            match self.send(&part).await {
                Ok(accepted) => {
                    has_success = true;
                    self.count(&part, &accepted);
                }
                Err(refusal) => match halves(&part, &refusal).filter(|_| search > 0) {
                    // Parts are sent in their order, since both may have samples of the same series.
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

    fn count(&self, part: &Part, Accepted { statement, not_numbers }: &Accepted) {
        let counters = &self.shared.counters;
        counters.requests.inc();
        counters.sent_bytes.inc_by(part.payload.len() as u64);
        let numbers = part.samples.saturating_sub(*not_numbers);
        let written = statement.count.written_of(numbers);
        counters.sent.inc_by(written);
        counters.drop_samples(DropReason::NotANumber, part.samples - numbers);
        counters.drop_samples(DropReason::Refused, numbers - written);
        let (sink, text) = (self.shared.config.protocol.sink, Text::of(&statement.text).to_string());
        if written < numbers {
            let message =
                format!("the receiver of {sink} refused some samples of a request, which are dropped");
            self.shared.warn("partly refused", &message, &text);
        } else if statement.count == Count::Rejected(0) && !statement.text.is_empty() {
            self.shared.warn("warning", &format!("the receiver of {sink} has a warning"), &text);
        }
    }

    fn drop_part(&self, part: &Part, refusal: &Answer) {
        // A receiver of remote_write 2.0 may have written a part in spite of the refusal.
        let written = if let Count::Written(written) = refusal.statement.count { written } else { 0 };
        let written = written.min(part.samples);
        self.shared.counters.sent.inc_by(written);
        self.shared.counters.drop_samples(DropReason::Refused, part.samples - written);
        let message = describe(refusal);
        let sink = self.shared.config.protocol.sink;
        self.shared.warn(
            "refused",
            &format!("the receiver of {sink} refused samples, which are dropped"),
            &message,
        );
    }

    /// Sends a part until there is a final answer.
    async fn send(&mut self, part: &Part) -> Result<Accepted, Answer> {
        loop {
            let negotiation = self.shared.negotiation();
            let form = negotiation.form;
            let Body { bytes, not_numbers } = (form.encode)(&part.payload).ok_or_else(damaged)?;
            if bytes.is_empty() {
                return Ok(Accepted { statement: Statement::default(), not_numbers });
            }
            let answer = self.transmit(form, bytes).await;
            match classify(answer, negotiation, Duration::from_nanos(realtime_ns())) {
                Outcome::Accepted(statement) => {
                    self.shared.confirm();
                    self.backoff = BACKOFF_MIN;
                    return Ok(Accepted { statement, not_numbers });
                }
                Outcome::Refused(answer) => {
                    self.backoff = BACKOFF_MIN;
                    return Err(answer);
                }
                Outcome::FallBack => self.shared.fall_back(),
                Outcome::Retry(cause, delay) => {
                    self.shared.counters.retries.inc();
                    let sink = self.shared.config.protocol.sink;
                    let message = format!("cannot send samples by {sink}; they wait in the spool");
                    self.shared.warn("retry", &message, &cause);
                    let delay = delay.unwrap_or_default().min(RETRY_AFTER_MAX).max(self.next_backoff());
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn transmit(&mut self, form: &Form, body: Bytes) -> Result<Answer, NoAnswer> {
        let url = &self.shared.config.url;
        if url.is_udp() {
            self.datagrams.send(url, &body).await?;
            return Ok(Answer { status: 204, retry_after: None, statement: Statement::default() });
        }
        self.connection.post(form, body).await
    }

    /// Returns between a half and the whole of a delay that doubles.
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

fn damaged() -> Answer {
    let text = "the request is damaged".to_owned();
    Answer { status: 0, retry_after: None, statement: Statement { count: Count::Unstated, text } }
}

/// Waits until the sender was told to stop, and the time for it has expired.
async fn end_of_patience(stopped: &mut watch::Receiver<Option<Duration>>, clock: Clock) {
    let deadline = match stopped.wait_for(Option::is_some).await {
        Ok(deadline) => deadline.unwrap_or_default(),
        // The sink is gone.
        Err(_) => Duration::ZERO,
    };
    tokio::time::sleep(deadline.saturating_sub(clock.now().since_start)).await;
}
