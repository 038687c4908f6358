//! How users share a bandwidth by bytes. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes that each user has sent since something of it waits. The user with the fewest is next; one for whom
/// nothing waited begins where the others are.
#[derive(Debug)]
pub(super) struct Shares<K> {
    sent: BTreeMap<K, u64>,
    /// Bytes of the user that was last next.
    begin: u64,
    turns: u64,
}

impl<K: Copy + Ord> Shares<K> {
    pub(super) const fn new() -> Self {
        Self { sent: BTreeMap::new(), begin: 0, turns: 0 }
    }

    /// Chooses one of the users for whom something waits, and forgets all others.
    pub(super) fn next(&mut self, waiting: impl Iterator<Item = K>) -> Option<K> {
        let waiting: BTreeSet<K> = waiting.collect();
        self.sent.retain(|user, _| waiting.contains(user));
        for user in waiting {
            self.sent.entry(user).or_insert(self.begin);
        }
        let (user, sent) = self.sent.iter().min_by_key(|(_, sent)| **sent)?;
        self.begin = *sent;
        Some(*user)
    }

    /// Counts bytes that a user sends. Returns the number of this turn.
    pub(super) fn charge(&mut self, user: K, bytes: usize) -> u64 {
        let sent = self.sent.entry(user).or_default();
        *sent = sent.saturating_add(bytes as u64);
        self.turns += 1;
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_get_the_same_bytes_while_both_want_some() {
        let mut shares = Shares::new();
        let mut sent = BTreeMap::from([(1, 0_usize), (2, 0)]);
        for step in 0..1000 {
            // The second wants nothing for a while, and gets no more for it afterwards.
            let is_alone = (300..600).contains(&step);
            let user = shares.next([1, 2].into_iter().filter(|user| *user == 1 || !is_alone)).unwrap();
            let bytes = if user == 1 { 3_000 } else { 100 };
            shares.charge(user, bytes);
            if !is_alone {
                *sent.get_mut(&user).unwrap() += bytes;
            }
        }
        assert!(sent[&1].abs_diff(sent[&2]) <= 6_000, "{sent:?}");
        assert_eq!(shares.next(std::iter::empty()), None::<i32>);
        assert!(shares.sent.is_empty());
    }
}
