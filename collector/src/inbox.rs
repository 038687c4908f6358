//! The bounded queues between the receiver and the writers.
//!
//! The receiver never waits for a writer: an inbox that is full says so, and calls when there is room again. A writer may
//! wait for the receiver, which always takes what it is given.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;
use rustix::event::{EventfdFlags, eventfd};

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

/// What both ends of an inbox know.
#[derive(Debug, Default)]
struct Fill {
    bytes: AtomicUsize,
    messages: AtomicUsize,
    /// The receiver found no room and wants to be called.
    wanted: AtomicBool,
}

/// The receiver's end of a writer's inbox.
#[derive(Debug)]
pub(crate) struct InboxSender {
    queue: SyncSender<Received>,
    fill: Arc<Fill>,
}

/// A writer's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Receiver<Received>,
    fill: Arc<Fill>,
    waker: Waker,
}

/// How full an inbox is, for whoever wants to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth(Arc<Fill>);

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
    let (sender, receiver) = sync_channel(limits::INBOX_MESSAGES);
    let fill = Arc::new(Fill::default());
    (InboxSender { queue: sender, fill: Arc::clone(&fill) }, Inbox { queue: receiver, fill, waker })
}

impl InboxSender {
    pub(crate) fn depth(&self) -> Depth {
        Depth(Arc::clone(&self.fill))
    }

    /// Gives the message back when there is no room; the waker is called when there is.
    pub(crate) fn offer(&self, message: Received) -> Result<(), Received> {
        // First say that a call is wanted, then look: the writer takes first, and looks then.
        self.fill.wanted.store(true, Ordering::SeqCst);
        let len = message.bytes.len();
        let waiting = self.fill.bytes.load(Ordering::SeqCst);
        // Into an empty inbox goes everything, however large.
        if waiting > 0 && waiting + len > limits::INBOX_BYTES {
            return Err(message);
        }
        self.fill.bytes.fetch_add(len, Ordering::SeqCst);
        self.fill.messages.fetch_add(1, Ordering::Relaxed);
        match self.queue.try_send(message) {
            Ok(()) => {
                self.fill.wanted.store(false, Ordering::SeqCst);
                Ok(())
            }
            // A writer that is gone takes nothing; what comes for it stays with the agents.
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                self.fill.bytes.fetch_sub(len, Ordering::SeqCst);
                self.fill.messages.fetch_sub(1, Ordering::Relaxed);
                Err(message)
            }
        }
    }
}

impl Inbox {
    /// The next message, waiting for it for `patience` at most, or for ever.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Taken {
        let taken = match patience {
            None => self.queue.recv().map_err(|_disconnected| Taken::Closed),
            Some(Duration::ZERO) => self.queue.try_recv().map_err(|error| match error {
                TryRecvError::Empty => Taken::Nothing,
                TryRecvError::Disconnected => Taken::Closed,
            }),
            Some(patience) => self.queue.recv_timeout(patience).map_err(|error| match error {
                RecvTimeoutError::Timeout => Taken::Nothing,
                RecvTimeoutError::Disconnected => Taken::Closed,
            }),
        };
        match taken {
            Ok(message) => {
                self.fill.bytes.fetch_sub(message.bytes.len(), Ordering::SeqCst);
                self.fill.messages.fetch_sub(1, Ordering::Relaxed);
                if self.fill.wanted.swap(false, Ordering::SeqCst) {
                    self.waker.wake();
                }
                Taken::Message(message)
            }
            Err(nothing) => nothing,
        }
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

    fn message(bytes: usize) -> Received {
        Received { peer: Peer::from(b"a".as_slice()), bytes: zmq::Message::from(vec![0; bytes]) }
    }

    fn is_awake(waker: &Waker) -> bool {
        rustix::io::read(waker.as_fd(), &mut [0_u8; 8]).is_ok()
    }

    #[test]
    fn a_full_inbox_says_so_and_calls_when_there_is_room() {
        let waker = Waker::new().unwrap();
        let (sender, inbox) = inbox(waker.clone());
        let half = || message(limits::INBOX_BYTES / 2);
        assert!(sender.offer(half()).is_ok());
        assert!(sender.offer(half()).is_ok());
        assert_eq!((sender.depth().messages(), sender.depth().bytes()), (2, limits::INBOX_BYTES));
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        assert!(!is_awake(&waker), "nobody was turned away");
        assert!(sender.offer(half()).is_ok());
        assert!(sender.offer(message(1)).is_err());
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        assert!(is_awake(&waker));
        assert!(sender.offer(message(1)).is_ok());
        drop(sender);
        assert!(matches!(inbox.take(Some(Duration::ZERO)), Taken::Message(_)));
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        assert!(matches!(inbox.take(None), Taken::Closed));
    }

    #[test]
    fn small_messages_are_bounded_too_and_one_that_is_too_large_goes_alone() {
        let (sender, inbox) = inbox(Waker::new().unwrap());
        assert!(sender.offer(message(limits::INBOX_BYTES + 1)).is_ok());
        assert!(sender.offer(message(0)).is_err());
        assert!(matches!(inbox.take(None), Taken::Message(_)));
        let taken = (0..2 * limits::INBOX_MESSAGES).take_while(|_| sender.offer(message(0)).is_ok()).count();
        assert_eq!(taken, limits::INBOX_MESSAGES);
    }

    #[test]
    fn the_last_answerer_calls_when_it_has_gone() {
        let waker = Waker::new().unwrap();
        let (sender, answers) = answers(waker.clone());
        drop(sender);
        assert!(is_awake(&waker));
        assert!(matches!(answers.try_recv(), Err(TryRecvError::Disconnected)));
    }
}
