//! The body of an answer, which is written by a thread that reads the store and sent as the client reads.

use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use polymeter_store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use crate::limits;
use crate::problem::Problem;

/// The reason for which an answer cannot be completed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is refused.
    Problem(Problem),
    /// The store failed.
    Store(StoreError),
    /// The client is gone, or reads nothing.
    Gone,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Failure {
    /// The problem of an answer that this program cannot produce.
    pub(crate) fn internal() -> Self {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "cannot produce the answer").into()
    }
}

/// The writing end of a body. Writes wait while the client does not read.
#[derive(Debug)]
pub(crate) struct Chunks {
    buffer: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
    /// Reports the first chunk: from then on the status of the answer is fixed.
    started: Option<oneshot::Sender<()>>,
    runtime: Handle,
    /// Closes the connection.
    close: Arc<Notify>,
}

/// The reading end of a body.
#[derive(Debug)]
pub(crate) struct ChunkReceiver {
    pub(crate) chunks: mpsc::Receiver<Bytes>,
    pub(crate) started: oneshot::Receiver<()>,
}

impl Chunks {
    /// Returns both ends of a body. `runtime` must be that of the reading end. `close` is notified if the client does not read.
    pub(crate) fn new(runtime: Handle, close: Arc<Notify>) -> (Self, ChunkReceiver) {
        let (sender, chunks) = mpsc::channel(limits::CHUNKS);
        let (start, started) = oneshot::channel();
        let buffer = Vec::new();
        (Self { buffer, sender, started: Some(start), runtime, close }, ChunkReceiver { chunks, started })
    }

    /// Writes bytes. Must not be called by a thread of the runtime.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < limits::CHUNK_BYTES { Ok(()) } else { self.flush() }
    }

    /// Sends what was written.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if let Some(started) = self.started.take() {
            started.send(()).map_err(|()| Failure::Gone)?;
        }
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        match self.runtime.block_on(timeout(limits::STALL_TIMEOUT, self.sender.send(chunk))) {
            Ok(sent) => sent.map_err(|_gone| Failure::Gone),
            Err(_) => {
                self.close.notify_one();
                Err(Failure::Gone)
            }
        }
    }
}
