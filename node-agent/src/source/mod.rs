//! Sources: something that is read in one go, and gives one [`Reading`].

mod accounts;
pub mod file;
pub mod layout;
mod number;
pub mod own;
pub mod perf;
mod process;
pub mod processes;
pub mod reading;
pub mod summed;
mod text;

pub use file::{FileSource, OpenError, Outcome};
pub use layout::{Slot, Wanted};
pub use own::OwnSource;
pub use perf::PerfSource;
pub use processes::ProcessesSource;
pub use reading::Reading;
pub use summed::{Descendants, Looked, SummedSource};
pub use text::Text;

/// A source of any kind.
#[derive(Debug)]
pub enum Source {
    /// A kernel file.
    File(FileSource),
    /// The same file of several cgroups.
    Summed(SummedSource),
    /// perf events.
    Perf(PerfSource),
    /// A tree of processes.
    Processes(ProcessesSource),
    /// The agent itself.
    Own(OwnSource),
    /// What a user gives: there is nothing to read.
    Given,
}

impl Source {
    /// Makes sure that `text` has room for what it reads, so that [`Source::read`] does not allocate.
    pub(crate) fn reserve(&self, text: &mut Text) {
        match self {
            Self::File(file) => file.reserve(text),
            Self::Summed(summed) => summed.reserve(text),
            Self::Perf(_) | Self::Processes(_) | Self::Own(_) | Self::Given => {}
        }
    }

    /// Reads it once; if it is text, into `text`. Values that are not there are absent in `reading`, which has a place for
    /// each slot.
    pub fn read(&mut self, text: &mut Text, reading: &mut Reading) -> Outcome {
        match self {
            Self::File(file) => file.read(text, reading),
            Self::Summed(summed) => summed.read(text, reading),
            Self::Perf(perf) => perf.read(reading),
            Self::Processes(processes) => processes.read(reading),
            Self::Own(own) => own.read(reading),
            Self::Given => Outcome::Read,
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
            Self::Given => &[],
        }
    }
}
