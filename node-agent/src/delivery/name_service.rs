//! Looks the addresses of collectors up, in a thread of its own: a name service may take seconds.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use tracing::{debug, warn};

use super::collectors::{CollectorAddress, Collectors};

#[derive(Debug, Default)]
pub(crate) struct NameService {
    under_way: Option<Receiver<Vec<CollectorAddress>>>,
}

impl NameService {
    /// Begins to look the collectors' names up, unless there are none or it is doing so.
    pub(crate) fn begin(&mut self, collectors: &Collectors) {
        if self.under_way.is_some() || !collectors.have_names() {
            return;
        }
        let (sender, receiver) = sync_channel(1);
        let collectors = collectors.clone();
        match thread::Builder::new().name("name service".to_owned()).spawn(move || {
            let found = collectors.in_order(addresses_of);
            // The agent may have stopped meanwhile.
            sender.send(found).ok();
        }) {
            Ok(_) => self.under_way = Some(receiver),
            Err(error) => warn!(%error, "cannot look up the names of the collectors"),
        }
    }

    /// Collectors in the order in which this node tries them, once they were looked up.
    pub(crate) fn finished(&mut self) -> Option<Vec<CollectorAddress>> {
        match self.under_way.as_ref()?.try_recv() {
            Ok(found) => {
                self.under_way = None;
                Some(found)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.under_way = None;
                None
            }
        }
    }
}

/// None if the name is unknown.
fn addresses_of(name: &str) -> Vec<IpAddr> {
    match (name, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(error) => {
            debug!(%error, "cannot look up {name}");
            Vec::new()
        }
    }
}
