//! The bounded queues between the receiver and the writers.
//!
//! The receiver never waits for a writer: an inbox that is full says so, and calls when there is room again. A writer may
//! wait for the receiver, which always takes what it is given.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;
use rustix::event::{EventfdFlags, eventfd};

use crate::fair_queue::{FairQueue, Offered};
use crate::limits;
use crate::refusal::Refusal;

/// Where an agent is connected: the routing id that the ROUTER gave to the connection, and whose key it was opened with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    routing_id: Arc<[u8]>,
    node: Option<Arc<Identifier>>,
}

impl From<&[u8]> for Peer {
    fn from(routing_id: &[u8]) -> Self {
        Self { routing_id: routing_id.into(), node: None }
    }
}

impl Peer {
    /// The same peer, whose key lets it speak for no other node than `node`, if for one.
    pub fn bound_to(self, node: Option<Arc<Identifier>>) -> Self {
        Self { node, ..self }
    }

    /// The routing id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.routing_id
    }

    /// The only node that it may speak for; none where it may speak for any.
    pub fn node(&self) -> Option<&Identifier> {
        self.node.as_deref()
    }
}

/// What an agent sent, as it came.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) peer: Peer,
    pub(crate) bytes: zmq::Message,
}

/// What an agent answers to a user's request.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) peer: Peer,
    pub(crate) session: SessionId,
    /// The number of the request.
    pub(crate) ask: u64,
    pub(crate) line: ControlLine,
}

/// What is to be sent to an agent.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A message.
    Message(Peer, polymeter_proto::wire::message::ToAgent),
    /// What the peer sent, perhaps this frame, cannot be used, for this reason. The receiver decides whether it is
    /// worth an answer.
    Refusal(Peer, Refusal, Option<(SessionId, u64)>),
}

/// Wakes the receiver, which polls it beside its socket.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(crate) fn wake(&self) {
        // The only fault that can be is a counter that is full, and then it wakes anyway.
        rustix::io::write(self.as_fd(), &1_u64.to_ne_bytes()).ok();
    }

    /// Sleeps again until the next call of [`Waker::wake`].
    pub(crate) fn rest(&self) {
        // Nothing to read means that it rests already.
        rustix::io::read(self.as_fd(), &mut [0_u8; 8]).ok();
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What both ends of an inbox share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A message has come, or the receiver has gone.
    changed: Condvar,
    bytes: AtomicUsize,
    messages: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    queue: FairQueue,
    /// The receiver found no room and wants to be called.
    wanted: bool,
    /// Nothing will come any more.
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows how full the queue is to whoever wants to know.
    fn show(&self, state: &State) {
        self.bytes.store(state.queue.bytes(), Ordering::Relaxed);
        self.messages.store(state.queue.messages(), Ordering::Relaxed);
    }
}

/// The receiver's end of a writer's inbox.
#[derive(Debug)]
pub(crate) struct InboxSender(Arc<Shared>);

/// A writer's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    waker: Waker,
}

/// How full an inbox is, for whoever wants to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth(Arc<Shared>);

impl Depth {
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn messages(&self) -> usize {
        self.0.messages.load(Ordering::Relaxed)
    }
}

/// What a look into the inbox gave.
#[derive(Debug)]
pub(crate) enum Taken {
    Message(Received),
    /// Nothing came in the given time.
    Nothing,
    /// The receiver has gone, and nothing will come any more.
    Closed,
}

/// An inbox whose sender's `waker` is called when there is room after there was none.
pub(crate) fn inbox(waker: Waker) -> (InboxSender, Inbox) {
    let shared = Arc::new(Shared::default());
    (InboxSender(Arc::clone(&shared)), Inbox { shared, waker })
}

impl InboxSender {
    pub(crate) fn depth(&self) -> Depth {
        Depth(Arc::clone(&self.0))
    }

    /// Puts a message in, unless its peer is to wait. The waker is called when there is room where there was none.
    pub(crate) fn offer(&self, message: Received, now: Duration) -> Offered {
        let mut state = self.0.lock();
        let offered = state.queue.offer(message, now);
        match &offered {
            Offered::Taken => {
                self.0.show(&state);
                drop(state);
                self.0.changed.notify_one();
            }
            Offered::NoRoom(_) => state.wanted = true,
            Offered::TooMany | Offered::Muted => {}
        }
        offered
    }
}

