//! Bounded queues between the receiver and the writers.
//!
//! The receiver never waits for a writer: a full queue rejects the message, and wakes the receiver when it
//! has room again. A writer may wait for the receiver, which always empties its queue.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_service::clock;

use crate::backlog::WriterBusy;
use crate::fair_queue::{FairQueue, Offered};
use crate::limits;
use crate::metrics::QueueDepth;
use crate::session_messages::{Outgoing, Peer, ReceivedMessage};
use crate::waker::Waker;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a message arrives, or the sender is dropped.
    changed: Condvar,
    depth: QueueDepth,
}

#[derive(Debug, Default)]
struct State {
    queue: FairQueue,
    /// The sender found no room, and is woken when there is some.
    sender_waits: bool,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_depth(&self, state: &State) {
        self.depth.set(state.queue.messages(), state.queue.bytes());
    }
}

#[derive(Debug)]
pub(crate) struct WriterQueueSender(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct WriterQueue {
    shared: Arc<Shared>,
    waker: Waker,
    /// Tells others how long this writer has had no pause.
    busy: WriterBusy,
}

#[derive(Debug)]
pub(crate) enum Dequeued {
    Message(ReceivedMessage),
    TimedOut,
    Closed,
}

/// Calls `waker` when a full queue has room again, and exports its depth as metrics.
pub(crate) fn writer_queue(
    waker: Waker,
    depth: QueueDepth,
    busy: WriterBusy,
) -> (WriterQueueSender, WriterQueue) {
    let shared = Arc::new(Shared { depth, ..Shared::default() });
    (WriterQueueSender(Arc::clone(&shared)), WriterQueue { shared, waker, busy })
}

impl WriterQueueSender {
    pub(crate) fn offer(&self, message: ReceivedMessage, now: Duration) -> Offered {
        let mut state = self.0.lock();
        let offered = state.queue.offer(message, now);
        match &offered {
            Offered::Queued => {
                self.0.publish_depth(&state);
                drop(state);
                self.0.changed.notify_one();
            }
            Offered::QueueFull(_) => state.sender_waits = true,
            Offered::PeerQueueFull | Offered::Muted => {}
        }
        offered
    }
}

impl Drop for WriterQueueSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl WriterQueue {
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Dequeued {
        let is_empty = |state: &mut State| state.queue.messages() == 0 && !state.closed;
        let state = self.shared.lock();
        self.busy.note(state.queue.messages() > 1, clock::monotonic_ns());
        let mut state = match timeout {
            None => self.shared.changed.wait_while(state, is_empty).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.shared.changed.wait_timeout_while(state, timeout, is_empty);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let Some(message) = state.queue.take() else {
            return if state.closed { Dequeued::Closed } else { Dequeued::TimedOut };
        };
        self.shared.publish_depth(&state);
        let sender_waits = std::mem::take(&mut state.sender_waits);
        drop(state);
        if sender_waits {
            self.waker.wake();
        }
        Dequeued::Message(message)
    }

    /// Records whether a message of `len` bytes was useful, which limits the further messages of its peer.
    pub(crate) fn note(&self, peer: &Peer, len: usize, is_useful: bool, now: Duration) {
        self.shared.lock().queue.note(peer, len, is_useful, now);
    }

    /// Releases memory, and forgets the peers below their limits.
    pub(crate) fn tidy(&self, now: Duration) {
        self.shared.lock().queue.tidy(now);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct OutgoingSender {
    /// Present until the sender is dropped.
    queue: Option<SyncSender<Outgoing>>,
    waker: Waker,
}

/// Queue of messages to agents. It wakes the receiver, which sends them.
pub(crate) fn outgoing_queue(waker: Waker) -> (OutgoingSender, Receiver<Outgoing>) {
    let (sender, receiver) = sync_channel(limits::OUTGOING_MESSAGES);
    (OutgoingSender { queue: Some(sender), waker }, receiver)
}

impl OutgoingSender {
    pub(crate) fn send(&self, message: Outgoing) {
        // Without a receiver there is no socket, and no peer to send to.
        if self.queue.as_ref().is_some_and(|queue| queue.send(message).is_ok()) {
            self.waker.wake();
        }
    }
}

impl Drop for OutgoingSender {
    /// Wakes the receiver after the disconnection, since it also waits for the last sender to disconnect.
    fn drop(&mut self) {
        drop(self.queue.take());
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(sender: &WriterQueueSender, peer: u8, bytes: usize) -> bool {
        let message = ReceivedMessage { peer: Peer::from([peer].as_slice()), bytes: vec![0; bytes].into() };
        matches!(sender.offer(message, Duration::ZERO), Offered::Queued)
    }

    #[test]
    fn full_queue_rejects_and_wakes_the_sender_when_it_has_room() {
        let waker = Waker::new().unwrap();
        let depth = QueueDepth::default();
        let (sender, queue) = writer_queue(waker.clone(), depth.clone(), WriterBusy::default());
        let peers = u8::try_from(limits::QUEUE_BYTES / limits::PEER_QUEUE_BYTES).unwrap();
        assert!((0..peers).all(|peer| offer(&sender, peer, limits::PEER_QUEUE_BYTES)));
        assert_eq!(depth.get(), (peers.into(), limits::QUEUE_BYTES));
        assert!(matches!(queue.take(None), Dequeued::Message(_)));
        assert!(!waker.clear(), "no message was rejected");
        assert!(offer(&sender, 100, limits::PEER_QUEUE_BYTES));
        assert!(!offer(&sender, 101, 1));
        assert!(matches!(queue.take(None), Dequeued::Message(_)));
        assert!(waker.clear());
        assert!(offer(&sender, 101, 1));
        drop(sender);
        let rest = (0..=peers).filter(|_| matches!(queue.take(Some(Duration::ZERO)), Dequeued::Message(_)));
        assert!(rest.count() > 0);
        assert!(matches!(queue.take(None), Dequeued::Closed));
    }

    #[test]
    fn empty_queue_accepts_one_message_of_any_size() {
        let (sender, queue) =
            writer_queue(Waker::new().unwrap(), QueueDepth::default(), WriterBusy::default());
        assert!(offer(&sender, 1, limits::QUEUE_BYTES + 1));
        assert!(!offer(&sender, 2, 0) || !offer(&sender, 2, 1));
        assert!(matches!(queue.take(None), Dequeued::Message(_)));
    }

    #[test]
    fn last_sender_wakes_the_receiver_when_it_is_dropped() {
        let waker = Waker::new().unwrap();
        let (sender, messages) = outgoing_queue(waker.clone());
        drop(sender);
        assert!(waker.clear());
        assert!(matches!(messages.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
    }
}
