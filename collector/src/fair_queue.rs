//! A queue that serves all peers in turn and bounds each of them: a peer that sends much delays only itself.
//! A peer whose messages cannot be stored is limited to a low rate.
//!
//! Peers are served by deficit round robin: each may take a number of bytes per round, and accumulates them
//! for longer messages.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use polymeter_service::token_bucket::TokenBucket;

use crate::limits;
use crate::session_messages::{Peer, ReceivedMessage};

#[derive(Debug)]
pub(crate) enum Offered {
    Queued,
    /// Returned, to be offered again later.
    QueueFull(ReceivedMessage),
    /// The peer has more messages in the queue than an agent may have in flight: the message is dropped, and
    /// the agent sends it again.
    PeerQueueFull,
    /// Too many of the peer's messages could not be stored.
    Muted,
}

#[derive(Debug, Default)]
struct PeerQueue {
    messages: VecDeque<ReceivedMessage>,
    bytes: usize,
    /// Bytes that the peer may take in its next turn.
    deficit: usize,
}

/// Limit for messages that cannot be stored, in bytes.
#[expect(clippy::cast_precision_loss, reason = "constants far below 2^52")]
const USELESS: TokenBucket =
    TokenBucket::new(limits::USELESS_BYTES_PER_S as f64, limits::USELESS_BYTES as f64);

/// Bytes below which a peer is muted: the gain of a millisecond.
#[expect(clippy::cast_precision_loss, reason = "a constant far below 2^52")]
const MUTED_BELOW_BYTES: f64 = limits::USELESS_BYTES_PER_S as f64 / 1000.0;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    peers: HashMap<Peer, PeerQueue>,
    /// Peers with messages, in the order of their turns.
    turns: VecDeque<Peer>,
    bytes: usize,
    messages: usize,
    /// Peers whose token bucket for useless messages is not full.
    useless: HashMap<Peer, TokenBucket>,
}

impl FairQueue {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn messages(&self) -> usize {
        self.messages
    }

    /// Queues a message if there is room for it and its peer is not muted.
    pub(crate) fn offer(&mut self, message: ReceivedMessage, now: Duration) -> Offered {
        let len = message.bytes.len();
        if self.useless.get(&message.peer).is_some_and(|bucket| bucket.tokens(nanos(now)) < MUTED_BELOW_BYTES)
        {
            return Offered::Muted;
        }
        let queue = self.peers.get(&message.peer);
        let (bytes, messages) = queue.map_or((0, 0), |queue| (queue.bytes, queue.messages.len()));
        // A peer's only message is never too large, and an empty queue accepts any message.
        if messages >= limits::PEER_QUEUE_MESSAGES || (bytes > 0 && bytes + len > limits::PEER_QUEUE_BYTES) {
            return Offered::PeerQueueFull;
        }
        if self.messages >= limits::QUEUE_MESSAGES
            || (self.bytes > 0 && self.bytes + len > limits::QUEUE_BYTES)
        {
            return Offered::QueueFull(message);
        }
        let queue = self.peers.entry(message.peer.clone()).or_default();
        if queue.messages.is_empty() {
            self.turns.push_back(message.peer.clone());
        }
        queue.bytes += len;
        queue.messages.push_back(message);
        self.bytes += len;
        self.messages += 1;
        Offered::Queued
    }

