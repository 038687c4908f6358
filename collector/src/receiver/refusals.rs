//! Refused messages, with limits on the answers and log messages for a peer that sends garbage.

use std::collections::HashMap;
use std::time::Duration;

use polymeter_service::log_throttle::LogThrottle;
use tracing::warn;

use crate::limits;
use crate::refusal::MessageRefusal;
use crate::session_messages::Peer;

#[derive(Debug)]
pub(super) struct Refusals {
    answered_at: HashMap<Peer, Duration>,
    throttle: LogThrottle<Peer>,
    count: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        let throttle = LogThrottle::new(limits::LOG_INTERVAL, limits::LOG_MESSAGES);
        Self { answered_at: HashMap::new(), throttle, count: 0 }
    }
}

impl Refusals {
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if the message is to be answered.
    pub(super) fn note(&mut self, peer: &Peer, refusal: &MessageRefusal, now: Duration) -> bool {
        self.count += 1;
        if self.answered_at.len() >= limits::REFUSED_PEERS && !self.answered_at.contains_key(peer) {
            self.answered_at.retain(|_, at| now.saturating_sub(*at) < limits::LOG_INTERVAL);
            if self.answered_at.len() >= limits::REFUSED_PEERS {
                return false;
            }
        }
        if self.throttle.allows(peer, now) {
            warn!(
                error = %refusal.reason,
                remedy = refusal.kind.remedy(),
                count = self.count,
                "cannot accept a message"
            );
        }
        match self.answered_at.get_mut(peer) {
            Some(at) if now.saturating_sub(*at) < limits::REFUSAL_INTERVAL => false,
            Some(at) => {
                *at = now;
                true
            }
            None => {
                self.answered_at.insert(peer.clone(), now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_answered_once_in_ten_seconds_and_memory_is_bounded() {
        let mut refusals = Refusals::default();
        let (at, refusal) = (Duration::from_secs, MessageRefusal::contradiction("x"));
        let peer = Peer::from(b"a".as_slice());
        assert!(refusals.note(&peer, &refusal, at(100)));
        assert!(!refusals.note(&peer, &refusal, at(109)));
        assert!(refusals.note(&peer, &refusal, at(110)));
        for number in 0..2 * limits::REFUSED_PEERS {
            refusals.note(&Peer::from(number.to_le_bytes().as_slice()), &refusal, at(111));
        }
        assert_eq!(refusals.answered_at.len(), limits::REFUSED_PEERS);
        assert!(!refusals.note(&Peer::from(b"b".as_slice()), &refusal, at(112)));
        assert!(refusals.note(&Peer::from(b"b".as_slice()), &refusal, at(200)));
        assert_eq!(refusals.count(), 5 + 2 * limits::REFUSED_PEERS as u64);
    }
}
