//! Body of an answer, which is written by a thread that reads the store and sent as the client reads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use polymeter_store::StoreError;
use tokio::sync::{Notify, mpsc, oneshot};

use super::compression::ChunkEncoder;
use super::format::Format;
use super::problem::Problem;
use crate::limits;

#[derive(Debug)]
pub(crate) enum Failure {
    Problem(Problem),
    Store(StoreError),
    /// The client is gone, or reads nothing.
    Gone,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(_: serde_json::Error) -> Self {
        Problem::internal().into()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

pub(crate) fn json_response(text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Writing end of a body. Writes wait while the client does not read.
///
/// The thread waits by the means of the standard library: a reader of PostgreSQL passes its rows on within an
/// event loop of its own, in which no other one can wait.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) format: Format,
    buffer: Vec<u8>,
    /// None for an answer that is sent as it is.
    encoder: Option<ChunkEncoder>,
    sender: mpsc::Sender<Bytes>,
    /// A message for each chunk that may be sent.
    room: Receiver<()>,
    /// Reports the first chunk: from then on the status of the answer is fixed.
    started: Option<oneshot::Sender<()>>,
    close: Arc<Notify>,
}

#[derive(Debug)]
pub(crate) struct ChunkReceiver {
    chunks: mpsc::Receiver<Bytes>,
    room: SyncSender<()>,
    pub(crate) started: oneshot::Receiver<()>,
}

impl ChunkReceiver {
    /// None after the last one.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.recv().await?;
        // There is room for as many messages as for chunks. If the writer has ended, it needs none.
        self.room.try_send(()).ok();
        Some(chunk)
    }
}

impl Chunks {
    /// `close` is notified if the client does not read.
    pub(crate) fn new(
        format: Format,
        encoder: Option<ChunkEncoder>,
        close: Arc<Notify>,
    ) -> (Self, ChunkReceiver) {
        let (sender, chunks) = mpsc::channel(limits::CHUNKS);
        let (give, room) = sync_channel(limits::CHUNKS);
        // The queue is new, and has room for all of them.
        (0..limits::CHUNKS).for_each(|_| give.try_send(()).unwrap_or_default());
        let (start, started) = oneshot::channel();
        let receiver = ChunkReceiver { chunks, room: give, started };
        let buffer = Vec::new();
        (Self { format, buffer, encoder, sender, room, started: Some(start), close }, receiver)
    }

    /// Waits: no thread of the runtime may call this.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < limits::CHUNK_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let chunk = std::mem::take(&mut self.buffer);
        match &mut self.encoder {
            None => self.send(chunk),
            Some(encoder) => {
                let chunk = encoder.encode(&chunk);
                self.send(chunk)
            }
        }
    }

    /// Sends what is left.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        match self.encoder.take() {
            None => Ok(()),
            Some(encoder) => self.send(encoder.finish()),
        }
    }

    fn send(&mut self, chunk: Vec<u8>) -> Result<(), Failure> {
        if let Some(started) = self.started.take() {
            started.send(()).map_err(|()| Failure::Gone)?;
        }
        if chunk.is_empty() {
            return Ok(());
        }
        match self.room.recv_timeout(limits::STALL_TIMEOUT) {
            // There is room, thus this fails only without a reader.
            Ok(()) => self.sender.try_send(chunk.into()).map_err(|_gone| Failure::Gone),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Gone),
            Err(RecvTimeoutError::Timeout) => {
                self.close.notify_one();
                Err(Failure::Gone)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    /// Writes chunks as a reader of PostgreSQL passes rows on: within an event loop of its own.
    fn write_within_a_runtime(mut writer: Chunks, chunks: usize) -> Result<(), Failure> {
        let own = Builder::new_current_thread().enable_all().build().unwrap();
        own.block_on(async move {
            for number in 0..chunks {
                writer.write(&vec![u8::try_from(number % 256).unwrap(); limits::CHUNK_BYTES])?;
            }
            writer.finish()
        })
    }

    #[test]
    fn a_slow_client_receives_all_from_a_reader_with_an_event_loop_of_its_own() {
        const CHUNKS: usize = 5 * limits::CHUNKS;
        let (writer, mut receiver) = Chunks::new(Format::Json, None, Arc::default());
        let work = thread::spawn(move || write_within_a_runtime(writer, CHUNKS));
        let runtime = Builder::new_current_thread().build().unwrap();
        let received = runtime.block_on(async {
            let mut received = Vec::new();
            while let Some(chunk) = receiver.next().await {
                received.extend(chunk);
            }
            received
        });
        work.join().unwrap().unwrap();
        assert_eq!(received.len(), CHUNKS * limits::CHUNK_BYTES);
        let is_in_order =
            |(number, chunk): (usize, &[u8])| chunk.iter().all(|byte| usize::from(*byte) == number % 256);
        assert!(received.chunks(limits::CHUNK_BYTES).enumerate().all(is_in_order));
    }

    #[test]
    fn a_writer_that_waits_ends_when_the_client_is_gone() {
        let (writer, receiver) = Chunks::new(Format::Json, None, Arc::default());
        let work = thread::spawn(move || write_within_a_runtime(writer, 2 * limits::CHUNKS));
        // The writer has filled the queue, or is about to: it ends in either case.
        drop(receiver);
        assert!(matches!(work.join().unwrap(), Err(Failure::Gone)));
    }
}
