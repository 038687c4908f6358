//! The sender: the thread that encodes batches, owns the socket, and keeps the outbox.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{Event, LedgerEntry, Tally};
use polymeter_proto::series::{JobHandle, SessionDescriptor, SessionId};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use super::asks::{Ask, Asks};
use super::connection::{Connection, Destination};
use super::outbox::{Content, Outbox, Outgoing};
use crate::clock;
use crate::counters::Counters;
use crate::keys::Keys;
use crate::log;
use crate::sampler::{Flushed, Port, SourceReport, Told};
use crate::status::Board;

/// Bytes that may be under way without an acknowledgement. More would only fill buffers that a restart loses.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// How long to wait for an acknowledgement before everything is sent again; it doubles each time.
const RESEND_NS: u64 = 5_000_000_000;
/// The longest such wait.
const RESEND_MOST_NS: u64 = 60_000_000_000;

/// How often tallies travel when nothing was lost. A loss travels at once.
const LEDGER_NS: u64 = 10_000_000_000;

/// The sender's thread.
pub(crate) struct Sender {
    connection: Connection,
    port: Arc<Port>,
    counters: Arc<Counters>,
    board: Arc<Board>,
    session: SessionId,
    descriptor: SessionDescriptor,
    outbox: Outbox,
    asks: Asks,
    encoder: Encoder,
    announced: Announced,
    first_frame: bool,
    /// Tallies as they were last sent, to send only what has changed.
    told: Vec<(Option<JobHandle>, String, Tally)>,
    told_ns: u64,
    /// Jobs that have ended, with the frame that says so.
    retiring: Vec<(JobHandle, u64)>,
    /// Events of frames that had to go, to be told again.
    untold: Vec<Told>,
    resend_at_ns: u64,
    resend_after_ns: u64,
    refused: bool,
}

/// What the sender's thread is told when it begins.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) collector: String,
    pub(crate) keys: Option<Keys>,
    pub(crate) session: SessionId,
    pub(crate) descriptor: SessionDescriptor,
    pub(crate) outbox_bytes: usize,
    /// Where users' requests go that come through the collector.
    pub(crate) asks: Asks,
}

/// How the sender's end is asked for.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// Set once the sampler has handed on its last batch.
    pub(crate) wanted: AtomicBool,
    /// How long to wait for acknowledgements, in nanoseconds.
    pub(crate) patience_ns: std::sync::atomic::AtomicU64,
}

impl Sender {
    pub(crate) fn connect(
        context: &zmq::Context,
        settings: Settings,
        port: Arc<Port>,
        counters: Arc<Counters>,
        board: Arc<Board>,
    ) -> Result<Self, zmq::Error> {
        let Settings { collector, keys, session, descriptor, outbox_bytes, asks } = settings;
        let connection = Connection::open(context, Destination { collector, keys, session })?;
        Ok(Self {
            connection,
            port,
            counters,
            board,
            session,
            descriptor,
            outbox: Outbox::new(session, outbox_bytes),
            asks,
            encoder: Encoder::default(),
            announced: Announced::default(),
            first_frame: true,
            told: Vec::new(),
            told_ns: clock::monotonic_ns(),
            retiring: Vec::new(),
            untold: Vec::new(),
            resend_at_ns: u64::MAX,
            resend_after_ns: RESEND_NS,
            refused: false,
        })
    }

    /// Sends until the end is wanted and everything is acknowledged, or patience is over. Returns whether all was.
    pub(crate) fn run(mut self, ending: &Ending) -> bool {
        let mut give_up_at_ns = None;
        loop {
            if self.connection.tend(clock::monotonic_ns()).connected {
                // What went by another connection may be lost.
                self.outbox.resend_all();
            }
            self.encode_all();
            self.receive_all();
            let room = self.send_answers() && self.send_all();
            let now_ns = clock::monotonic_ns();
            if now_ns >= self.resend_at_ns {
                self.outbox.resend_all();
                self.resend_after_ns = (self.resend_after_ns * 2).min(RESEND_MOST_NS);
                self.resend_at_ns = now_ns + self.resend_after_ns;
                continue;
            }
            if ending.wanted.load(Acquire) {
                let give_up = *give_up_at_ns.get_or_insert(now_ns + ending.patience_ns.load(Relaxed));
                if self.outbox.is_empty() || now_ns >= give_up {
                    return self.outbox.is_empty();
                }
            }
            self.wait(room, give_up_at_ns.unwrap_or(u64::MAX), now_ns);
        }
    }

