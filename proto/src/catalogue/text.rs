//! How a field is addressed in a kernel file's text.

use super::Origin;
use crate::period::Period;

/// A kernel file that holds metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Where the path begins.
    pub hierarchy: Hierarchy,
    /// The path below a job's cgroup, or below `/proc`. One `*` in it stands for anything within a file's name, which
    /// becomes the label [`TextFile::path_label`].
    pub path: &'static str,
    /// The label whose value the `*` of the path is.
    pub path_label: Option<&'static str>,
    /// How its lines are built.
    pub form: Form,
    /// How far its values may be behind what they count; none where they are exact at every read.
    pub granularity: Option<Period>,
}

/// Where a file's path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// In a job's cgroup of this version 1 controller.
    V1(&'static str),
    /// In a job's cgroup of version 2.
    V2,
    /// In `/proc`.
    Proc,
}

/// How a file's lines are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One line of values: `memory.current`, `loadavg`, `cpuacct.usage_percpu`.
    Values,
    /// A key, then values: `memory.stat`, `vmstat`, `/proc/stat`, `meminfo` with its colons.
    Keyed,
    /// Values among which the key stands, counted from 0: `diskstats`.
    KeyedAt(usize),
    /// A key, then `name=value` pairs: `cpu.pressure`, `io.stat`.
    Pairs,
    /// Device, operation, value: `blkio.throttle.io_service_bytes`.
    Operations,
}

/// Where a value stands, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// In which line.
    pub row: Row,
    /// Where in the line.
    pub cell: Cell,
    /// How the text becomes the value.
    pub scale: Scale,
}

/// In which line a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// In the only one.
    Only,
    /// In the one with this key.
    Key(&'static str),
    /// In the one whose key is the instance of the metric's family, which begins with this text.
    Instance(&'static str),
    /// In every line whose key begins with `prefix` and goes on; what follows is a label's value, and so a series.
    Each {
        /// The label.
        label: &'static str,
        /// What is no part of its value.
        prefix: &'static str,
        /// Whether only numbers are values of it.
        numeric: bool,
    },
}

/// Where in a line a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// The n-th word of the line, counted from 0, keys included.
    Word(usize),
    /// Behind this name: `total=123`, or `Read 123`.
    Named(&'static str),
    /// Every word is a series; its number is the value of this label.
    Each(&'static str),
}

/// How the text becomes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// An integer, times this.
    Times(u64),
    /// An integer, except that this or `max` means that there is no limit, and so no value.
    Limit(u64),
    /// A decimal fraction.
    Decimal,
}

/// What version 1 of cgroups writes where there is no limit, or less: the largest number of whole pages in an i64, with
/// pages of 64 KiB, the largest that Linux has.
pub(crate) const V1_UNLIMITED: u64 = 0x7fff_ffff_ffff_0000;

/// Nanoseconds in a tick of `USER_HZ`, which is 100 Hz on every architecture that Linux is used on in HPC.
pub(crate) const TICK_NS: u64 = 10_000_000;

impl TextFile {
    pub(crate) const fn v1(controller: &'static str, path: &'static str, form: Form) -> Self {
        Self { hierarchy: Hierarchy::V1(controller), path, path_label: None, form, granularity: None }
    }

    pub(crate) const fn v2(path: &'static str, form: Form) -> Self {
        Self { hierarchy: Hierarchy::V2, path, path_label: None, form, granularity: None }
    }

    pub(crate) const fn proc(path: &'static str, form: Form) -> Self {
        Self { hierarchy: Hierarchy::Proc, path, path_label: None, form, granularity: None }
    }

    pub(crate) const fn labelled(self, label: &'static str) -> Self {
        Self { path_label: Some(label), ..self }
    }

    /// The same file, with values that may be behind by so much.
    pub(crate) const fn updated_every(self, granularity: Period) -> Self {
        Self { granularity: Some(granularity), ..self }
    }

    /// The first value of the only line.
    pub(crate) const fn only(&'static self) -> Origin {
        self.word(Row::Only, 0)
    }

    /// The first value of the only line, which may say `max` or `unlimited`.
    pub(crate) const fn limit(&'static self, unlimited: u64) -> Origin {
        Origin::Text {
            file: self,
            field: Field { row: Row::Only, cell: Cell::Word(0), scale: Scale::Limit(unlimited) },
        }
    }

    /// The value behind a key.
    pub(crate) const fn key(&'static self, key: &'static str) -> Origin {
        self.word(Row::Key(key), 1)
    }

    /// The value behind a key, times a factor.
    pub(crate) const fn scaled(&'static self, key: &'static str, factor: u64) -> Origin {
        Origin::Text {
            file: self,
            field: Field { row: Row::Key(key), cell: Cell::Word(1), scale: Scale::Times(factor) },
        }
    }

    /// The value behind a key that may say that there is no limit.
    pub(crate) const fn key_limit(&'static self, key: &'static str) -> Origin {
        Origin::Text {
            file: self,
            field: Field { row: Row::Key(key), cell: Cell::Word(1), scale: Scale::Limit(V1_UNLIMITED) },
        }
    }

    /// The n-th word of a line.
    pub(crate) const fn word(&'static self, row: Row, word: usize) -> Origin {
        Origin::Text { file: self, field: Field { row, cell: Cell::Word(word), scale: Scale::Times(1) } }
    }

    /// The n-th word of a line, in ticks, as nanoseconds.
    pub(crate) const fn ticks(&'static self, row: Row, word: usize) -> Origin {
        Origin::Text {
            file: self,
            field: Field { row, cell: Cell::Word(word), scale: Scale::Times(TICK_NS) },
        }
    }

    /// A named value of a line.
    pub(crate) const fn named(&'static self, row: Row, name: &'static str, scale: Scale) -> Origin {
        Origin::Text { file: self, field: Field { row, cell: Cell::Named(name), scale } }
    }

    /// What people call the source: the file's name without what is the same for all.
    pub fn source_name(&self) -> &'static str {
        self.path
    }
}

/// A line for each CPU.
pub(crate) const EACH_CPU: Row = Row::Each { label: "cpu", prefix: "", numeric: true };
/// A line for each block device, by its major and minor number.
pub(crate) const EACH_DEVICE: Row = Row::Each { label: "device", prefix: "", numeric: false };