impl Drop for InboxSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Inbox {
    /// The next message, waiting for it for `patience` at most, or for ever.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Taken {
        let waits = |state: &mut State| state.queue.messages() == 0 && !state.closed;
        let state = self.shared.lock();
        let mut state = match patience {
            None => self.shared.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.shared.changed.wait_timeout_while(state, patience, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let Some(message) = state.queue.take() else {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        };
        self.shared.show(&state);
        let is_wanted = std::mem::take(&mut state.wanted);
        drop(state);
        if is_wanted {
            self.waker.wake();
        }
        Taken::Message(message)
    }

    /// Notes that a message of `len` bytes was of use, or was not: that decides how much more of its peer is heard.
    pub(crate) fn note(&self, peer: &Peer, len: usize, is_useful: bool, now: Duration) {
        self.shared.lock().queue.note(peer, len, is_useful, now);
    }

    /// Gives back memory, and forgets what is known of peers that behave.
    pub(crate) fn tidy(&self, now: Duration) {
        self.shared.lock().queue.tidy(now);
    }
}

/// A writer's end of the answers.
#[derive(Debug, Clone)]
pub(crate) struct AnswerSender {
    /// There until the sender is dropped.
    queue: Option<SyncSender<Answer>>,
    waker: Waker,
}

/// The queue of answers, which wakes the receiver.
pub(crate) fn answers(waker: Waker) -> (AnswerSender, Receiver<Answer>) {
    let (sender, receiver) = sync_channel(limits::ANSWERS);
    (AnswerSender { queue: Some(sender), waker }, receiver)
}

impl AnswerSender {
    /// Hands the answer to the receiver, which is always about to take it.
    pub(crate) fn send(&self, answer: Answer) {
        // Without a receiver there is no socket, and nobody to answer.
        if self.queue.as_ref().is_some_and(|queue| queue.send(answer).is_ok()) {
            self.waker.wake();
        }
    }
}

impl Drop for AnswerSender {
    /// The receiver waits for the last writer, too: first go, then call.
    fn drop(&mut self) {
        drop(self.queue.take());
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(sender: &InboxSender, peer: u8, bytes: usize) -> bool {
        let message =
            Received { peer: Peer::from([peer].as_slice()), bytes: zmq::Message::from(vec![0; bytes]) };
        matches!(sender.offer(message, Duration::ZERO), Offered::Taken)
    }

    fn is_awake(waker: &Waker) -> bool {
        rustix::io::read(waker.as_fd(), &mut [0_u8; 8]).is_ok()
    }

    #[test]
    fn a_full_inbox_says_so_and_calls_when_there_is_room() {
        let waker = Waker::new().unwrap();
        let (sender, inbox) = inbox(waker.clone());
        let peers = u8::try_from(limits::INBOX_BYTES / limits::PEER_INBOX_BYTES).unwrap();
        assert!((0..peers).all(|peer| offer(&sender, peer, limits::PEER_INBOX_BYTES)));
        let depth = sender.depth();
        assert_eq!((depth.messages(), depth.bytes()), (peers.into(), limits::INBOX_BYTES));
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        assert!(!is_awake(&waker), "nobody was turned away");
        assert!(offer(&sender, 100, limits::PEER_INBOX_BYTES));
        assert!(!offer(&sender, 101, 1));
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        assert!(is_awake(&waker));
        assert!(offer(&sender, 101, 1));
        drop(sender);
        assert!(
            (0..=peers).filter(|_| matches!(inbox.take(Some(Duration::ZERO)), Taken::Message(_))).count() > 0
        );
        assert!(matches!(inbox.take(None), Taken::Closed));
    }

    #[test]
    fn one_message_that_is_too_large_goes_alone() {
        let (sender, inbox) = inbox(Waker::new().unwrap());
        assert!(offer(&sender, 1, limits::INBOX_BYTES + 1));
        assert!(!offer(&sender, 2, 0) || !offer(&sender, 2, 1));
        assert!(matches!(inbox.take(None), Taken::Message(_)));
    }

    #[test]
    fn the_last_answerer_calls_when_it_has_gone() {
        let waker = Waker::new().unwrap();
        let (sender, answers) = answers(waker.clone());
        drop(sender);
        assert!(is_awake(&waker));
        assert!(matches!(answers.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
    }
}
