//! Sources: objects that are read in one operation, which gives one [`Reading`].

use std::sync::Arc;

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::perf::PerfSource;
use super::read_buffer::ReadBuffer;
use super::reader_thread::ThreadedSource;
use super::reading::Reading;
use super::refresh::RefreshInterval;
use super::slot::Slot;
use super::summed_file::SummedFileSource;
use super::text_file::TextFileSource;
use super::unknown_lines::UnknownLinesFound;

/// An open source. The kinds with the shortest periods have variants, so that a read needs no dynamic
/// dispatch.
#[derive(Debug)]
pub enum Source {
    TextFile(TextFileSource),
    /// The same file of several cgroups.
    SummedFile(SummedFileSource),
    Perf(PerfSource),
    Custom(Box<dyn CustomSource>),
    /// A source of the slow lane: it may block, on a thread of its own.
    Threaded(ThreadedSource),
}

impl Source {
    /// Makes room in `buffer` for its text, so that [`Source::read`] does not allocate.
    pub(crate) fn reserve(&self, buffer: &mut ReadBuffer) {
        match self {
            Self::TextFile(file) => file.reserve(buffer),
            Self::SummedFile(summed) => summed.reserve(buffer),
            Self::Perf(_) | Self::Custom(_) | Self::Threaded(_) => {}
        }
    }

    /// Reads it once; text goes into `buffer`. Missing values are absent in `reading`, which has a place for
    /// each slot. A source of the slow lane has no values here: only its thread reads it.
    pub fn read(&mut self, buffer: &mut ReadBuffer, reading: &mut Reading) -> Outcome {
        match self {
            Self::TextFile(file) => file.read(buffer, reading),
            Self::SummedFile(summed) => summed.read(buffer, reading),
            Self::Perf(perf) => perf.read(reading),
            Self::Custom(source) => source.read(reading),
            Self::Threaded(_) => {
                reading.clear();
                Outcome::Read
            }
        }
    }

    /// True if its state cannot be read again, so that it is not opened anew: counts of perf events, use of
    /// ended processes and removed cgroups.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::TextFile(_) => false,
            Self::Threaded(source) => source.is_lasting(),
            Self::SummedFile(_) | Self::Perf(_) => true,
            Self::Custom(source) => source.is_lasting(),
        }
    }

    pub fn refresh_interval(&self) -> RefreshInterval {
        match self {
            Self::TextFile(_) | Self::SummedFile(_) | Self::Perf(_) => RefreshInterval::default(),
            Self::Custom(source) => RefreshInterval::new(source.refresh_interval()),
            Self::Threaded(source) => source.refresh_interval().clone(),
        }
    }

    pub fn perf_descriptors(&self) -> usize {
        match self {
            Self::Perf(perf) => perf.descriptors(),
            Self::TextFile(_) | Self::SummedFile(_) | Self::Custom(_) | Self::Threaded(_) => 0,
        }
    }

    /// Lines of its text that have no series.
    pub fn unknown_lines(&self) -> UnknownLinesFound {
        match self {
            Self::TextFile(file) => UnknownLinesFound::new(file.unknown_lines().clone()),
            Self::SummedFile(_) | Self::Perf(_) => UnknownLinesFound::default(),
            Self::Custom(source) => UnknownLinesFound::new(source.unknown_lines()),
            Self::Threaded(source) => source.unknown_lines().clone(),
        }
    }

    pub fn shared_slots(&self) -> Arc<[Slot]> {
        match self {
            Self::Threaded(source) => Arc::clone(source.shared_slots()),
            Self::TextFile(_) | Self::SummedFile(_) | Self::Perf(_) | Self::Custom(_) => self.slots().into(),
        }
    }

    pub fn slots(&self) -> &[Slot] {
        match self {
            Self::TextFile(file) => file.slots(),
            Self::SummedFile(summed) => summed.slots(),
            Self::Perf(perf) => perf.slots(),
            Self::Custom(source) => source.slots(),
            Self::Threaded(source) => source.slots(),
        }
    }
}
