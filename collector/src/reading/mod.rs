//! Reading for users: reports of the jobs that they may see, without access to the database.
//!
//! ```text
//! control (listeners) -- an authenticated connection --> sessions -- a thread each --> guard --> store
//! ```
//!
//! A session has its own thread and its own read-only connection to the store. Rows go from the database to
//! the socket block by block: while the client does not read, the database waits. Nothing here is shared with
//! the writers.

mod query_lines;
mod query_session;
mod query_sessions;
mod serve;
mod stream;

pub(crate) use self::query_sessions::ReadSessions;
pub(crate) use self::serve::serve;
pub(crate) use self::stream::ClientStream;
