//! Opening of the socket.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use polymeter_service::unix_socket;

use crate::config::Listen;

#[derive(Debug)]
pub struct ApiListener {
    pub(crate) socket: Socket,
    pub(crate) address: Listen,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the HTTP API at {listen} (set by `listen` in [api])")]
pub struct ListenError {
    pub listen: String,
    pub source: io::Error,
}

impl ApiListener {
    /// A stale Unix socket without a listener is replaced.
    pub fn open(listen: &Listen) -> Result<Self, ListenError> {
        Self::try_open(listen).map_err(|source| ListenError { listen: listen.to_string(), source })
    }

    fn try_open(listen: &Listen) -> io::Result<Self> {
        Ok(match listen {
            Listen::Unix(path) => {
                let socket = Socket::Unix(unix_socket::listen(path)?);
                Self { socket, address: listen.clone() }
            }
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = Listen::Tcp(listener.local_addr()?);
                Self { socket: Socket::Tcp(listener), address }
            }
        })
    }

    /// Address with its actual port.
    pub const fn address(&self) -> &Listen {
        &self.address
    }
}
