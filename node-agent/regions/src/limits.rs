//! All bounds of the library, each with its reason.

use std::time::Duration;

/// Regions of one process. The request with all of them is shorter than a line of the agent's socket, 64 KiB,
/// even if each byte of a name is escaped. Others are counted in one region, [`OTHER`].
pub const REGIONS: usize = 128;

/// Names of a process that are found at once: a region may have several that are sent alike. The text of
/// further ones is made anew for each thread.
pub const GIVEN_NAMES: usize = 2 * REGIONS;

/// Bytes of a name; longer ones are cut. Kernels of Kokkos have the names of C++ types.
pub const NAME_BYTES: usize = 128;

/// Regions that a thread is in at once. Beyond, entries are not counted, but their ends match.
pub const DEPTH: usize = 64;

/// Names that a thread keeps, those of regions and others, in a table of twice as many places. Further names
/// are counted in [`OTHER`] without a look-up.
pub const THREAD_NAMES: usize = 256;

/// Name of the region in which entries beyond [`REGIONS`] are counted.
pub const OTHER: &str = "(other)";

/// Name of the region whose entries are ends without a beginning.
pub const UNMATCHED: &str = "(unmatched ends)";

pub const UNNAMED: &str = "(unnamed)";

/// How often sums are sent.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Longest interval while the agent is away or refuses requests.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(30);

/// How long sending to the agent, and its answer, may take.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// How long the end of the process waits for the last sums to be sent.
pub const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// Pause before a request is repeated that was refused since too many processes ask at once.
pub const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub const STACK_BYTES: usize = 256 * 1024;
