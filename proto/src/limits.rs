//! All bounds of the protocol, each with its reason.
//!
//! Input from another machine is checked against these before memory is allocated for it.

/// Bytes of one frame, and so of one ZeroMQ message. A batch of [`BATCH_VALUES`] incompressible values takes
/// 0.6 MiB.
pub const FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of one control message (dictionary, acknowledgement, refusal) in either direction.
pub const MESSAGE_BYTES: usize = 1024 * 1024;

/// TCP keep-alive: seconds of silence before the first probe, seconds between probes, and the number of
/// probes before a connection is closed: 35 s for a machine without power.
pub const KEEPALIVE: (i32, i32, i32) = (20, 5, 3);

/// Values that the sampler collects before it flushes a batch early: 512 KiB of memory.
pub const BATCH_VALUES: usize = 64 * 1024;

/// Values that one frame may decode to: 8 MiB of memory. Columns of zeros take almost no bytes on the wire,
/// so that the size of a frame alone does not bound this memory.
pub const FRAME_VALUES: usize = 1024 * 1024;

/// Ticks in one block. A source at 100 µs fills this in 6.5 s, longer than any reasonable flush interval.
pub const BLOCK_TICKS: usize = 64 * 1024;

/// Samples in one window: the longest window of samples every 100 µs.
pub const WINDOW_SAMPLES: u64 = 36_000_000;

/// Columns in one block: the per-CPU times of a node with 400 CPUs.
pub const BLOCK_COLUMNS: usize = 4096;

/// Blocks in one frame: as many as a batch has rows, since a source whose lines appear and disappear makes a
/// block of each row.
pub const FRAME_BLOCKS: usize = BLOCK_TICKS;

/// Dictionary entries, ledger entries or events in one section of a frame.
pub const SECTION_ENTRIES: usize = 64 * 1024;

/// Bytes of the demangled name of a function. Names of C++ templates may be far longer.
pub const FUNCTION_NAME_BYTES: usize = 1024;

/// Counts of one interval of call stacks: as many as fit a section whose integers count at their full width.
pub const STACK_COUNTS: usize = 8 * 1024;

/// Counts of all intervals of call stacks in a frame: 1 MiB of memory.
pub const FRAME_STACK_COUNTS: usize = 64 * 1024;

/// Functions that an agent announces for one job, and in a session. Their names take at most 32 MiB of a
/// collector's memory for the dictionary of a session, in practice 1 MiB.
pub const JOB_FUNCTIONS: usize = 8 * 1024;
/// See [`JOB_FUNCTIONS`].
pub const SESSION_FUNCTIONS: usize = 32 * 1024;

/// Stacks that an agent announces for one job. Beyond them, samples belong to the nearest stack that is
/// known.
pub const JOB_STACKS: usize = 32 * 1024;
/// Stacks that an agent announces in a session.
pub const SESSION_STACKS: usize = 128 * 1024;

/// Bytes of a metric's name. The longest in the catalogue has 45; tracepoints may be longer.
pub const NAME_BYTES: usize = 160;

/// Bytes of the name of a node, job, cluster or user.
pub const IDENTIFIER_BYTES: usize = 256;

pub const LABELS: usize = 16;

pub const LABEL_KEY_BYTES: usize = 64;

/// Bytes of a label's value: a device-mapper name has at most 127.
pub const LABEL_VALUE_BYTES: usize = 256;

/// Bytes of the role of a device with the names of the devices below it.
pub const ROLE_BYTES: usize = 1024;

/// Bytes of one control line that is forwarded by a collector. The answer to `set` with a glob over the whole
/// catalogue, where every metric is unavailable for a different reason, takes some 60 KiB.
pub const CONTROL_LINE_BYTES: usize = 256 * 1024;

/// Bytes of a free text, such as the reason of a refusal.
pub const TEXT_BYTES: usize = 1024;

/// Bytes of the command line of a run. With the other texts of a run, a page of [`QUERY_JOBS`] jobs fits
/// [`READ_FRAME_BYTES`].
pub const RUN_COMMAND_BYTES: usize = 4096;

/// Bytes of the chosen environment variables of a run, with their names.
pub const RUN_ENVIRONMENT_BYTES: usize = 2048;

/// Bytes of the working directory of a run, and of the name of its host.
pub const RUN_DIRECTORY_BYTES: usize = 1024;

/// Bytes of a query with its newline: the ranges of the ids of all series of a job with thousands of nodes.
pub const QUERY_BYTES: usize = 1024 * 1024;

/// Series of one query of samples. More are read with several queries.
pub const QUERY_SERIES: u64 = 100_000;

/// Ranges of ids in one query, each of at most 42 bytes, so that it is not longer than [`QUERY_BYTES`].
pub const QUERY_RANGES: usize = 20_000;

/// Jobs of one query, which have the names of all their nodes. More are read page by page.
pub const QUERY_JOBS: u32 = 100;

pub const QUERY_LOSSES: u32 = 10_000;

pub const QUERY_NOTICES: u32 = 10_000;

pub const QUERY_GROUPS: u32 = 10_000;

pub const QUERY_METRICS: usize = 100;

/// Bytes of a frame with rows, without its length. A job with the names of 16,000 nodes has half of it.
pub const READ_FRAME_BYTES: usize = 1024 * 1024;

/// Bytes that the content of a frame may claim. Integers count at their full width, eight times their encoded
/// length.
pub const READ_FRAME_MEMORY_BYTES: usize = 8 * READ_FRAME_BYTES;
