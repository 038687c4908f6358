//! The sender: the thread that owns the socket. `DeliverySession` decides what it sends, and when.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use polymeter_proto::key::KeyPair;
use polymeter_proto::series::{SessionDescriptor, SessionId};
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_service::log_throttle::LogThrottle;
use polymeter_service::spool::SpoolError;
use tracing::warn;

use super::collector_choice::{CollectorChoice, Moved};
use super::collectors::Collectors;
use super::connection::{Connection, Destination, Woken};
use super::notices;
use super::outage::{DeliveryState, Outage};
use super::remote_requests::{RemoteRequest, RemoteRequestSender};
use super::ring::{RingLimits, RingRequests, Rings};
use super::session::{DeliverySession, NextSend};
use super::spool_manager::{SpoolConfig, SpoolManager};
use super::tap::Tap;
use crate::clock;
use crate::counters::Counters;
use crate::lanes::{Channels, SampleBatch};
use crate::stats_cache::StatsCache;
use crate::triggers::Triggers;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    pub all_acknowledged: bool,
    /// Everything that is not acknowledged is in the spool, for the next process.
    pub all_kept: bool,
}

/// Wait before the sender checks its inputs again.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct Sender {
    connection: Connection,
    channels: Arc<Channels>,
    counters: Arc<Counters>,
    stats_cache: Arc<StatsCache>,
    tap: Arc<Tap>,
    triggers: Arc<Triggers>,
    session: SessionId,
    remote_requests: RemoteRequestSender,
    delivery: DeliverySession,
    rings: Rings,
    spool_manager: SpoolManager,
    choice: CollectorChoice,
    outage: Outage,
    /// Count as of the last look.
    events_dropped: u64,
    events_log: LogThrottle,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) collectors: Collectors,
    /// None for never.
    pub(crate) return_after_ns: Option<u64>,
    /// None without encryption.
    pub(crate) own_keys: Option<KeyPair>,
    pub(crate) session: SessionId,
    pub(crate) descriptor: SessionDescriptor,
    pub(crate) outbox_bytes: usize,
    pub(crate) keep_acknowledged_bytes: usize,
    pub(crate) spool: Option<SpoolConfig>,
    pub(crate) remote_requests: RemoteRequestSender,
    /// Passes samples to watchers.
    pub(crate) tap: Arc<Tap>,
    pub(crate) ring: RingLimits,
    pub(crate) ring_requests: Arc<RingRequests>,
    /// Evaluates rules on the samples.
    pub(crate) triggers: Arc<Triggers>,
}

#[derive(Debug)]
pub(crate) enum ConnectError {
    Socket(zmq::Error),
    Spool(SpoolError),
}

