//! Limit of the size of files that a process may write (RLIMIT_FSIZE). A file that reaches it is treated
//! like a full disk.

/// Signal of a write beyond the limit. It would end the process; when it is caught, the write fails instead.
pub const SIGNAL: i32 = rustix::process::Signal::XFSZ.as_raw();

/// Remedy to append to an error's text.
pub const FILE_SIZE_REMEDY: &str = "raise the limit of file sizes (`LimitFSIZE` of the service, `ulimit -f`)";
