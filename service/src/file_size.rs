//! The limit of the size of files that a process may write (RLIMIT_FSIZE). A file that reaches it is treated
//! like a full disk.

/// The signal of a write beyond the limit. It would end the process; caught, the write fails instead.
pub const SIGNAL: i32 = rustix::process::Signal::XFSZ.as_raw();

/// The remedy, behind the text of an error.
pub const FILE_SIZE_REMEDY: &str = "raise the limit of file sizes (`LimitFSIZE` of the service, `ulimit -f`)";
