//! A bounded queue that serves its users in turn: one who fills it delays only itself. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Queue of items of users. Each user may hold as many places as are free, so that one alone gets half of
/// them. One item of each user always finds a place, as long as there are not more users than places.
#[derive(Debug)]
pub struct Turns<K, T> {
    places: usize,
    len: usize,
    /// Users with items.
    users: BTreeMap<K, VecDeque<T>>,
    /// The same in the order of their turns.
    order: VecDeque<K>,
}

impl<K: Clone + Ord, T> Turns<K, T> {
    pub const fn new(places: usize) -> Self {
        Self { places, len: 0, users: BTreeMap::new(), order: VecDeque::new() }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the user has a place for another item.
    pub fn has_place(&self, user: &K) -> bool {
        match self.users.get(user) {
            Some(items) => self.len + items.len() < self.places,
            None => self.users.len() < self.places,
        }
    }

    /// Queues an item.
    ///
    /// # Errors
    ///
    /// Returns the item if its user has no place for it.
    pub fn offer(&mut self, user: K, item: T) -> Result<(), T> {
        if !self.has_place(&user) {
            return Err(item);
        }
        if !self.users.contains_key(&user) {
            self.order.push_back(user.clone());
        }
        self.users.entry(user).or_default().push_back(item);
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest item of the user whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        let user = self.order.pop_front()?;
        let items = self.users.get_mut(&user)?;
        let item = items.pop_front()?;
        self.len -= 1;
        if items.is_empty() {
            self.users.remove(&user);
        } else {
            self.order.push_back(user);
        }
        Some(item)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.users.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_alone_gets_half_and_every_other_one_a_place() {
        let mut turns = Turns::new(64);
        assert_eq!((0..1000).filter(|number| turns.offer(0, *number).is_ok()).count(), 32);
        assert_eq!((turns.offer(1, 0), turns.offer(0, 7)), (Ok(()), Err(7)));
        // Users that all take what they can.
        let mut turns = Turns::new(64);
        for user in 0..1000 {
            let taken = (0..1000).filter(|number| turns.offer(user, *number).is_ok()).count();
            assert_eq!(taken > 0, user < 64, "user {user}, {} items", turns.len());
        }
        assert!(turns.len() <= 128, "{}", turns.len());
    }

    #[test]
    fn items_come_in_turn_and_those_of_a_user_in_order() {
        let mut turns = Turns::new(64);
        (0..20).for_each(|number| turns.offer("much", number).unwrap());
        (100..103).for_each(|number| turns.offer("little", number).unwrap());
        assert_eq!(turns.iter().count(), 23);
        let first: Vec<i32> = (0..6).filter_map(|_| turns.take()).collect();
        assert_eq!(first, [0, 100, 1, 101, 2, 102]);
        let rest: Vec<i32> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(rest, (3..20).collect::<Vec<_>>());
        assert!(turns.is_empty() && turns.users.is_empty() && turns.order.is_empty());
    }
}