    pub(crate) fn take(&mut self) -> Option<ReceivedMessage> {
        loop {
            let peer = self.turns.front()?.clone();
            let is_alone = self.turns.len() == 1;
            let queue = self.peers.get_mut(&peer)?;
            let len = queue.messages.front().map_or(0, |message| message.bytes.len());
            if !is_alone && queue.deficit < len {
                queue.deficit += limits::TURN_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            let message = queue.messages.pop_front()?;
            queue.deficit = queue.deficit.saturating_sub(len);
            queue.bytes -= len;
            self.bytes -= len;
            self.messages -= 1;
            if queue.messages.is_empty() {
                self.turns.pop_front();
                self.peers.remove(&peer);
            }
            return Some(message);
        }
    }

    pub(crate) fn note(&mut self, peer: &Peer, len: usize, is_useful: bool, now: Duration) {
        if is_useful {
            self.useless.remove(peer);
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a message is far below 2^52 bytes")]
        let cost = (len + limits::USELESS_MESSAGE_BYTES) as f64;
        self.useless.entry(peer.clone()).or_insert(USELESS).drain(cost, nanos(now));
    }

    /// Forgets the peers whose token bucket is full again, and releases memory.
    pub(crate) fn tidy(&mut self, now: Duration) {
        self.useless.retain(|_, bucket| !bucket.is_full(nanos(now)));
        self.useless.shrink_to_fit();
        self.peers.shrink_to_fit();
        self.turns.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn peer(name: &str) -> Peer {
        Peer::from(name.as_bytes())
    }

    fn message(name: &str, bytes: usize) -> ReceivedMessage {
        ReceivedMessage { peer: peer(name), bytes: vec![0; bytes].into() }
    }

    fn takes(queue: &mut FairQueue, name: &str, bytes: usize) -> bool {
        matches!(queue.offer(message(name, bytes), NOW), Offered::Queued)
    }

    fn turn(queue: &mut FairQueue) -> Option<(String, usize)> {
        let message = queue.take()?;
        Some((String::from_utf8(message.peer.as_bytes().to_vec()).unwrap(), message.bytes.len()))
    }

    #[test]
    fn small_senders_do_not_wait_for_large_ones() {
        let mut queue = FairQueue::default();
        let (long, short) = (limits::TURN_BYTES * 4, 100);
        for _ in 0..3 {
            assert!(takes(&mut queue, "much", long));
        }
        (1..=5).for_each(|more| assert!(takes(&mut queue, "little", short + more)));
        let mut of_little = Vec::new();
        for _ in 0..6 {
            let (name, len) = turn(&mut queue).unwrap();
            if name == "little" {
                of_little.push(len);
            }
        }
        // The messages are in order, with at most one message of the other peer in between.
        assert_eq!(of_little, [101, 102, 103, 104, 105]);
        while turn(&mut queue).is_some() {}
        assert_eq!((queue.bytes(), queue.messages(), queue.peers.len(), queue.turns.len()), (0, 0, 0, 0));
    }

    #[test]
    fn no_peer_fills_the_queue_alone() {
        let mut queue = FairQueue::default();
        let quarter = limits::PEER_QUEUE_BYTES / 4;
        assert_eq!((0..100).filter(|_| takes(&mut queue, "much", quarter)).count(), 4);
        assert!(matches!(queue.offer(message("much", quarter), NOW), Offered::PeerQueueFull));
        assert!(takes(&mut queue, "other", quarter));
        let mut queue = FairQueue::default();
        let small = (0..2 * limits::QUEUE_MESSAGES).filter(|_| takes(&mut queue, "much", 0)).count();
        assert_eq!(small, limits::PEER_QUEUE_MESSAGES);
        // The queue is filled by all peers together, and returns a rejected message.
        let mut queue = FairQueue::default();
        let all = (0..1000).filter(|number| takes(&mut queue, &number.to_string(), quarter)).count();
        assert_eq!(all, limits::QUEUE_BYTES / quarter);
        assert!(matches!(queue.offer(message("late", 1), NOW), Offered::QueueFull(_)));
    }

    #[test]
    fn peers_that_send_useless_messages_are_muted_until_they_send_useful_ones() {
        let mut queue = FairQueue::default();
        let (useless, mib) = (peer("useless"), 1024 * 1024);
        for _ in 0..limits::USELESS_BYTES / mib {
            assert!(takes(&mut queue, "useless", 1));
            queue.take().unwrap();
            queue.note(&useless, mib, false, NOW);
        }
        assert!(matches!(queue.offer(message("useless", 1), NOW), Offered::Muted));
        assert!(takes(&mut queue, "other", 1));
        let later = NOW + Duration::from_secs(1);
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Queued));
        queue.note(&useless, limits::USELESS_BYTES, false, later);
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Muted));
        queue.note(&useless, 1, true, later);
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Queued));
        queue.note(&useless, 1, false, later);
        queue.tidy(later);
        assert_eq!(queue.useless.len(), 1);
        queue.tidy(later + Duration::from_secs(1));
        assert_eq!(queue.useless.len(), 0);
    }
}
