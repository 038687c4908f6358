//! Thread of a session.

use std::io;

use tracing::{debug, info};

use super::query_session::{Session, SessionEnd};
use super::query_sessions::ReadPermit;
use super::stream::ClientStream;
use crate::thread::spawn;

/// Serves a session on a thread of its own. `received` was read from the connection before.
pub(crate) fn serve(permit: ReadPermit, stream: ClientStream, received: Vec<u8>) -> io::Result<()> {
    stream.prepare(permit.shared().timeouts.stall)?;
    let input = stream.try_clone()?;
    if !permit.connect(stream.try_clone()?) {
        return Ok(());
    }
    // It is not joined: a session ends with its connection.
    drop(spawn("reader", move || {
        let uid = permit.uid;
        let end = Session::new(permit, stream).serve(input, received);
        if end == SessionEnd::Disconnected {
            debug!(uid, "reading ended");
        } else {
            info!(uid, reason = %end, "reading ended");
        }
    })?);
    Ok(())
}
