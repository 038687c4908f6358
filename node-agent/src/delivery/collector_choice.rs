//! Collector that is used at present, of those that the agent may deliver to.

use super::collectors::{CollectorAddress, Collectors};
use super::failover::{Failover, Move};
use super::name_service::NameService;
use super::outage::DeliveryState;

/// How often names are looked up anew: collectors may have been added or removed.
const LOOKUP_NS: u64 = 600_000_000_000;

#[derive(Debug)]
pub(crate) struct CollectorChoice {
    collectors: Collectors,
    names: NameService,
    lookup_at_ns: u64,
    /// Never empty.
    in_order: Vec<CollectorAddress>,
    current: CollectorAddress,
    failover: Failover,
}

#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) from: String,
    /// The collector that was left serves, and the agent returns to the first one.
    pub(crate) is_return: bool,
}

impl CollectorChoice {
    /// Begins to look names up. `seed` differs among agents. None if there are no collectors.
    pub(crate) fn new(
        collectors: Collectors,
        return_after_ns: Option<u64>,
        seed: u64,
        now_ns: u64,
    ) -> Option<Self> {
        let in_order = collectors.in_order(|_| Vec::new());
        let current = in_order.first()?.clone();
        let failover = Failover::new(in_order.len(), return_after_ns, seed, now_ns);
        let names = NameService::default();
        Some(Self { collectors, names, lookup_at_ns: now_ns, in_order, current, failover })
    }

    pub(crate) const fn current(&self) -> &CollectorAddress {
        &self.current
    }

    /// Returns the change if another collector is to be used from now on.
    pub(crate) fn update(&mut self, state: DeliveryState, now_ns: u64) -> Option<Moved> {
        if now_ns >= self.lookup_at_ns {
            self.lookup_at_ns = now_ns.saturating_add(LOOKUP_NS);
            self.names.begin(&self.collectors);
        }
        let replaced = self.names.finished().and_then(|found| self.replace(found, now_ns));
        let Move { to, is_return } = replaced.or_else(|| self.failover.update(state, now_ns))?;
        let to = self.in_order.get(to)?.clone();
        let from = std::mem::replace(&mut self.current, to);
        if !is_return {
            // The address may have changed.
            self.lookup_at_ns = now_ns;
        }
        Some(Moved { from: from.endpoint, is_return })
    }

    fn replace(&mut self, found: Vec<CollectorAddress>, now_ns: u64) -> Option<Move> {
        if found == self.in_order || found.is_empty() {
            return None;
        }
        let current = found.iter().position(|collector| *collector == self.current);
        self.in_order = found;
        self.failover.replace(self.in_order.len(), current, now_ns)
    }
}
