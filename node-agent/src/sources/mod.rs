//! Sources: something that is read in one go, and gives one [`Reading`].

pub mod agent_self;
mod factory;
pub mod layout;
mod number;
pub mod perf;
mod process_accounts;
mod process_files;
pub mod process_sum;
mod read_buffer;
pub mod reading;
pub mod summed_file;
pub mod text_file;

pub use agent_self::AgentSelfSource;
pub use factory::{Opened, SourceFactory, Target, online_cpus};
pub use layout::{Slot, Wanted};
pub use perf::PerfSource;
pub use process_sum::ProcessSumSource;
pub use read_buffer::ReadBuffer;
pub use reading::Reading;
pub use summed_file::{Descendants, ScanResult, SummedFileSource};
pub use text_file::{OpenError, Outcome, TextFileSource};

/// A source of any kind.
#[derive(Debug)]
pub enum Source {
    /// A kernel file.
    File(TextFileSource),
    /// The same file of several cgroups.
    Summed(SummedFileSource),
    /// perf events.
    Perf(PerfSource),
    /// A tree of processes.
    Processes(ProcessSumSource),
    /// The agent itself.
    Own(AgentSelfSource),
    /// What a user gives: there is nothing to read.
    UserSupplied,
}

impl Source {
    /// Makes sure that `text` has room for what it reads, so that [`Source::read`] does not allocate.
    pub(crate) fn reserve(&self, text: &mut ReadBuffer) {
        match self {
            Self::File(file) => file.reserve(text),
            Self::Summed(summed) => summed.reserve(text),
            Self::Perf(_) | Self::Processes(_) | Self::Own(_) | Self::UserSupplied => {}
        }
    }

    /// Reads it once; if it is text, into `text`. Values that are not there are absent in `reading`, which has a place for
    /// each slot.
    pub fn read(&mut self, text: &mut ReadBuffer, reading: &mut Reading) -> Outcome {
        match self {
            Self::File(file) => file.read(text, reading),
            Self::Summed(summed) => summed.read(text, reading),
            Self::Perf(perf) => perf.read(reading),
            Self::Processes(processes) => processes.read(reading),
            Self::Own(own) => own.read(reading),
            Self::UserSupplied => Outcome::Read,
        }
    }

    /// Whether it knows what cannot be read again, so that it is not to be opened anew while it lasts: what perf events have
    /// counted, what processes and cgroups had used that have ended, what a user gave.
    pub const fn is_lasting(&self) -> bool {
        !matches!(self, Self::File(_) | Self::Own(_))
    }

    /// What the values of a reading are.
    pub fn slots(&self) -> &[Slot] {
        match self {
            Self::File(file) => file.slots(),
            Self::Summed(summed) => summed.slots(),
            Self::Perf(perf) => perf.slots(),
            Self::Processes(processes) => processes.slots(),
            Self::Own(own) => own.slots(),
            Self::UserSupplied => &[],
        }
    }
}
