//! Greeting of a collector: its version and its clock, without a request.

use std::io;
use std::net::ToSocketAddrs;

use polymeter_client::connection::collector::greeted;
use polymeter_service::clock;

#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) version: String,
    /// This machine's clock less the collector's, and the most by which that may be wrong, in microseconds.
    pub(crate) clock_us: (i64, i64),
}

/// Needs neither a request nor authentication; `address` is HOST:PORT.
pub(crate) fn greet(address: &str) -> io::Result<Greeted> {
    let mut last = io::Error::other("the host name does not resolve to an address");
    for address in address.to_socket_addrs()? {
        let (sent_ns, sent_us) = (clock::monotonic_ns(), clock::realtime_us());
        match greeted(address) {
            Ok((_, greeting)) => {
                let way_us = i64::try_from((clock::monotonic_ns() - sent_ns) / 1000).unwrap_or(i64::MAX);
                // The collector's clock was read at an unknown time in between.
                let clock_us = (sent_us + way_us / 2 - greeting.now_us, way_us / 2 + 1);
                return Ok(Greeted { version: greeting.version, clock_us });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