    /// Waits for a batch, an answer, room in the socket, or the next time to act.
    fn wait(&self, room: bool, give_up_at_ns: u64, now_ns: u64) {
        let until_ns = self.resend_at_ns.min(give_up_at_ns).min(now_ns + 1_000_000_000);
        let timeout_ms = i64::try_from(until_ns.saturating_sub(now_ns).div_ceil(1_000_000)).unwrap_or(1000);
        let wanted = if room { zmq::POLLIN } else { zmq::POLLIN | zmq::POLLOUT };
        let doorbell = self.port.full_doorbell();
        let mut items = [
            self.connection.socket().as_poll_item(wanted),
            zmq::PollItem::from_fd(doorbell.as_raw_fd(), zmq::POLLIN),
            self.connection.as_poll_item(),
        ];
        // An interrupted wait is a wake-up like any other.
        zmq::poll(&mut items, timeout_ms).ok();
        doorbell.silence();
    }

    fn encode_all(&mut self) {
        while let Some(flushed) = self.port.next_flushed() {
            self.board.update(&flushed.reports);
            self.encode(&flushed);
            self.port.give_back(flushed);
        }
        self.counters.outbox_bytes.store(self.outbox.bytes() as u64, Relaxed);
    }

    fn encode(&mut self, flushed: &Flushed) {
        let ledger = self.ledger(&flushed.reports);
        let mut told = std::mem::take(&mut self.untold);
        told.extend(flushed.events.iter().cloned());
        if flushed.batch.is_empty() && ledger.is_empty() && told.is_empty() {
            return;
        }
        let mut dictionary = Vec::new();
        if std::mem::take(&mut self.first_frame) {
            dictionary.push(Entry::Session(self.descriptor.clone()));
        }
        for shape in flushed.batch.shapes() {
            self.announced.announce(shape, &mut dictionary);
        }
        let of_ledger = flushed.reports.iter().filter_map(|report| report.key.job.as_deref());
        let spoken_of = told.iter().filter_map(|told| told.job.as_deref());
        let in_ledger = |job: &&Job| ledger.iter().any(|entry| entry.job == Some(job.handle));
        for job in of_ledger.filter(in_ledger).chain(spoken_of) {
            self.announced.announce_job(job.handle, &job.descriptor, &mut dictionary);
        }
        let events: Vec<Event> = told.iter().map(|told| told.event.clone()).collect();
        let sequence = self.outbox.next_sequence();
        let mut bytes = Vec::new();
        let extras = Extras { dictionary: &dictionary, ledger: &ledger, events: &events };
        self.encoder.encode(&mut bytes, self.session, sequence, &flushed.batch, extras);
        bytes.shrink_to_fit();
        let content = Content {
            samples: flushed.batch.samples() as u64,
            span_us: flushed.batch.span_us().unwrap_or_default(),
        };
        let dropped = self.outbox.push(bytes, content, told);
        if dropped.samples > 0 {
            self.board.outbox_dropped(dropped.samples);
            // Tallies went with the samples: all are sent again.
            self.told.clear();
        }
        self.untold = dropped.events;
        for event in &events {
            if let Event::JobEnded { job, .. } = event {
                self.retiring.push((*job, sequence));
                self.told.retain(|(of, ..)| *of != Some(*job));
            }
        }
    }

    /// The tallies that must travel now: of losses and of sources that end at once, of others now and then.
    fn ledger(&mut self, reports: &[SourceReport]) -> Vec<LedgerEntry> {
        if reports.is_empty() {
            return Vec::new();
        }
        let now_ns = clock::monotonic_ns();
        let all = now_ns.saturating_sub(self.told_ns) >= LEDGER_NS;
        if all {
            self.told_ns = now_ns;
        }
        let mut ledger = Vec::new();
        for report in reports {
            let job = report.key.job.as_ref().map(|job| job.handle);
            let source = report.key.name.as_str();
            let known = self.told.iter().position(|(of, name, _)| *of == job && name == source);
            let before = known.and_then(|at| self.told.get(at)).map(|(.., tally)| *tally).unwrap_or_default();
            let lost = |tally: &Tally| tally.missed + tally.dropped + tally.absent;
            let tell = report.tally != before && (all || report.last || lost(&report.tally) != lost(&before));
            if tell {
                ledger.push(LedgerEntry { job, source: report.key.name.clone(), tally: report.tally });
                match known.and_then(|at| self.told.get_mut(at)) {
                    Some((.., tally)) => *tally = report.tally,
                    None => self.told.push((job, source.to_owned(), report.tally)),
                }
            }
        }
        ledger
    }

