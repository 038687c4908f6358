//! A process that exchanges datagrams with the test.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use super::process::{Process, line, numbers};

/// Returns a socket of the loopback that fails where no datagram arrives.
pub(crate) fn bound(loopback: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((loopback, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Sends datagrams on request: `PORT COUNT BYTES`; receives them where the port is 0.
pub(crate) fn exchange_datagrams() {
    let loopback: IpAddr = line(&mut std::io::stdin().lock()).parse().unwrap();
    let socket = bound(loopback);
    println!("{}", socket.local_addr().unwrap().port());
    loop {
        let request = line(&mut std::io::stdin().lock());
        if request.is_empty() {
            return;
        }
        let [port, count, bytes] = numbers(&request);
        for _ in 0..count {
            if port == 0 {
                assert_eq!(socket.recv(&mut [0; 4096]).unwrap(), bytes);
            } else {
                socket.send_to(&vec![7; bytes], (loopback, port as u16)).unwrap();
            }
        }
        println!("done");
    }
}

/// A process that sends and receives datagrams at an address of the loopback interface.
#[derive(Debug)]
pub(crate) struct Talker {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Talker {
    pub(crate) fn start(cgroup: &Path, loopback: IpAddr) -> Self {
        let mut process = Process::start("datagrams", cgroup);
        process.tell(&loopback.to_string());
        let port = process.answer().parse().unwrap();
        Self { process, address: SocketAddr::new(loopback, port) }
    }

    /// Sends datagrams to a socket of this process, which receives them. They must fit into the socket's
    /// buffer together.
    pub(crate) fn send(&mut self, to: &UdpSocket, count: usize, bytes: usize) {
        self.process.tell(&format!("{} {count} {bytes}", to.local_addr().unwrap().port()));
        for _ in 0..count {
            assert_eq!(to.recv(&mut [0; 4096]).unwrap(), bytes);
        }
        assert_eq!(self.process.answer(), "done");
    }

    pub(crate) fn receive(&mut self, from: &UdpSocket, count: usize, bytes: usize) {
        for _ in 0..count {
            from.send_to(&vec![7; bytes], self.address).unwrap();
        }
        self.process.tell(&format!("0 {count} {bytes}"));
        assert_eq!(self.process.answer(), "done");
    }
}
