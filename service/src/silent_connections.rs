//! Places of connections whose clients have sent no request yet. Their number is bounded: where no place
//! is free, a new connection takes that of the oldest one of the address that has the most.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use tokio::task::AbortHandle;

/// Tasks that wait for requests, in the order of their connections.
#[derive(Debug)]
pub struct SilentConnections {
    places: usize,
    open: VecDeque<(IpAddr, AbortHandle)>,
}

impl SilentConnections {
    pub const fn new(places: usize) -> Self {
        Self { places, open: VecDeque::new() }
    }

    /// Ends another task if there are too many.
    pub fn add(&mut self, peer: IpAddr, task: AbortHandle) {
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= self.places
            && let Some((_, displaced)) = self.victim().and_then(|place| self.open.remove(place))
        {
            displaced.abort();
        }
        self.open.push_back((peer, task));
    }

    fn victim(&self) -> Option<usize> {
        let mut by_peer: HashMap<IpAddr, usize> = HashMap::new();
        for (peer, _) in &self.open {
            *by_peer.entry(*peer).or_default() += 1;
        }
        let places = self.open.iter().enumerate();
        places
            .min_by_key(|(place, (peer, _))| (Reverse(by_peer.get(peer).copied()), *place))
            .map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn the_oldest_one_of_the_address_with_the_most_gives_way() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut connections = SilentConnections::new(5);
            let mut tasks = Vec::new();
            for (number, of_address) in [1, 2, 1, 2, 2, 3, 3, 4, 4].into_iter().enumerate() {
                let task = tokio::spawn(async move {
                    if number != 0 {
                        pending::<()>().await;
                    }
                });
                connections.add(IpAddr::from([10, 0, 0, of_address]), task.abort_handle());
                tokio::task::yield_now().await;
                tasks.push(task);
            }
            // The first one had its request and takes no place. The others in the order in which they gave
            // way.
            tokio::task::yield_now().await;
            let open: Vec<usize> = (0..tasks.len()).filter(|number| !tasks[*number].is_finished()).collect();
            assert_eq!(open, [2, 4, 6, 7, 8]);
        });
    }
}
