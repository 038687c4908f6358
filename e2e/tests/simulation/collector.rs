//! A simulated collector: real ingests, and the work of a writer around them. All its state except the store
//! is lost with it.

use std::time::Duration;

use polymeter_collector::clock::Now;
use polymeter_collector::ingest::{Ingest, Verdict, session_of};
use polymeter_collector::session_messages::Peer;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_store::accepted::Accepted;

use super::store::Store;

pub(crate) type Answer = (Peer, ToAgent);

#[derive(Default)]
struct Writer {
    ingest: Ingest,
    gathered: Vec<Accepted>,
}

pub(crate) struct Collector {
    writers: Vec<Writer>,
    /// Number of the store's file that it has open.
    file: Option<u64>,
}

fn at(now_ns: u64) -> Now {
    Now { wall_us: (now_ns / 1000) as i64, since_start: Duration::from_nanos(now_ns) }
}

impl Collector {
    pub(crate) fn new(writers: u64) -> Self {
        Self { writers: (0..writers).map(|_| Writer::default()).collect(), file: None }
    }

    /// Checks the store before each access, as the real one does: if its file was replaced, all remembered
    /// state is dropped.
    fn check(&mut self, store: &Store) -> bool {
        let is_same = *self.file.get_or_insert(store.file) == store.file;
        if !is_same {
            *self = Self::new(self.writers.len() as u64);
        }
        is_same
    }

    /// Takes a message. `refuses` returns true for frames that this collector refuses every time.
    pub(crate) fn take(
        &mut self,
        store: &Store,
        peer: &Peer,
        bytes: &[u8],
        now_ns: u64,
        refuses: impl Fn(SessionId, u64) -> bool,
    ) -> Option<Answer> {
        let refused = |reason: String| {
            let frame = Frame::peek(bytes);
            Some((peer.clone(), ToAgent::Refused { reason, frame }))
        };
        let verdict = if bytes.starts_with(&frame::MAGIC) {
            match Frame::decode(bytes) {
                Ok(frame) if refuses(frame.session, frame.sequence) => return refused("never".into()),
                Ok(frame) => {
                    let session = frame.session;
                    self.open(store, session, peer, now_ns).ingest.frame(peer, frame, at(now_ns))
                }
                Err(error) => return refused(error.to_string()),
            }
        } else {
            let message = ToCollector::decode(bytes).unwrap();
            let session = session_of(&message);
            self.open(store, session, peer, now_ns).ingest.message(peer, message, at(now_ns))
        };
        match verdict {
            Verdict::Accepted(accepted) => {
                self.writer(accepted.session.id).gathered.push(accepted);
                None
            }
            Verdict::Repeated(Some(_)) if !self.check(store) => None,
            Verdict::Repeated(answer) => {
                answer.inspect(|answer| assert_stored(store, answer)).map(|answer| (peer.clone(), answer))
            }
            Verdict::Ask(request) => Some((peer.clone(), request)),
            Verdict::Nothing => None,
            Verdict::Rejected(_, why) => panic!("an honest agent is rejected: {why:?}"),
            Verdict::Refused(why) => panic!("an honest agent is refused: {why:?}"),
        }
    }

    fn writer(&mut self, session: SessionId) -> &mut Writer {
        let writers = self.writers.len() as u64;
        &mut self.writers[(session.0 % writers) as usize]
    }

    fn open(&mut self, store: &Store, session: SessionId, peer: &Peer, now_ns: u64) -> &mut Writer {
        if !self.writer(session).ingest.knows(session) {
            self.check(store);
        }
        let writer = self.writer(session);
        if !writer.ingest.knows(session) {
            let committed = store.last_sequence(session);
            assert!(writer.ingest.open(session, peer, committed, at(now_ns)));
        }
        writer
    }

    /// Commits the first `frames` gathered by one writer, `times` times: a transaction of unknown outcome is
    /// repeated. Returns the acknowledgements.
    pub(crate) fn commit(
        &mut self,
        store: &mut Store,
        writer: u64,
        frames: usize,
        times: u64,
    ) -> Vec<Answer> {
        if !self.check(store) {
            return Vec::new();
        }
        let writers = self.writers.len() as u64;
        let writer = &mut self.writers[(writer % writers) as usize];
        let frames = frames.min(writer.gathered.len());
        let gathered: Vec<_> = writer.gathered.drain(..frames).collect();
        let mut through = Vec::new();
        for _ in 0..times {
            match store.commit(&gathered) {
                Ok(stored) => through = stored,
                Err(_) => {
                    // A real writer drops its remembered state, too.
                    *writer = Writer::default();
                    return Vec::new();
                }
            }
        }
        let answers: Vec<_> = through
            .into_iter()
            .filter_map(|(session, through)| writer.ingest.committed(session, through))
            .collect();
        for (_, answer) in &answers {
            let ToAgent::Ack { session, through } = answer else { panic!("{answer:?}") };
            assert!(*through <= store.last_sequence(*session), "{answer:?} is not committed");
        }
        answers
    }

    pub(crate) fn commit_all(&mut self, store: &mut Store) -> Vec<Answer> {
        (0..self.writers.len() as u64).flat_map(|writer| self.commit(store, writer, usize::MAX, 1)).collect()
    }
}

/// Checks that the acknowledged frames are stored.
fn assert_stored(store: &Store, answer: &ToAgent) {
    if let ToAgent::Ack { session, through } = answer {
        let stored = store.last_sequence(*session);
        // A store that was restored from a copy within the same file is noticed at the next commit only.
        let is_known = *through <= stored || store.replaced.contains_key(session);
        assert!(is_known, "{through} is acknowledged, and {stored} is stored");
    }
}
