//! Opening of the control socket, by one agent at a time.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use polymeter_service::place;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    /// Held for as long as the socket is served: of two agents that start at once, the second finds it taken.
    pub(crate) lock: File,
}

impl Listener {
    /// Socket for tokio, and the lock. Fails outside of a runtime with I/O.
    pub(crate) fn wait_on(self) -> io::Result<(tokio::net::UnixListener, File)> {
        Ok((tokio::net::UnixListener::from_std(self.socket)?, self.lock))
    }

    /// Opens the socket at `path`. Replaces a stale socket without a listener, which a killed agent leaves
    /// behind.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            // The mode is independent of the starter's umask: no other user may create a socket there.
            place::make_directory(directory, 0o755)?;
        }
        let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another agent already uses it");
        let lock = place::open_or_create(&beside(path, "lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(taken()),
            locked => locked?,
        }
        let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket {
            // An agent of another version may hold no lock.
            if UnixStream::connect(path).is_ok() {
                return Err(taken());
            }
            fs::remove_file(path)?;
        }
        let socket = UnixListener::bind(path)?;
        // Every user may connect; the kernel identifies the client.
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, lock })
    }
}

/// Path of a file beside a control socket for `purpose`: `agent.sock.lock`.
pub fn beside(socket: &Path, purpose: &str) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".");
    name.push(purpose);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_listens_and_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/agent.sock");
        let listener = Listener::open(&path).unwrap();
        assert_eq!(Listener::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(path.exists());
        let listener = Listener::open(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(listener);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no socket").unwrap();
        assert!(Listener::open(&path).is_err(), "what is no socket is left alone");
    }
}
