//! Division of changes into rounds, so that each round is one statement. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// Divides `items` into rounds. The items with the same key are in successive rounds, in their order: a
/// statement that changes several rows must not change one of them twice.
pub(super) fn rounds<T, K: Hash + Eq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let mut seen: HashMap<K, usize> = HashMap::new();
    let mut rounds: Vec<Vec<T>> = Vec::new();
    for item in items {
        let count = seen.entry(key(&item)).or_default();
        match rounds.get_mut(*count) {
            Some(round) => round.push(item),
            None => rounds.push(vec![item]),
        }
        *count += 1;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_each_key_once_and_rounds_are_in_order() {
        let items = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("b", 6)];
        let rounds = rounds(items, |(key, _)| *key);
        assert_eq!(rounds, [vec![("a", 1), ("b", 2), ("c", 4)], vec![("a", 3), ("b", 6)], vec![("a", 5)]]);
    }
}