impl From<zmq::Error> for ConnectError {
    fn from(error: zmq::Error) -> Self {
        Self::Socket(error)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ending {
    wanted: AtomicBool,
    patience_ns: AtomicU64,
}

impl Ending {
    /// Ends the sender, which waits for acknowledgements for at most `patience`. The sampler must have handed
    /// on its last batch.
    pub(crate) fn request(&self, patience: Duration, channels: &Channels) {
        self.patience_ns.store(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.wanted.store(true, Release);
        channels.full_event().notify();
    }
}

impl Sender {
    pub(crate) fn connect(
        context: &zmq::Context,
        settings: Settings,
        channels: Arc<Channels>,
        counters: Arc<Counters>,
        stats_cache: Arc<StatsCache>,
    ) -> Result<Self, ConnectError> {
        let Settings {
            collectors,
            return_after_ns,
            own_keys,
            session,
            descriptor,
            outbox_bytes,
            keep_acknowledged_bytes,
            spool,
            remote_requests,
            tap,
            triggers,
            ring,
            ring_requests,
        } = settings;
        let choice = CollectorChoice::new(collectors, return_after_ns, session.0, clock::monotonic_ns());
        // A configuration names at least one collector.
        let choice = choice.ok_or(ConnectError::Socket(zmq::Error::EINVAL))?;
        let destination = Destination { collector: choice.current().clone(), own: own_keys, session };
        let connection = Connection::open(context, destination)?;
        let outage = Outage::new(clock::monotonic_ns());
        counters.collector.moved(&choice.current().endpoint);
        counters.collector.changed(false, clock::steady_us());
        let mut delivery = DeliverySession::new(session, descriptor, outbox_bytes, clock::monotonic_ns());
        delivery.keep_acknowledged(keep_acknowledged_bytes);
        let spool_manager =
            SpoolManager::open(spool.as_ref(), &mut delivery, outbox_bytes).map_err(ConnectError::Spool)?;
        Ok(Self {
            connection,
            channels,
            counters,
            stats_cache,
            tap,
            triggers,
            session,
            remote_requests,
            delivery,
            rings: Rings::new(ring, ring_requests),
            spool_manager,
            choice,
            outage,
            events_dropped: 0,
            events_log: LogThrottle::new(LOG_INTERVAL, 1),
        })
    }

    /// Sends until the end is requested and either everything is acknowledged or the wait for it is over.
    pub(crate) fn run(mut self, ending: &Ending) -> Stopped {
        let mut give_up_at_ns = None;
        let mut woken = Woken::BY_ALL;
        loop {
            let ends = ending.wanted.load(Acquire);
            if self.connection.poll_events(woken.by_monitor, clock::monotonic_ns()).connected {
                self.deliveries().for_each(DeliverySession::connected);
            }
            self.take_all();
            if woken.by_socket {
                self.receive_all();
            }
            let now_ns = clock::monotonic_ns();
            self.rings.advance(clock::steady_us(), now_ns, &mut self.delivery);
            self.deliveries().for_each(|delivery| delivery.advance(now_ns));
            self.spool_manager.advance(&mut self.delivery, false, now_ns);
            let room = self.send_answers() && self.send_all(now_ns);
            self.publish_counts();
            self.check_delivery(now_ns);
            if ends {
                let give_up =
                    *give_up_at_ns.get_or_insert(now_ns.saturating_add(ending.patience_ns.load(Relaxed)));
                if self.delivery.is_empty() || now_ns >= give_up {
                    return self.stopped(now_ns);
                }
            }
            woken = self.wait(room, give_up_at_ns.unwrap_or(u64::MAX), now_ns);
        }
    }

    /// This process's session, and the earlier one that is being sent.
    fn deliveries(&mut self) -> impl Iterator<Item = &mut DeliverySession> {
        std::iter::once(&mut self.delivery).chain(self.spool_manager.earlier())
    }

    fn stopped(mut self, now_ns: u64) -> Stopped {
        self.spool_manager.advance(&mut self.delivery, true, now_ns);
        let all_acknowledged = self.delivery.is_empty() && self.spool_manager.is_empty();
        Stopped { all_acknowledged, all_kept: self.delivery.is_spooled() }
    }

    fn wait(&mut self, room: bool, give_up_at_ns: u64, now_ns: u64) -> Woken {
        let of_rings = self.rings.wake_at_ns(now_ns);
        let of_deliveries = self.deliveries().filter_map(|delivery| delivery.wake_at_ns());
        let wake_at_ns = of_deliveries.chain(of_rings).min().unwrap_or(u64::MAX);
        let until_ns = wake_at_ns.min(give_up_at_ns).min(now_ns + LONGEST_WAIT_NS);
        let timeout_ms = i64::try_from(until_ns.saturating_sub(now_ns).div_ceil(1_000_000)).unwrap_or(1000);
        let wanted = if room { zmq::POLLIN } else { zmq::POLLIN | zmq::POLLOUT };
        let event = self.channels.full_event();
        let woken = self.connection.wait(wanted, event, timeout_ms);
        if woken.by_event {
            event.clear();
        }
        woken
    }

    fn take_all(&mut self) {
        while let Some(flushed) = self.channels.next_batch() {
            self.stats_cache.update(&flushed.reports);
            self.publish_samples(&flushed);
            let now_ns = clock::monotonic_ns();
            self.rings.take(&flushed, clock::steady_us(), &mut self.delivery);
            // A trigger that fires with the first samples of a job finds its ring.
            self.rings.publish();
            self.triggers.take(&flushed, clock::steady_us());
            self.delivery.take(&flushed, now_ns);
            self.channels.give_back(flushed);
            self.spool_manager.advance(&mut self.delivery, false, now_ns);
        }
    }

    fn publish_samples(&self, flushed: &SampleBatch) {
        self.tap.publish(&flushed.batch);
        flushed.events.iter().for_each(|record| self.tap.note(&record.event));
    }

    /// Sends an earlier session first. False if the socket has no room.
    fn send_all(&mut self, now_ns: u64) -> bool {
        let Self { connection, counters, spool_manager, delivery, .. } = self;
        // Taken out, because the spool manager must read for it meanwhile.
        let mut earlier = spool_manager.take_earlier();
        let room = earlier
            .as_mut()
            .is_none_or(|earlier| send_all(connection.socket(), counters, spool_manager, earlier, now_ns));
        spool_manager.put_back(earlier);
        room && send_all(connection.socket(), counters, spool_manager, delivery, now_ns)
    }

    fn send_answers(&mut self) -> bool {
        while let Some((request, line)) = self.remote_requests.next_answer() {
            let message = ToCollector::Answer { session: self.session, request, line };
            match (self.connection.socket().send(message.encode(), zmq::DONTWAIT), message) {
                (Err(zmq::Error::EAGAIN), ToCollector::Answer { request, line, .. }) => {
                    self.remote_requests.hold((request, line));
                    return false;
                }
                (Err(error), _) => warn!(%error, "cannot send an answer to the collector"),
                (Ok(()), _) => {}
            }
        }
        true
    }

    fn receive_all(&mut self) {
        while let Ok(bytes) = self.connection.socket().recv_bytes(zmq::DONTWAIT) {
            match ToAgent::decode(&bytes) {
                Ok(ToAgent::Request { session, request, uid, at_us, line }) => {
                    if session == self.session {
                        // If there is no room, the request is dropped, and the collector reports that the
                        // node gave no answer.
                        self.remote_requests.offer(RemoteRequest { id: request, uid, at_us, line });
                    }
                }
                Ok(message) => {
                    let now_ns = clock::monotonic_ns();
                    if let Some(earlier) = self.spool_manager.earlier() {
                        notices::log_session(earlier.handle(message.clone(), now_ns));
                    }
                    notices::log_session(self.delivery.handle(message, now_ns));
                }
                Err(error) => warn!(%error, "cannot decode a message from the collector"),
            }
        }
    }

    /// Logs outages and lost events, and moves to another collector if this one does not serve.
    fn check_delivery(&mut self, now_ns: u64) {
        let lost = self.deliveries().map(|delivery| delivery.counts().events_dropped).sum();
        let before = std::mem::replace(&mut self.events_dropped, lost);
        if lost > before && self.events_log.allows("events", Duration::from_nanos(now_ns)) {
            notices::log_lost_events(lost);
        }
        let waiting_bytes = self.delivery.outbox_bytes() as u64 + self.spool_manager.bytes();
        let acknowledged = self.deliveries().map(|delivery| delivery.counts().frames_acknowledged).sum();
        let connected = self.connection.is_connected();
        let state = DeliveryState { connected, acknowledged, waiting_bytes };
        if let Some(notice) = self.outage.update(state, now_ns) {
            notices::log_outage(&self.choice.current().endpoint, notice, waiting_bytes);
        }
        if let Some(moved) = self.choice.update(state, now_ns) {
            self.redirect(&moved);
        }
    }

    fn redirect(&mut self, moved: &Moved) {
        let to = self.choice.current();
        notices::log_move(moved, &to.endpoint);
        self.counters.collector.moved(&to.endpoint);
        self.connection.redirect(to.clone());
    }

    fn publish_counts(&self) {
        let counts = self.delivery.counts();
        let now_us = clock::steady_us();
        self.counters.collector.changed(self.connection.is_connected(), now_us);
        if self.counters.frames_acknowledged.load(Relaxed) != counts.frames_acknowledged {
            self.counters.collector.acknowledged_us.store(now_us, Relaxed);
        }
        self.counters.outbox_bytes.store(self.delivery.outbox_bytes() as u64, Relaxed);
        self.counters.spool_bytes.store(self.spool_manager.bytes(), Relaxed);
        self.counters.frames_acknowledged.store(counts.frames_acknowledged, Relaxed);
        self.counters.outbox_dropped.store(counts.samples_dropped, Relaxed);
        self.counters.refused.store(counts.samples_refused, Relaxed);
    }
}

/// Returns false if the socket has no room.
fn send_all(
    socket: &zmq::Socket,
    counters: &Counters,
    spool_manager: &mut SpoolManager,
    delivery: &mut DeliverySession,
    now_ns: u64,
) -> bool {
    while let Some(send) = delivery.next_send() {
        if let NextSend::Restore(segment) = send {
            if spool_manager.restore(delivery, segment, now_ns) {
                continue;
            }
            // The disk has a fault, which does not concern other deliveries.
            return true;
        }
        let bytes = send.bytes();
        match socket.send(bytes, zmq::DONTWAIT) {
            Ok(()) => {}
            Err(zmq::Error::EAGAIN) => return false,
            Err(error) => {
                warn!(%error, "cannot send to the collector");
                return false;
            }
        }
        counters.frames_sent.fetch_add(1, Relaxed);
        counters.bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
        delivery.sent(clock::monotonic_ns());
    }
    true
}

pub(crate) fn new_session() -> io::Result<SessionId> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(SessionId(u64::from_ne_bytes(bytes)))
}
