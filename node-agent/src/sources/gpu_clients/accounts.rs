//! Use of GPUs by the clients of a job: sums that do not decrease when clients end. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{Client, ClientId, Item, Quantity};
use crate::sources::UnknownLines;

/// Bound of the clients whose counts are kept one by one. For others, which have ended, only the sum is kept.
const CLIENTS_MAX: usize = 4096;

const KEYS_MAX: usize = 512;

/// A value of a job: a quantity of a part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources) struct Key {
    pub(in crate::sources) device: String,
    pub(in crate::sources) item: Item,
}

#[derive(Debug, Default)]
struct Account {
    counts: BTreeMap<Item, u64>,
    /// Number of the last reading in which it was found.
    seen: u64,
}

/// Use by all clients of a job, ended ones included.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    clients: BTreeMap<ClientId, Account>,
    /// Counts of clients that are not kept one by one any more.
    forgotten: BTreeMap<Key, u64>,
    /// Capacities of engines, which do not change.
    capacities: BTreeMap<Key, u64>,
    keys: BTreeSet<Key>,
    readings: u64,
}

const fn is_count(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::Time | Quantity::Cycles)
}

impl Accounts {
    /// Values that were ever found, and the clients of GPUs that were granted.
    pub(super) const fn keys(&self) -> &BTreeSet<Key> {
        &self.keys
    }

    /// Adds the number of clients of a GPU, which may be 0.
    pub(super) fn grant(&mut self, device: String) {
        if self.keys.len() < KEYS_MAX {
            let item = Item { quantity: Quantity::Clients, name: String::new() };
            self.keys.insert(Key { device, item });
        }
    }

