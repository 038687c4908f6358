//! Record of an ended thread: `struct taskstats` of `include/uapi/linux/taskstats.h`, version 9 of Linux 4.20
//! and later ones. Pure.
//!
//! Later versions append fields, so that a shorter record lacks the later ones. Only version 15 (Linux 6.14)
//! has two more numbers behind each delay; version 16 moved them to the end.

/// First version with all fields of [`Record`] up to the delays of thrashing.
const VERSION_MIN: u16 = 9;

/// Version that has the largest and the smallest delay behind each total.
const VERSION_WITH_PEAKS: u16 = 15;

/// First version with the process of a thread.
const VERSION_OF_TGID: u16 = 12;

/// Flag of the last thread of a process (`AGROUP` of `include/uapi/linux/acct.h`), from version 12 on.
const AGROUP: u8 = 0x20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) tid: u32,
    /// Process of the thread, if the kernel states it.
    pub(super) pid: Option<u32>,
    /// Process that started the thread's process.
    pub(super) parent: u32,
    /// True if it was the last thread of its process; `None` if the kernel does not state it.
    pub(super) is_last: Option<bool>,
    /// Listed in the order of [`QUANTITIES`]; `None` where the kernel lacks one.
    pub(super) values: [Option<u64>; QUANTITIES.len()],
}

/// A part of the record, after which version 15 has more numbers than others.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Delays of CPUs, block I/O and swap. They begin at 16; this is the number of delays before the
    /// quantity.
    First(usize),
    /// Fields behind these three delays.
    Middle,
    /// Fields behind the delays of reclaim, too.
    Thrashing,
    /// Fields behind the delays of thrashing.
    Compact,
    /// Fields behind the delays of compaction.
    Process,
}

impl Part {
    const fn delays(self) -> usize {
        match self {
            Self::First(before) => before,
            Self::Middle => 3,
            Self::Thrashing => 4,
            Self::Compact => 5,
            Self::Process => 6,
        }
    }
}

/// A quantity of the record: its name in the catalogue, its place in versions without peaks, the part that
/// contains the place, and the factor to its unit.
#[derive(Debug, Clone, Copy)]
pub(in crate::sources) struct Quantity {
    pub(in crate::sources) field: &'static str,
    offset: usize,
    part: Part,
    factor: u64,
}

const fn quantity(field: &'static str, offset: usize, part: Part, factor: u64) -> Quantity {
    Quantity { field, offset, part, factor }
}

const MICROSECONDS: u64 = 1_000;
const KIBIBYTES: u64 = 1_024;

/// Quantity that is a peak and no sum.
pub(super) const PEAK: &str = "memory_peak";

/// All quantities. The numbers of calls are left out: the kernel rounds them down to multiples of 1024
/// (`KB_MASK`, kernel/tsacct.c).
pub(in crate::sources) const QUANTITIES: [Quantity; 17] = [
    quantity("cpu_user", 152, Part::Middle, MICROSECONDS),
    quantity("cpu_system", 160, Part::Middle, MICROSECONDS),
    quantity("minor_faults", 168, Part::Middle, 1),
    quantity("major_faults", 176, Part::Middle, 1),
    quantity(PEAK, 200, Part::Middle, KIBIBYTES),
    quantity("rchar", 216, Part::Middle, 1),
    quantity("wchar", 224, Part::Middle, 1),
    quantity("read_bytes", 248, Part::Middle, 1),
    quantity("write_bytes", 256, Part::Middle, 1),
    quantity("voluntary_switches", 272, Part::Middle, 1),
    quantity("involuntary_switches", 280, Part::Middle, 1),
    quantity("cpu_delay", 24, Part::First(0), 1),
    quantity("block_io_delay", 40, Part::First(1), 1),
    quantity("swap_delay", 56, Part::First(2), 1),
    quantity("reclaim_delay", 320, Part::Middle, 1),
    quantity("thrashing_delay", 336, Part::Thrashing, 1),
    quantity("compact_delay", 360, Part::Compact, 1),
];

/// True if a quantity is a delay that the kernel accounts only if `kernel.task_delayacct` is 1. It always
/// accounts that of CPUs.
pub(in crate::sources) fn is_delay(field: &str) -> bool {
    field.ends_with("_delay") && field != "cpu_delay"
}

impl Record {
    /// Parses a record; `None` if it is too short or of a version before 9.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let version = u16::from_ne_bytes(array(bytes, 0)?);
        let peaks = if version == VERSION_WITH_PEAKS { 16 } else { 0 };
        let at = |offset: usize, part: Part| offset + peaks * part.delays();
        let u32_at = |offset, part| Some(u32::from_ne_bytes(array(bytes, at(offset, part))?));
        if version < VERSION_MIN {
            return None;
        }
        let flags = *bytes.get(8)?;
        let has_tgid = version >= VERSION_OF_TGID;
        Some(Self {
            tid: u32_at(128, Part::Middle)?,
            parent: u32_at(132, Part::Middle)?,
            pid: has_tgid.then(|| u32_at(368, Part::Process)).flatten(),
            is_last: has_tgid.then_some(flags & AGROUP != 0),
            values: QUANTITIES.map(|quantity| {
                let value = u64::from_ne_bytes(array(bytes, at(quantity.offset, quantity.part))?);
                // Version 11 appended the delays of compaction.
                let is_of_version = quantity.field != "compact_delay" || version >= 11;
                is_of_version.then(|| value.saturating_mul(quantity.factor))
            }),
        })
    }
}

pub(super) fn array<const BYTES: usize>(bytes: &[u8], offset: usize) -> Option<[u8; BYTES]> {
    bytes.get(offset..)?.first_chunk().copied()
}
