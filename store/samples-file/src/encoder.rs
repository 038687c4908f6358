//! Thread that writes a file while its samples are read.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use polymeter_store::reader::SampleWindow;

use crate::rows::{Rows, SeriesTexts};
use crate::writer::{RowWriter, WriteError};

/// Rows that are handed over together: 4 MB. In Parquet they are a row group.
const ROWS: usize = 250_000;

const WAITING: usize = 1;

#[derive(Debug)]
pub struct Encoder {
    parts: SyncSender<Rows>,
    thread: JoinHandle<Result<(), WriteError>>,
    rows: Rows,
    written: u64,
}

impl Encoder {
    pub fn start(writer: Box<dyn RowWriter>) -> Result<Self, WriteError> {
        let (parts, received) = sync_channel(WAITING);
        let name = "encoder".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || write_all(writer, &received))?;
        Ok(Self { parts, thread, rows: Rows::default(), written: 0 })
    }

    /// Adds a sample, or a window of some. Successive rows of a series must share its texts. Returns false if the file cannot
    /// be written: the caller stops, and [`Encoder::finish`] returns the error.
    #[must_use]
    pub fn add(
        &mut self,
        series: &Arc<SeriesTexts>,
        time_us: i64,
        value: f64,
        window: Option<SampleWindow>,
    ) -> bool {
        self.rows.add(series, time_us, value, window);
        self.rows.len() < ROWS || self.hand_over()
    }

    pub const fn written(&self) -> u64 {
        self.written
    }

    fn hand_over(&mut self) -> bool {
        let rows = mem::take(&mut self.rows);
        self.written += rows.len() as u64;
        rows.is_empty() || self.parts.send(rows).is_ok()
    }

    /// Writes the rest and completes the file. Returns the number of samples in it, or the error that made
    /// [`Encoder::add`] fail.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        // If the thread has ended, its error says why.
        self.hand_over();
        let Self { parts, thread, written, .. } = self;
        drop(parts);
        thread.join().unwrap_or(Err(WriteError::Thread))?;
        Ok(written)
    }
}

fn write_all(mut writer: Box<dyn RowWriter>, parts: &Receiver<Rows>) -> Result<(), WriteError> {
    for rows in parts {
        writer.write(&rows)?;
    }
    writer.finish()
}
