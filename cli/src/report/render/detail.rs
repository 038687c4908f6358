//! Amount of detail in a report.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Series that changed and unusual events, with a limit on the lines of each table.
    Summary,
    All,
}

impl Detail {
    pub(super) const fn lines_max(self) -> usize {
        match self {
            Self::Summary => 30,
            Self::All => usize::MAX,
        }
    }
}