    /// Takes a reading of all clients, each of which may be found several times. Returns all values, without
    /// the cycles of GPUs that no client uses now.
    pub(super) fn update(&mut self, found: impl IntoIterator<Item = Client>) -> BTreeMap<Key, u64> {
        self.readings += 1;
        let mut values = BTreeMap::new();
        for client in found {
            self.add(client, &mut values);
        }
        self.forget_ended();
        for key in &self.keys {
            match key.item.quantity {
                Quantity::TotalCycles => {}
                Quantity::Capacity => {
                    values.insert(key.clone(), self.capacities.get(key).copied().unwrap_or(1));
                }
                Quantity::Time | Quantity::Cycles => {
                    values.insert(key.clone(), self.forgotten.get(key).copied().unwrap_or(0));
                }
                Quantity::Resident | Quantity::Total | Quantity::Shared | Quantity::Clients => {
                    values.entry(key.clone()).or_insert(0);
                }
            }
        }
        for (id, account) in &self.clients {
            for (item, count) in &account.counts {
                let key = Key { device: id.device.clone(), item: item.clone() };
                if let Some(sum) = values.get_mut(&key) {
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        values
    }

    /// Adds a client to the values, unless it was found before in this reading.
    fn add(&mut self, client: Client, values: &mut BTreeMap<Key, u64>) {
        let Client { id, values: of_client } = client;
        let is_full = self.clients.len() >= 2 * CLIENTS_MAX;
        if is_full && !self.clients.contains_key(&id) {
            return;
        }
        let account = self.clients.entry(id.clone()).or_default();
        if std::mem::replace(&mut account.seen, self.readings) == self.readings {
            return;
        }
        let clients = Item { quantity: Quantity::Clients, name: String::new() };
        if let Some(key) = know(&mut self.keys, &id.device, &clients) {
            *values.entry(key).or_insert(0) += 1;
        }
        for (item, value) in of_client {
            let Some(key) = know(&mut self.keys, &id.device, &item) else { continue };
            match item.quantity {
                // The driver may state less than before for a while.
                Quantity::Time | Quantity::Cycles => {
                    let capacity = Item { quantity: Quantity::Capacity, name: item.name.clone() };
                    know(&mut self.keys, &id.device, &capacity);
                    let count = account.counts.entry(item).or_default();
                    *count = value.max(*count);
                }
                Quantity::Capacity => {
                    self.capacities.insert(key, value);
                }
                // A clock of the GPU, which all clients read one after the other.
                Quantity::TotalCycles => {
                    let latest = values.entry(key).or_default();
                    *latest = value.max(*latest);
                }
                Quantity::Resident | Quantity::Total | Quantity::Shared | Quantity::Clients => {
                    let sum = values.entry(key).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
        }
    }

    /// Forgets, of too many clients, those that were not found for the longest time, and keeps their counts.
    fn forget_ended(&mut self) {
        let Some(surplus) = self.clients.len().checked_sub(CLIENTS_MAX).filter(|surplus| *surplus > 0) else {
            return;
        };
        let ended = self.clients.iter().filter(|(_, account)| account.seen < self.readings);
        let mut ended: Vec<(u64, ClientId)> = ended.map(|(id, account)| (account.seen, id.clone())).collect();
        ended.sort_unstable();
        for (_, id) in ended.into_iter().take(surplus) {
            let Some(account) = self.clients.remove(&id) else { continue };
            for (item, count) in account.counts {
                debug_assert!(is_count(item.quantity), "only counts are kept");
                let sum = self.forgotten.entry(Key { device: id.device.clone(), item }).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
}

/// Adds a value to those of the job; `None` if there are too many.
fn know(keys: &mut BTreeSet<Key>, device: &str, item: &Item) -> Option<Key> {
    let key = Key { device: device.to_owned(), item: item.clone() };
    let is_known = keys.contains(&key) || keys.len() < KEYS_MAX;
    if is_known {
        keys.insert(key.clone());
    }
    is_known.then_some(key)
}

/// In any texts of clients, separated by zeros, counts do not decrease, and the values are bounded.
pub(in crate::sources) fn check(data: &[u8]) {
    let (mut accounts, mut before) = (Accounts::default(), BTreeMap::new());
    for text in data.split(|byte| *byte == 0) {
        let now = accounts.update(super::text::parse(text, &mut UnknownLines::default()));
        assert!(accounts.keys().len() <= KEYS_MAX);
        for (key, count) in before.iter().filter(|(key, _): &(&Key, &u64)| is_count(key.item.quantity)) {
            assert!(now.get(key).is_some_and(|now| now >= count), "{key:?}");
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEVICE: &str = "0000:c1:00.0";

    fn item(quantity: Quantity, name: &str) -> Item {
        Item { quantity, name: name.to_owned() }
    }

    fn key(quantity: Quantity, name: &str) -> Key {
        Key { device: DEVICE.to_owned(), item: item(quantity, name) }
    }

    fn client(number: u64, values: &[(Quantity, &str, u64)]) -> Client {
        let values = values.iter().map(|(quantity, name, value)| (item(*quantity, name), *value)).collect();
        Client { id: ClientId { device: DEVICE.to_owned(), number }, values }
    }

    fn busy(number: u64, time_ns: u64) -> Client {
        client(number, &[(Quantity::Time, "gfx", time_ns), (Quantity::Resident, "vram", 100)])
    }

    fn time(values: &BTreeMap<Key, u64>) -> u64 {
        values[&key(Quantity::Time, "gfx")]
    }

    #[test]
    fn a_client_counts_once_however_many_descriptors_it_has() {
        let mut accounts = Accounts::default();
        let values = accounts.update([busy(1, 5), busy(2, 7), busy(1, 6)]);
        let expected = [
            (key(Quantity::Time, "gfx"), 12),
            (key(Quantity::Capacity, "gfx"), 1),
            (key(Quantity::Resident, "vram"), 200),
            (key(Quantity::Clients, ""), 2),
        ];
        assert_eq!(values, expected.into());
        let other = Client { id: ClientId { device: "0000:c2:00.0".to_owned(), number: 1 }, ..busy(1, 3) };
        let values = accounts.update([other, busy(1, 6)]);
        assert_eq!(time(&values), 13, "the same number on another GPU is another client");
        assert_eq!(values.len(), 8);
    }

    #[test]
    fn counts_stay_when_clients_end_and_gauges_do_not() {
        let mut accounts = Accounts::default();
        accounts.update([busy(1, 5), busy(2, 7)]);
        let values = accounts.update([busy(2, 8)]);
        assert_eq!((time(&values), values[&key(Quantity::Resident, "vram")]), (13, 100));
        let values = accounts.update([]);
        assert_eq!((time(&values), values[&key(Quantity::Resident, "vram")]), (13, 0));
        assert_eq!(values[&key(Quantity::Clients, "")], 0);
        assert_eq!(time(&accounts.update([busy(1, 9), busy(3, 1)])), 18, "1 was not found for a while");
    }

    #[test]
    fn a_count_that_decreases_stays_until_it_catches_up() {
        let mut accounts = Accounts::default();
        let times = [50, 40, 49, 51].map(|time_ns| time(&accounts.update([busy(1, time_ns)])));
        assert_eq!(times, [50, 50, 50, 51]);
    }

    fn xe(number: u64, cycles: u64, total: u64) -> Client {
        let values = [
            (Quantity::Cycles, "ccs", cycles),
            (Quantity::TotalCycles, "ccs", total),
            (Quantity::Capacity, "ccs", 4),
        ];
        client(number, &values)
    }

    #[test]
    fn cycles_have_the_clock_and_the_capacity_of_their_engine() {
        let mut accounts = Accounts::default();
        let values = accounts.update([xe(1, 10, 1000), xe(2, 20, 1003)]);
        let of = |values: &BTreeMap<Key, u64>| {
            [Quantity::Cycles, Quantity::TotalCycles, Quantity::Capacity]
                .map(|quantity| values.get(&key(quantity, "ccs")).copied())
        };
        assert_eq!(of(&values), [Some(30), Some(1003), Some(4)]);
        // The clock begins anew after a reset, and cannot be read without a client.
        assert_eq!(of(&accounts.update([xe(1, 11, 7)])), [Some(31), Some(7), Some(4)]);
        assert_eq!(of(&accounts.update([])), [Some(31), None, Some(4)]);
    }

    #[test]
    fn clients_and_values_are_bounded() {
        let mut accounts = Accounts::default();
        let many = 3 * CLIENTS_MAX as u64;
        for number in 0..many {
            if number % 64 == 0 {
                assert_eq!(
                    time(&accounts.update((number..number + 64).map(|number| busy(number, 2)))),
                    2 * (number + 64)
                );
            }
        }
        assert!(accounts.clients.len() <= CLIENTS_MAX, "{}", accounts.clients.len());
        accounts.update((0..many).map(|number| busy(many + number, 1)));
        assert!(accounts.clients.len() <= 2 * CLIENTS_MAX, "{}", accounts.clients.len());
        let names: Vec<String> = (0..1000).map(|engine| format!("engine{engine}")).collect();
        let values: Vec<_> = names.iter().map(|name| (Quantity::Time, name.as_str(), 1)).collect();
        accounts.update([client(1, &values)]);
        assert_eq!(accounts.keys().len(), KEYS_MAX);
    }

    proptest! {
        #[test]
        fn counts_never_decrease(
            readings in prop::collection::vec(prop::collection::vec((0..9_u64, 0..1000_u64), 0..9), 1..40)
        ) {
            let mut accounts = Accounts::default();
            let mut last = 0;
            let mut largest: BTreeMap<u64, u64> = BTreeMap::new();
            for reading in readings {
                let mut seen = BTreeSet::new();
                for (number, count) in &reading {
                    if seen.insert(*number) {
                        let largest = largest.entry(*number).or_default();
                        *largest = (*largest).max(*count);
                    }
                }
                let values = accounts.update(reading.into_iter().map(|(number, count)| busy(number, count)));
                let now = values.get(&key(Quantity::Time, "gfx")).copied().unwrap_or(0);
                prop_assert!(now >= last);
                prop_assert_eq!(now, largest.values().sum::<u64>());
                last = now;
            }
        }
    }
}
