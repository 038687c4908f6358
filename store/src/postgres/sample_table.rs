//! Form of the table of samples.

use crate::WriteMode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleTable {
    /// Hypertable of TimescaleDB, whose rows are compressed on arrival.
    DirectCompress,
    /// Hypertable of TimescaleDB, whose older chunks may be compressed later.
    Hypertable,
    /// A partition for each day, on one server.
    Partitions,
    /// A partition for each day, which Citus distributes by node.
    Distributed,
}

impl SampleTable {
    /// Returns the name for users.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DirectCompress => "TimescaleDB hypertable with direct compression",
            Self::Hypertable => "TimescaleDB hypertable",
            Self::Partitions => "PostgreSQL with a partition per day",
            Self::Distributed => "Citus, distributed by node, with a partition per day",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenTable {
    pub(super) table: SampleTable,
    pub(super) reason: String,
}

impl From<ChosenTable> for WriteMode {
    fn from(ChosenTable { table, reason }: ChosenTable) -> Self {
        Self { name: table.name(), reason }
    }
}
