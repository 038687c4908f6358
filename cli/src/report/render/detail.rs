//! The amount of detail in a report.

/// The amount of detail in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The series that changed and the unusual events, with a limit on the lines of each table.
    Summary,
    /// Everything.
    All,
}

impl Detail {
    /// The maximum number of lines of a table.
    pub(super) const fn lines_max(self) -> usize {
        match self {
            Self::Summary => 30,
            Self::All => usize::MAX,
        }
    }
}