    /// Sends what may be sent; false when the socket has no room.
    fn send_all(&mut self) -> bool {
        while self.outbox.bytes_in_flight() < WINDOW_BYTES {
            let Some(outgoing) = self.outbox.next_outgoing() else { break };
            let (sent, bytes) = match &outgoing {
                Outgoing::Frame(bytes) => (self.connection.socket().send(*bytes, zmq::DONTWAIT), bytes.len()),
                Outgoing::Message(message) => {
                    (self.connection.socket().send(message.encode(), zmq::DONTWAIT), 0)
                }
            };
            match sent {
                Ok(()) => {}
                Err(zmq::Error::EAGAIN) => return false,
                Err(error) => {
                    log::warning(&format!("cannot send to the collector: {error}"));
                    return false;
                }
            }
            self.outbox.sent();
            self.counters.frames_sent.fetch_add(1, Relaxed);
            self.counters.bytes_sent.fetch_add(bytes as u64, Relaxed);
            if self.resend_at_ns == u64::MAX {
                self.resend_at_ns = clock::monotonic_ns() + self.resend_after_ns;
            }
        }
        true
    }

    /// Sends the answers to users' requests; false when the socket has no room.
    fn send_answers(&mut self) -> bool {
        while let Some((ask, line)) = self.asks.next_answer() {
            let message = ToCollector::Answered { session: self.session, ask, line };
            match (self.connection.socket().send(message.encode(), zmq::DONTWAIT), message) {
                (Err(zmq::Error::EAGAIN), ToCollector::Answered { ask, line, .. }) => {
                    self.asks.hold((ask, line));
                    return false;
                }
                (Err(error), _) => log::warning(&format!("cannot send an answer to the collector: {error}")),
                (Ok(()), _) => {}
            }
        }
        true
    }

    fn receive_all(&mut self) {
        while let Ok(bytes) = self.connection.socket().recv_bytes(zmq::DONTWAIT) {
            match ToAgent::decode(&bytes) {
                Ok(message) => self.obey(message),
                Err(error) => log::warning(&format!("the collector answers what cannot be read: {error}")),
            }
        }
    }

    fn obey(&mut self, message: ToAgent) {
        match message {
            ToAgent::Ack { session, through } if session == self.session => self.acknowledged(through),
            ToAgent::Resend { session, from } if session == self.session => {
                self.outbox.resend_from(from.max(1))
            }
            ToAgent::NeedDictionary { session } if session == self.session => {
                if let Err(error) = self.send_dictionary() {
                    log::warning(&format!("cannot send the dictionary: {error}"));
                }
            }
            ToAgent::Ask { session, ask, uid, at_us, line } if session == self.session => {
                // Without room the collector takes the silence for no answer.
                self.asks.hand_on(Ask { id: ask, uid, at_us, line });
            }
            ToAgent::Refused { reason, versions } => {
                if !std::mem::replace(&mut self.refused, true) {
                    let (first, last) = versions;
                    log::warning(&format!(
                        "the collector refuses what this agent sends: {reason}; it speaks versions {first} to {last} of the protocol"
                    ));
                }
            }
            // For a session that is not this one's, from a collector that remembers another life.
            ToAgent::Ack { .. }
            | ToAgent::Resend { .. }
            | ToAgent::NeedDictionary { .. }
            | ToAgent::Ask { .. } => {}
        }
    }

    fn acknowledged(&mut self, through: u64) {
        let frames = self.outbox.acknowledge(through);
        self.counters.frames_acknowledged.fetch_add(frames, Relaxed);
        self.counters.outbox_bytes.store(self.outbox.bytes() as u64, Relaxed);
        self.refused = false;
        self.resend_after_ns = RESEND_NS;
        self.resend_at_ns =
            if self.outbox.awaits_answer() { clock::monotonic_ns() + RESEND_NS } else { u64::MAX };
        let announced = &mut self.announced;
        self.retiring.retain(|(job, sequence)| {
            let safe = *sequence <= through;
            if safe {
                announced.retire_job(*job);
            }
            !safe
        });
    }

    /// Announces everything once more, and then sends everything that is not acknowledged.
    fn send_dictionary(&mut self) -> Result<(), zmq::Error> {
        let entries = self.announced.all(&self.descriptor);
        for message in ToCollector::dictionaries(self.session, &entries) {
            self.connection.socket().send(message, zmq::DONTWAIT)?;
        }
        self.outbox.resend_all();
        Ok(())
    }
}

/// A new session's id.
pub(crate) fn new_session() -> io::Result<SessionId> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(SessionId(u64::from_ne_bytes(bytes)))
}
