//! Origins of metrics: the source kind that reads a metric, and the address of the value there.

use super::perf_event::PerfEvent;
use super::text_file::{Cell, Field, Row, Scale, TICK_NS, TextFile, V1_UNLIMITED};
use crate::period::Period;

/// Longest time between two updates of the CPU time of a running task: one scheduler tick with the kernel's
/// lowest `HZ`, 100. It is 4 ms with 250 and 1 ms with 1000. Values in ticks of `USER_HZ` are equally coarse.
pub(crate) const TICK: Period = Period::TEN_MILLISECONDS;

/// One way to read a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Text {
        file: &'static TextFile,
        field: Field,
    },
    Perf(PerfEvent),
    /// Field of a source kind with its own implementation. New kinds use this.
    Source(SourceField),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceField {
    /// Name under which the agent registers the kind: `filesystem`.
    pub kind: &'static str,
    /// Name of the quantity within the kind: `size`.
    pub field: &'static str,
    /// Origin in one phrase, for documents: "`statvfs` of each mount".
    pub place: &'static str,
    /// Longest lag of values behind the counted quantity; none if they are exact at every read.
    pub granularity: Option<Period>,
}

/// Reads [`Origin::Text`].
pub const TEXT_FILE_KIND: &str = "text_file";

/// Reads [`Origin::Text`] where the file is [`TextFile::is_blocking`].
pub const BLOCKING_FILE_KIND: &str = "blocking_file";

/// Samples call stacks. The kernel samples at the period of the metrics. A read takes all samples since the
/// last one, and is due once a second at most.
pub const STACKS_KIND: &str = "stacks";

/// Samples call stacks as [`STACKS_KIND`] does, and unwinds them itself.
pub const STACKS_DWARF_KIND: &str = "stacks_dwarf";

/// Samples the waits of threads by call stack.
pub const STACKS_WAIT_KIND: &str = "stacks_wait";

/// Reads values of devices outside the nodes.
pub const DEVICE_KIND: &str = "device";

/// Reads [`Origin::Perf`].
pub const PERF_KIND: &str = "perf";

impl Origin {
    /// Creates an origin of a kind with its own implementation.
    pub(crate) const fn source(kind: &'static str, field: &'static str, place: &'static str) -> Self {
        Self::Source(SourceField { kind, field, place, granularity: None })
    }

    /// Creates an origin like [`Origin::source`], whose values lag behind by up to `granularity`.
    pub(crate) const fn lagging_source(
        kind: &'static str,
        field: &'static str,
        place: &'static str,
        granularity: Period,
    ) -> Self {
        Self::Source(SourceField { kind, field, place, granularity: Some(granularity) })
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text { file, .. } if file.is_blocking => BLOCKING_FILE_KIND,
            Self::Text { .. } => TEXT_FILE_KIND,
            Self::Perf(_) => PERF_KIND,
            Self::Source(field) => field.kind,
        }
    }

    pub fn field_of(&self, kind: &str) -> Option<&'static str> {
        match self {
            Self::Source(field) if field.kind == kind => Some(field.field),
            Self::Text { .. } | Self::Perf(_) | Self::Source(_) => None,
        }
    }

    /// Returns the longest lag of values behind the counted quantity.
    pub(crate) fn granularity(&self) -> Option<Period> {
        match self {
            Self::Text { field: Field { scale: Scale::Times(TICK_NS), .. }, .. } => Some(TICK),
            Self::Text { file, .. } => file.granularity,
            Self::Source(field) => field.granularity,
            // The kernel updates a perf event at every read.
            Self::Perf(_) => None,
        }
    }
}

impl TextFile {
    const fn at(&'static self, row: Row, cell: Cell, scale: Scale) -> Origin {
        Origin::Text { file: self, field: Field { row, cell, scale } }
    }

    /// First value of the only line.
    pub(crate) const fn only(&'static self) -> Origin {
        self.word(Row::Only, 0)
    }

    pub(crate) const fn only_scaled(&'static self, scale: Scale) -> Origin {
        self.at(Row::Only, Cell::Word(0), scale)
    }

    /// First value of the only line, which may be `max` or `unlimited`.
    pub(crate) const fn limit(&'static self, unlimited: u64) -> Origin {
        self.only_scaled(Scale::Limit(unlimited))
    }

    pub(crate) const fn key(&'static self, key: &'static str) -> Origin {
        self.word(Row::Key(key), 1)
    }

    /// Value of a key, multiplied by a factor.
    pub(crate) const fn scaled(&'static self, key: &'static str, factor: u64) -> Origin {
        self.at(Row::Key(key), Cell::Word(1), Scale::Times(factor))
    }

    /// Value of a key, absent without a limit.
    pub(crate) const fn key_limit(&'static self, key: &'static str) -> Origin {
        self.at(Row::Key(key), Cell::Word(1), Scale::Limit(V1_UNLIMITED))
    }

    /// The n-th word of a line.
    pub(crate) const fn word(&'static self, row: Row, word: usize) -> Origin {
        self.at(row, Cell::Word(word), Scale::Times(1))
    }

    /// The n-th word of a line, in ticks, as nanoseconds.
    pub(crate) const fn ticks(&'static self, row: Row, word: usize) -> Origin {
        self.at(row, Cell::Word(word), Scale::Times(TICK_NS))
    }

    pub(crate) const fn named(&'static self, row: Row, name: &'static str, scale: Scale) -> Origin {
        self.at(row, Cell::Named(name), scale)
    }
}
