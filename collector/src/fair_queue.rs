//! A queue in which every peer has its turn and its share: who sends much waits behind itself, and who sends nothing that
//! can be stored is heard less and less.
//!
//! Turns are a deficit round robin: each peer may take so many bytes a round, and saves up for longer messages.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::inbox::{Peer, Received};
use crate::limits;

/// What became of a message that was offered.
#[derive(Debug)]
pub(crate) enum Offered {
    /// It is in the queue.
    Taken,
    /// There is no room in the queue: it is given back, to be offered again.
    NoRoom(Received),
    /// Its peer has more messages in the queue than any agent may have under way: it is dropped, and the agent sends it
    /// again.
    TooMany,
    /// Its peer has sent so much that could not be stored that it is not heard now.
    Muted,
}

/// The messages of one peer.
#[derive(Debug, Default)]
struct Share {
    messages: VecDeque<Received>,
    bytes: usize,
    /// Bytes that it may take from its next turn on.
    saved: usize,
}

/// What a peer may still send that cannot be stored, as of a time.
#[derive(Debug, Clone, Copy)]
struct Credit {
    bytes: usize,
    at: Duration,
}

impl Credit {
    fn at(self, now: Duration) -> usize {
        let since_ms = usize::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(usize::MAX);
        let refilled = since_ms.saturating_mul(limits::USELESS_BYTES_PER_S / 1000);
        self.bytes.saturating_add(refilled).min(limits::USELESS_BYTES)
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    shares: HashMap<Peer, Share>,
    /// Those that have messages, in the order of their turns.
    turns: VecDeque<Peer>,
    bytes: usize,
    messages: usize,
    /// Peers that have less than full credit.
    credits: HashMap<Peer, Credit>,
}

impl FairQueue {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn messages(&self) -> usize {
        self.messages
    }

    /// Puts a message in, if there is room for it and its peer may be heard.
    pub(crate) fn offer(&mut self, message: Received, now: Duration) -> Offered {
        let len = message.bytes.len();
        if self.credits.get(&message.peer).is_some_and(|credit| credit.at(now) == 0) {
            return Offered::Muted;
        }
        let share = self.shares.get(&message.peer);
        let (bytes, messages) = share.map_or((0, 0), |share| (share.bytes, share.messages.len()));
        // One message of a peer is never too large, and into an empty queue goes everything.
        if messages >= limits::PEER_INBOX_MESSAGES || (bytes > 0 && bytes + len > limits::PEER_INBOX_BYTES) {
            return Offered::TooMany;
        }
        if self.messages >= limits::INBOX_MESSAGES
            || (self.bytes > 0 && self.bytes + len > limits::INBOX_BYTES)
        {
            return Offered::NoRoom(message);
        }
        let share = self.shares.entry(message.peer.clone()).or_default();
        if share.messages.is_empty() {
            self.turns.push_back(message.peer.clone());
        }
        share.bytes += len;
        share.messages.push_back(message);
        self.bytes += len;
        self.messages += 1;
        Offered::Taken
    }

    /// The next message: of each peer in its order, and of the peers in turns.
    pub(crate) fn take(&mut self) -> Option<Received> {
        loop {
            let peer = self.turns.front()?.clone();
            let is_alone = self.turns.len() == 1;
            let share = self.shares.get_mut(&peer)?;
            let len = share.messages.front().map_or(0, |message| message.bytes.len());
            if !is_alone && share.saved < len {
                share.saved += limits::TURN_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            let message = share.messages.pop_front()?;
            share.saved = share.saved.saturating_sub(len);
            share.bytes -= len;
            self.bytes -= len;
            self.messages -= 1;
            if share.messages.is_empty() {
                self.turns.pop_front();
                self.shares.remove(&peer);
            }
            return Some(message);
        }
    }

    /// Notes that a message of `len` bytes was of use, or was not.
    pub(crate) fn note(&mut self, peer: &Peer, len: usize, is_useful: bool, now: Duration) {
        if is_useful {
            self.credits.remove(peer);
            return;
        }
        let full = Credit { bytes: limits::USELESS_BYTES, at: now };
        let credit = self.credits.get(peer).copied().unwrap_or(full);
        let bytes = credit.at(now).saturating_sub(len + limits::USELESS_MESSAGE_BYTES);
        self.credits.insert(peer.clone(), Credit { bytes, at: now });
    }

    /// Forgets the peers whose credit is full again, and gives back memory.
    pub(crate) fn tidy(&mut self, now: Duration) {
        self.credits.retain(|_, credit| credit.at(now) < limits::USELESS_BYTES);
        self.credits.shrink_to_fit();
        self.shares.shrink_to_fit();
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

    fn message(name: &str, bytes: usize) -> Received {
        Received { peer: peer(name), bytes: zmq::Message::from(vec![0; bytes]) }
    }

    fn takes(queue: &mut FairQueue, name: &str, bytes: usize) -> bool {
        matches!(queue.offer(message(name, bytes), NOW), Offered::Taken)
    }

    fn turn(queue: &mut FairQueue) -> Option<(String, usize)> {
        let message = queue.take()?;
        Some((String::from_utf8(message.peer.as_bytes().to_vec()).unwrap(), message.bytes.len()))
    }

    #[test]
    fn who_sends_little_does_not_wait_behind_who_sends_much() {
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
        // In their order, and with at most one of the other's in between.
        assert_eq!(of_little, [101, 102, 103, 104, 105]);
        while turn(&mut queue).is_some() {}
        assert_eq!((queue.bytes(), queue.messages(), queue.shares.len(), queue.turns.len()), (0, 0, 0, 0));
    }

    #[test]
    fn no_peer_fills_the_queue_alone() {
        let mut queue = FairQueue::default();
        let quarter = limits::PEER_INBOX_BYTES / 4;
        assert_eq!((0..100).filter(|_| takes(&mut queue, "much", quarter)).count(), 4);
        assert!(matches!(queue.offer(message("much", quarter), NOW), Offered::TooMany));
        assert!(takes(&mut queue, "other", quarter));
        let mut queue = FairQueue::default();
        let small = (0..2 * limits::INBOX_MESSAGES).filter(|_| takes(&mut queue, "much", 0)).count();
        assert_eq!(small, limits::PEER_INBOX_MESSAGES);
        // All together fill it, and what finds no room is not lost.
        let mut queue = FairQueue::default();
        let all = (0..1000).filter(|number| takes(&mut queue, &number.to_string(), quarter)).count();
        assert_eq!(all, limits::INBOX_BYTES / quarter);
        assert!(matches!(queue.offer(message("late", 1), NOW), Offered::NoRoom(_)));
    }

    #[test]
    fn who_sends_nothing_of_use_is_heard_less_until_it_does() {
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
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Taken));
        queue.note(&useless, limits::USELESS_BYTES, false, later);
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Muted));
        queue.note(&useless, 1, true, later);
        assert!(matches!(queue.offer(message("useless", 1), later), Offered::Taken));
        queue.note(&useless, 1, false, later);
        queue.tidy(later);
        assert_eq!(queue.credits.len(), 1);
        queue.tidy(later + Duration::from_secs(1));
        assert_eq!(queue.credits.len(), 0);
    }
}
