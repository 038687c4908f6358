//! Lines in datagrams. Nobody acknowledges them.

use polymeter_service::http_client::NoAnswer;
use tokio::net::UdpSocket;

use super::config::ReceiverUrl;

/// Fits into a frame of Ethernet, with the heads of IPv6 and UDP.
const DATAGRAM_BYTES: usize = 1400;

/// Opened when it is needed, and after an error.
#[derive(Debug, Default)]
pub(super) struct Datagrams(Option<UdpSocket>);

impl Datagrams {
    /// Fails if the host has no address, or the system knows that nobody receives.
    pub(super) async fn send(&mut self, url: &ReceiverUrl, lines: &[u8]) -> Result<(), NoAnswer> {
        let socket = match self.0.take() {
            Some(socket) => socket,
            None => connected(url).await?,
        };
        for datagram in datagrams(lines) {
            socket.send(datagram).await?;
        }
        self.0 = Some(socket);
        Ok(())
    }
}

async fn connected(url: &ReceiverUrl) -> Result<UdpSocket, NoAnswer> {
    let mut last = NoAnswer::because("the host name does not resolve to an address");
    for address in tokio::net::lookup_host((url.host(), url.port())).await? {
        let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Whole lines: as many as fit, or a longer one alone.
fn datagrams(lines: &[u8]) -> Vec<&[u8]> {
    let mut datagrams = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let mut end = 0;
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            if end > 0 && end + line.len() > DATAGRAM_BYTES {
                break;
            }
            end += line.len();
        }
        let Some((datagram, after)) = rest.split_at_checked(end) else { break };
        datagrams.push(datagram);
        rest = after;
    }
    datagrams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_whole_lines() {
        assert!(datagrams(b"").is_empty());
        let line = [&[b'x'; 699][..], b"\n"].concat();
        let long = [&[b'y'; 3000][..], b"\n"].concat();
        let all = [&line[..], &line, &line, &long, &line].concat();
        let found = datagrams(&all);
        assert_eq!(found.iter().map(|datagram| datagram.len()).collect::<Vec<_>>(), [1400, 700, 3001, 700]);
        assert_eq!(found.concat(), all);
    }
}
