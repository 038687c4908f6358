//! Sources: the code that opens and reads the sources of metrics, one file or directory for each kind.
//!
//! A kind is registered in [`registry::KINDS`]. Parsing is pure; opening and reading are separate from it.

pub(crate) mod agent_self;
mod blocking_file;
mod custom_source;
mod filesystem;
mod kind;
pub mod layout;
mod number;
mod outcome;
mod path_pattern;
pub mod perf;
mod perf_kind;
mod process_accounts;
mod process_files;
mod process_kinds;
pub(crate) mod process_sum;
mod read_buffer;
pub mod reader_thread;
mod reading;
pub mod registry;
mod slot;
mod source;
mod summed_file;
mod target;
mod text_file;
mod text_file_kind;
mod user_supplied;

pub use custom_source::CustomSource;
pub use kind::{Lane, OpenRequest, Opening, SourceFactory, SourceKind};
pub use layout::ParseError;
pub use outcome::Outcome;
pub use perf::PerfSource;
pub use read_buffer::ReadBuffer;
pub use reading::Reading;
pub use registry::{KINDS, online_cpus};
pub use slot::{Slot, Unavailable, Wanted};
pub use source::Source;
pub use summed_file::{Descendants, ScanResult, SummedFileSource};
pub use target::{Opened, Target};
pub use text_file::{OpenError, TextFileSource};
