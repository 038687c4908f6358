//! The amount of detail in a report.

/// The amount of detail in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The series that changed and the unusual events, with a limit on the lines of each table.
    Summary,
    /// Everything.
    All,
}

impl Detail {
    /// The detail with or without `--all`.
    pub(crate) const fn of(all: bool) -> Self {
        if all { Self::All } else { Self::Summary }
    }

    /// The maximum number of lines of a table.
    pub(super) const fn lines_max(self) -> usize {
        match self {
            Self::Summary => 30,
            Self::All => usize::MAX,
        }
    }
}
