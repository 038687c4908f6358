//! Where the control socket is opened, by one agent at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The control socket, and the right to it.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The socket.
    pub(crate) socket: UnixListener,
    /// Held for as long as the socket is served: of two agents that start at once, the second finds it taken.
    pub(crate) lock: File,
}

impl Listener {
    /// The socket for tokio, and the right to it.
    ///
    /// # Errors
    /// Outside of a runtime with I/O, or when epoll does not take it.
    pub(crate) fn wait_on(self) -> io::Result<(tokio::net::UnixListener, File)> {
        Ok((tokio::net::UnixListener::from_std(self.socket)?, self.lock))
    }

    /// Opens the socket at `path`. A socket there that nobody listens on, left by an agent that was killed, is replaced.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            // Whatever the mask of whoever starts the agent: nobody else may put a socket there.
            DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another agent already uses it");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(beside(path, "lock"))?;
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
        // Everybody may knock; the kernel says who it is.
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, lock })
    }
}

/// The file beside a control socket that serves a purpose of its own: `agent.sock.lock`.
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
    fn one_agent_listens_and_a_socket_that_was_left_is_replaced() {
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
