//! The collectors that an agent may deliver to: those of the configuration, and all addresses of their names.

use std::net::{IpAddr, SocketAddr};

use polymeter_proto::key::PublicKey;

use super::mix::{hash, mix};
use crate::config::CollectorOrder;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectorAddress {
    pub(crate) endpoint: String,
    /// None without encryption.
    pub(crate) key: Option<PublicKey>,
}

#[derive(Debug, Clone)]
pub(crate) struct Collectors {
    pub(crate) configured: Vec<CollectorAddress>,
    pub(crate) order: CollectorOrder,
    /// Determines the node's own order.
    pub(crate) node: String,
}

impl Collectors {
    pub(crate) fn have_names(&self) -> bool {
        self.configured.iter().any(|collector| name_and_port(&collector.endpoint).is_some())
    }

    /// Collectors in the order in which this node tries them. `addresses_of` returns the addresses of a name,
    /// the preferred one first. A name with one address stays a name: libzmq looks it up before each
    /// connection.
    pub(crate) fn in_order(&self, addresses_of: impl Fn(&str) -> Vec<IpAddr>) -> Vec<CollectorAddress> {
        let mut all = Vec::new();
        for collector in &self.configured {
            let first = all.len();
            let addresses = name_and_port(&collector.endpoint)
                .map(|(name, port)| (alternatives(addresses_of(name)), port))
                .filter(|(addresses, _)| addresses.len() > 1);
            let Some((addresses, port)) = addresses else {
                all.push(collector.clone());
                continue;
            };
            all.extend(addresses.into_iter().map(|address| CollectorAddress {
                endpoint: format!("tcp://{}", SocketAddr::new(address, port)),
                key: collector.key,
            }));
            self.sort(all.get_mut(first..).unwrap_or_default());
        }
        if self.order == CollectorOrder::Spread {
            self.sort(&mut all);
        }
        all
    }

    fn sort(&self, collectors: &mut [CollectorAddress]) {
        collectors.sort_by_cached_key(|collector| mix(hash(&self.node) ^ hash(&collector.endpoint)));
    }
}

/// Prefers one family of addresses: those of the other one are probably the same machines.
fn alternatives(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let Some(preferred) = addresses.first().copied() else { return Vec::new() };
    let mut of_family: Vec<IpAddr> =
        addresses.into_iter().filter(|address| address.is_ipv4() == preferred.is_ipv4()).collect();
    of_family.sort_unstable();
    of_family.dedup();
    of_family.truncate(ADDRESSES_MAX);
    of_family
}

/// None if the endpoint has an address, and no name.
fn name_and_port(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let is_address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    // `INTERFACE;HOST` states the local address.
    (!is_address && !host.contains(';')).then_some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn collectors(endpoints: &[&str], order: CollectorOrder, node: usize) -> Collectors {
        let configured = endpoints
            .iter()
            .map(|endpoint| CollectorAddress { endpoint: (*endpoint).to_owned(), key: None })
            .collect();
        Collectors { configured, order, node: format!("node{node}") }
    }

    fn endpoints(of: &Collectors, addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        of.in_order(|_| addresses.clone()).into_iter().map(|collector| collector.endpoint).collect()
    }

    #[test]
    fn the_order_of_the_configuration_is_kept() {
        let listed = ["tcp://10.0.0.9:1", "ipc:///run/c", "tcp://[fd00::1]:1", "tcp://c1:1"];
        let of = collectors(&listed, CollectorOrder::Listed, 1);
        assert_eq!(endpoints(&of, &[]), listed);
        assert_eq!(endpoints(&of, &["10.0.0.1"]), listed, "a name with one address stays a name");
        assert_eq!(endpoints(&of, &["::1", "127.0.0.1"]), listed, "one machine with two families");
        assert!(of.have_names() && !collectors(&listed[..3], CollectorOrder::Listed, 1).have_names());
    }

    #[test]
    fn a_name_stands_for_all_its_addresses() {
        let of = collectors(&["tcp://collectors:7", "tcp://10.0.0.9:7"], CollectorOrder::Listed, 1);
        let mut found = endpoints(&of, &["10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.2", "fd00::2"]);
        assert_eq!(found.pop().unwrap(), "tcp://10.0.0.9:7");
        found.sort();
        assert_eq!(found, ["tcp://10.0.0.1:7", "tcp://10.0.0.2:7"]);
        let mut found = endpoints(&of, &["fd00::2", "fd00::1", "10.0.0.1"]);
        found.pop();
        found.sort();
        assert_eq!(found, ["tcp://[fd00::1]:7", "tcp://[fd00::2]:7"]);
    }

    #[test]
    fn nodes_share_the_collectors_also_those_that_are_left() {
        let listed = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1", "tcp://10.0.0.4:1"];
        let mut by_place = vec![BTreeMap::new(); listed.len()];
        for node in 0..4000 {
            let of = collectors(&listed, CollectorOrder::Spread, node);
            for (place, endpoint) in endpoints(&of, &[]).into_iter().enumerate() {
                *by_place[place].entry(endpoint).or_insert(0) += 1;
            }
        }
        for counts in by_place {
            assert_eq!(counts.len(), 4);
            assert!(counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
        }
    }
}
