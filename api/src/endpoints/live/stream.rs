//! Task of one stream: passes events on while the client reads, and notices the end of the job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polymeter_service::api_token::ApiToken;
use polymeter_service::clock;
use polymeter_store::reader::JobRow;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::parameters::find_job;
use super::snapshot::Snapshot;
use crate::access::{Permit, Principal, Unverified};
use crate::answer::Problem;
use crate::limits;
use crate::live::{FeedRequest, HEARTBEAT, RETRY, Step, Subscription, event};
use crate::request::Services;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) services: Arc<Services>,
    pub(super) principal: Principal,
    /// Names the user, if there is one.
    pub(super) token: Option<ApiToken>,
    /// Held until the last event is sent.
    pub(super) permit: Arc<Permit>,
    pub(super) close: Arc<Notify>,
    pub(super) request: FeedRequest,
    pub(super) subscription: Subscription,
    pub(super) sender: mpsc::Sender<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ended,
    /// The user may not see the job any more, or it was removed.
    Gone,
    /// The token was revoked, or has expired.
    Revoked,
    /// The stream has its maximum length.
    Renew,
    Stopping,
    /// The client is gone, or does not read.
    Disconnected,
}

impl End {
    /// None if there is no client.
    const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ended => Some("ended"),
            Self::Gone => Some("gone"),
            Self::Revoked => Some("revoked"),
            Self::Renew => Some("renew"),
            Self::Stopping => Some("stopping"),
            Self::Disconnected => None,
        }
    }
}

impl Stream {
    pub(super) async fn run(self, snapshot: Snapshot, lifetime: Duration) {
        let end = match self.events(snapshot, Instant::now() + lifetime).await {
            Ok(()) => return,
            Err(end) => end,
        };
        if let Some(reason) = end.reason() {
            // The client may be gone meanwhile.
            self.send(event("end", &json!({"reason": reason}))).await.ok();
        }
    }

    /// Always returns an end.
    async fn events(&self, snapshot: Snapshot, until: Instant) -> Result<(), End> {
        self.send(RETRY).await?;
        let mut lost: BTreeSet<String> = BTreeSet::new();
        self.describe(snapshot, &mut lost).await?;
        let interval = self.services.limits.stream_refresh;
        let mut refresh = Instant::now() + interval;
        let mut heartbeat = Instant::now() + limits::HEARTBEAT;
        loop {
            tokio::select! {
                step = self.subscription.next() => match step {
                    Step::Event(event) => self.send(self.with_next(event).await).await?,
                    Step::Missed(events) => {
                        self.send(event("missed", &json!({"events": events}))).await?;
                        self.describe_anew(&mut lost).await?;
                    }
                    Step::Changed => self.check(&mut lost).await?,
                    Step::Stop => return Err(End::Stopping),
                },
                () = sleep_until(refresh) => {
                    self.check_token().await?;
                    self.check(&mut lost).await?;
                    refresh = Instant::now() + interval;
                    // A check usually sends nothing, so that the comment stays due.
                    continue;
                }
                () = sleep_until(heartbeat) => self.send(HEARTBEAT).await?,
                () = sleep_until(until) => return Err(End::Renew),
                () = self.sender.closed() => return Err(End::Disconnected),
            }
            heartbeat = Instant::now() + limits::HEARTBEAT;
        }
    }

    /// Returns an event, and while ingest is behind those that come shortly after it: each piece wakes the
    /// API and its client.
    async fn with_next(&self, event: Bytes) -> Bytes {
        if !(self.services.links.is_behind)() {
            return event;
        }
        sleep(limits::BEHIND_STREAM_PAUSE).await;
        let mut all = Vec::from(event);
        while all.len() < limits::CHUNK_BYTES
            && let Some(next) = self.subscription.next_event()
        {
            all.extend_from_slice(&next);
        }
        all.into()
    }

    /// Waits while the client does not read, but not for long.
    async fn send(&self, bytes: Bytes) -> Result<(), End> {
        let length = bytes.len();
        match timeout(self.services.limits.stream_stall, self.sender.send(bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_gone)) => return Err(End::Disconnected),
            Err(_elapsed) => {
                self.close.notify_one();
                return Err(End::Disconnected);
            }
        }
        // A user who reads too much gets fewer events, and is told so.
        let pause = self.permit.charge(length).min(limits::STREAM_PAUSE);
        if !pause.is_zero() {
            sleep(pause).await;
        }
        Ok(())
    }

    async fn describe(&self, snapshot: Snapshot, lost: &mut BTreeSet<String>) -> Result<(), End> {
        for event in snapshot.events(self.request.per_second) {
            self.send(event).await?;
        }
        lost.extend(snapshot.lost_nodes().iter().cloned());
        snapshot.seed(&self.subscription);
        Ok(())
    }

    /// Repeats what [`Self::describe`] sends, after events were missed.
    async fn describe_anew(&self, lost: &mut BTreeSet<String>) -> Result<(), End> {
        let request = self.request.clone();
        let readers = &self.services.readers;
        match readers.read(self.principal, move |reader, _| Snapshot::read(reader, &request)).await {
            Ok(snapshot) => {
                self.describe(snapshot, lost).await?;
                self.check(lost).await
            }
            Err(problem) if problem == Problem::unknown_job() => Err(End::Gone),
            // The store is busy or away. Values of series that the client does not know are useless to it.
            Err(_) => Err(End::Renew),
        }
    }

    async fn check_token(&self) -> Result<(), End> {
        let Some(token) = &self.token else { return Ok(()) };
        // Its holder may look it up at any time. If the store is away, the next check decides.
        match self.services.links.tokens.verify(token, false).await {
            Ok(principal) if principal == self.principal => Ok(()),
            Ok(_) | Err(Unverified::Invalid) => Err(End::Revoked),
            Err(Unverified::Unavailable) => Ok(()),
        }
    }

    /// Reads whether the job has ended, whether the user may still see it, and whether nodes were lost.
    async fn check(&self, lost: &mut BTreeSet<String>) -> Result<(), End> {
        let key = self.request.job_key;
        let readers = &self.services.readers;
        let read = readers.read(self.principal, move |reader, _| find_job(reader, key)).await;
        let JobRow { ended_ns, lost_nodes, .. } = match read {
            Ok(job) => job,
            Err(problem) if problem == Problem::unknown_job() => return Err(End::Gone),
            // The store is busy or away. The next check decides.
            Err(_) => return Ok(()),
        };
        for node in lost_nodes {
            if self.request.filter.has_node(&node) && lost.insert(node.clone()) {
                let data = json!({"time_us": clock::realtime_us(), "node": node, "state": "lost"});
                self.send(event("node", &data)).await?;
            }
        }
        if ended_ns.is_some() { self.drain().await } else { Ok(()) }
    }

    /// Sends the last events of a job that has ended; always returns its end.
    async fn drain(&self) -> Result<(), End> {
        let until = Instant::now() + limits::STREAM_DRAIN;
        loop {
            tokio::select! {
                step = self.subscription.next() => match step {
                    Step::Event(event) => self.send(event).await?,
                    Step::Missed(events) => self.send(event("missed", &json!({"events": events}))).await?,
                    Step::Changed => {}
                    Step::Stop => return Err(End::Ended),
                },
                () = sleep_until(until) => return Err(End::Ended),
            }
        }
    }
}
