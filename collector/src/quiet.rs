//! Who was spoken of in the log, and when: so that who knocks for ever fills neither the log nor the memory.

use std::collections::HashMap;
use std::time::Duration;

use crate::limits;

/// Says of each peer at most one thing in [`limits::REFUSAL_LOG_AGAIN`], and [`limits::REFUSAL_LINES`] things of all.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    spoken_of: HashMap<String, Duration>,
    /// When the lines began to be counted, and how many there were since.
    lines: (Duration, u32),
}

impl Quiet {
    /// Whether the log may speak of `peer` now.
    pub(crate) fn may_say(&mut self, peer: &str, now: Duration) -> bool {
        let is_recent = |since: &Duration| now.saturating_sub(*since) < limits::REFUSAL_LOG_AGAIN;
        if self.spoken_of.get(peer).is_some_and(is_recent) {
            return false;
        }
        if !is_recent(&self.lines.0) {
            self.lines = (now, 0);
        }
        if self.lines.1 >= limits::REFUSAL_LINES {
            return false;
        }
        // There are no more of them than lines, but for those of the time before.
        self.spoken_of.retain(|_, since| is_recent(since));
        self.lines.1 += 1;
        self.spoken_of.insert(peer.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_once_a_minute_and_not_too_many_of_them() {
        let (mut quiet, at) = (Quiet::default(), Duration::from_secs);
        assert!(quiet.may_say("a", at(0)));
        assert!(!quiet.may_say("a", at(59)));
        assert!(quiet.may_say("b", at(59)));
        assert!(quiet.may_say("a", at(60)));
        let said = (0..1000).filter(|peer| quiet.may_say(&peer.to_string(), at(61))).count();
        assert_eq!(said, limits::REFUSAL_LINES as usize - 1);
        assert!(quiet.spoken_of.len() <= 2 * limits::REFUSAL_LINES as usize);
        assert!(quiet.may_say("c", at(200)));
        assert_eq!(quiet.spoken_of.len(), 1);
    }
}
