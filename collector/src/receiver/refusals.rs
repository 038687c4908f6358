//! Who was refused, and when: so that a peer that sends garbage gets few answers and few lines in the log.

use std::collections::HashMap;
use std::time::Duration;

use crate::inbox::Peer;
use crate::refusal::Refusal;
use crate::{limits, log};

/// When a peer last was told, and when the log last said so.
#[derive(Debug)]
struct Refused {
    told: Duration,
    logged: Duration,
}

/// The refusals of one receiver.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    peers: HashMap<Peer, Refused>,
    count: u64,
    /// When the log began to count its lines, and how many there were since.
    lines: (Duration, u32),
}

impl Refusals {
    /// How many messages were refused.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts that something of `peer` was refused, and says whether it is worth an answer.
    pub(super) fn note(&mut self, peer: &Peer, refusal: &Refusal, now: Duration) -> bool {
        self.count += 1;
        if self.peers.len() >= limits::REFUSED_PEERS && !self.peers.contains_key(peer) {
            self.peers.retain(|_, refused| now.saturating_sub(refused.logged) < limits::REFUSAL_LOG_AGAIN);
            if self.peers.len() >= limits::REFUSED_PEERS {
                return false;
            }
        }
        let (tell, say) = match self.peers.get_mut(peer) {
            None => {
                self.peers.insert(peer.clone(), Refused { told: now, logged: now });
                (true, true)
            }
            Some(refused) => (
                is_time(&mut refused.told, now, limits::REFUSAL_AGAIN),
                is_time(&mut refused.logged, now, limits::REFUSAL_LOG_AGAIN),
            ),
        };
        if say && self.may_log(now) {
            log::warning(format_args!(
                "a peer sends what cannot be used: {}; {} ({} messages refused so far)",
                log::printable(&refusal.why),
                refusal.kind.advice(),
                self.count
            ));
        }
        tell
    }

    fn may_log(&mut self, now: Duration) -> bool {
        if is_time(&mut self.lines.0, now, limits::REFUSAL_LOG_AGAIN) {
            self.lines.1 = 0;
        }
        self.lines.1 += 1;
        self.lines.1 <= limits::REFUSAL_LINES
    }
}

/// Whether `again` has passed since `last`, which then is now.
fn is_time(last: &mut Duration, now: Duration, again: Duration) -> bool {
    let is_time = now.saturating_sub(*last) >= again;
    if is_time {
        *last = now;
    }
    is_time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_answered_once_in_ten_seconds_and_the_memory_is_bounded() {
        let mut refusals = Refusals::default();
        let (at, why) = (Duration::from_secs, Refusal::contradiction("x"));
        let peer = Peer::from(b"a".as_slice());
        assert!(refusals.note(&peer, &why, at(100)));
        assert!(!refusals.note(&peer, &why, at(109)));
        assert!(refusals.note(&peer, &why, at(110)));
        for number in 0..2 * limits::REFUSED_PEERS {
            refusals.note(&Peer::from(number.to_le_bytes().as_slice()), &why, at(111));
        }
        assert_eq!(refusals.peers.len(), limits::REFUSED_PEERS);
        assert!(!refusals.note(&Peer::from(b"b".as_slice()), &why, at(112)));
        assert!(refusals.note(&Peer::from(b"b".as_slice()), &why, at(200)));
        assert_eq!(refusals.count(), 5 + 2 * limits::REFUSED_PEERS as u64);
    }
}
