//! Every bound of the protocol, by name, with its reason.
//!
//! What comes from another machine is measured against these before memory is spent on it.

/// Bytes of one frame, and so of one ZeroMQ message. A batch of [`BATCH_VALUES`] incompressible values needs 0.6 MiB.
pub const FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of one control message (dictionary, acknowledgement, refusal) in either direction.
pub const MESSAGE_BYTES: usize = 1024 * 1024;

/// Values that the sampler collects before it hands a batch on early: 512 KiB of memory.
pub const BATCH_VALUES: usize = 64 * 1024;

/// Values that one frame may decode to. Columns of zeros cost next to nothing on the wire, so that the size of a frame
/// alone does not bound the memory that it asks for: 8 MiB.
pub const FRAME_VALUES: usize = 1024 * 1024;

/// Ticks in one block. A source at 100 µs fills this in 6.5 s, long after every sane flush.
pub const BLOCK_TICKS: usize = 64 * 1024;

/// Columns in one block: the per-CPU times of a node with 400 CPUs.
pub const BLOCK_COLUMNS: usize = 4096;

/// Blocks in one frame: as many as a batch has rows, for a source whose lines come and go makes a block of each row.
pub const FRAME_BLOCKS: usize = BLOCK_TICKS;

/// Dictionary entries, ledger entries or events in one section of a frame.
pub const SECTION_ENTRIES: usize = 64 * 1024;

/// Bytes of a metric's name. The longest in the catalogue has 45; tracepoints may be longer.
pub const NAME_BYTES: usize = 160;

/// Bytes of the name of a node, job, cluster or user.
pub const IDENTIFIER_BYTES: usize = 256;

/// Labels of one series.
pub const LABELS: usize = 16;

/// Bytes of a label's key.
pub const LABEL_KEY_BYTES: usize = 64;

/// Bytes of a label's value: a device-mapper name has at most 127.
pub const LABEL_VALUE_BYTES: usize = 256;

/// Bytes of one line of the control socket's language on its way through a collector. The answer to `set` with a glob over
/// the whole catalogue, where every metric is missing for a reason of its own, has some 60 KiB.
pub const CONTROL_LINE_BYTES: usize = 256 * 1024;

/// Bytes of a free text: the reason of a refusal, the text of a mark.
pub const TEXT_BYTES: usize = 1024;
