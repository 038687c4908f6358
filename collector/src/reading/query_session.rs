//! One session: queries of a client, and their rows.

use std::convert::Infallible;
use std::io::{self, Write};
use std::ops::ControlFlow;

use polymeter_proto::control::{CollectorAnswer, ReadAccess, ReadSession, Refusal};
use polymeter_proto::limits::QUERY_BYTES;
use polymeter_proto::read::{Frame, FrameTooLong, Query, ReadError};
use polymeter_service::log::chain;
use polymeter_store::StoreError;
use polymeter_store::reader::{Access, GuardedReader, Read, Reader};
use tracing::warn;

use super::query_lines::{NoLine, QueryLines, is_stalled};
use super::query_sessions::ReadPermit;
use super::stream::ClientStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error("the client disconnected")]
    Disconnected,
    /// The client did not read its rows.
    #[error("the client did not read its rows in time")]
    Stalled,
    #[error("the client sent no complete query in time")]
    Idle,
    #[error("the client sent a query of more than {QUERY_BYTES} bytes")]
    QueryTooLong,
    #[error(transparent)]
    FrameTooLong(#[from] FrameTooLong),
    #[error("the store failed")]
    Store,
}

impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        if is_stalled(&error) { Self::Stalled } else { Self::Disconnected }
    }
}

impl From<NoLine> for SessionEnd {
    fn from(reason: NoLine) -> Self {
        match reason {
            NoLine::Closed => Self::Disconnected,
            NoLine::TimedOut => Self::Idle,
            NoLine::TooLong => Self::QueryTooLong,
        }
    }
}

#[derive(Debug)]
pub(super) struct Session {
    permit: ReadPermit,
    output: ClientStream,
    /// Encoded; the memory is reused.
    frame: Vec<u8>,
}

impl Session {
    pub(super) const fn new(permit: ReadPermit, output: ClientStream) -> Self {
        Self { permit, output, frame: Vec::new() }
    }

    /// Works until the session ends.
    pub(super) fn serve(mut self, input: ClientStream, received: Vec<u8>) -> SessionEnd {
        let Err(end) = self.try_serve(input, received);
        end
    }

    fn try_serve(&mut self, input: ClientStream, received: Vec<u8>) -> Result<Infallible, SessionEnd> {
        let access = self.permit.shared().roles.access(self.permit.uid);
        let reader = match Reader::open(&self.permit.shared().store) {
            Ok(reader) => reader,
            Err(error) => {
                let refusal = Refusal::new("store", None, &store_message(&error, &access));
                self.output.write_all(&CollectorAnswer::Refused(refusal).to_line())?;
                return Err(SessionEnd::Store);
            }
        };
        self.permit.set_cancel(reader.canceller());
        let mut guard = GuardedReader::new(reader, access.clone());
        let seen = if access.sees_all() { ReadAccess::All } else { ReadAccess::Own };
        let session = ReadSession { version: ReadSession::VERSION, access: seen };
        self.output.write_all(&CollectorAnswer::Reading(session).to_line())?;
        let shared = self.permit.shared();
        let mut lines = QueryLines::new(input, received, shared.clock, shared.timeouts.idle);
        loop {
            let line = match lines.next() {
                Ok(line) => line,
                Err(NoLine::TooLong) => {
                    let message = format!("the query is longer than {QUERY_BYTES} bytes");
                    self.send(&Frame::Error(ReadError::new("too_long", &message)))?;
                    return Err(SessionEnd::QueryTooLong);
                }
                Err(reason) => return Err(reason.into()),
            };
            self.permit.begin_query();
            self.answer(&mut guard, &access, &line)?;
            self.permit.end_query();
        }
    }

    /// Answers one query. A refused query leaves the session open.
    fn answer(&mut self, guard: &mut dyn Read, access: &Access, line: &[u8]) -> Result<(), SessionEnd> {
        let query = match Query::parse(line) {
            Ok(query) => query,
            Err(refusal) => return self.send(&Frame::Error(refusal.into())),
        };
        let mut ended = None;
        let read = guard.read(&query, &mut |block| match self.send(&Frame::Rows(block)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(end) => {
                ended = Some(end);
                ControlFlow::Break(())
            }
        });
        let error = match (ended, read) {
            (None, Ok(())) => return self.send(&Frame::End),
            (Some(SessionEnd::FrameTooLong(error)), _) => ReadError::new("too_long", &error.to_string()),
            (Some(end), _) => return Err(end),
            (None, Err(error)) => ReadError::new("store", &store_message(&error, access)),
        };
        self.send(&Frame::Error(error))?;
        // The connection to the store may be in the middle of an answer.
        Err(ended.unwrap_or(SessionEnd::Store))
    }

    fn send(&mut self, frame: &Frame) -> Result<(), SessionEnd> {
        frame.encode(&mut self.frame)?;
        Ok(self.output.write_all(&self.frame)?)
    }
}

/// Only administrators see the cause of an error, which may contain the address of the database.
fn store_message(error: &StoreError, access: &Access) -> String {
    let cause = chain(error);
    warn!(error = %cause, "cannot read the store for a user");
    match access {
        Access::All => format!("the collector cannot read its store: {cause}"),
        Access::Support | Access::Jobs(_) => {
            "the collector cannot read its store; try again in a moment, or contact the administrator"
                .to_owned()
        }
    }
}
