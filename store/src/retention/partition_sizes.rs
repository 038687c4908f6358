//! Levels of resolution, and the parts of their relations that are removed at once. Pure.

/// Level of resolution: the samples, or a rollup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Samples,
    TenSeconds,
    Minute,
    Hour,
}

impl Level {
    /// The finest first.
    pub const ALL: [Self; 4] = [Self::Samples, Self::TenSeconds, Self::Minute, Self::Hour];

    pub const fn relation(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::TenSeconds => "samples_10s",
            Self::Minute => "samples_1min",
            Self::Hour => "samples_1h",
        }
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::Samples => "raw",
            Self::TenSeconds => "10s",
            Self::Minute => "1min",
            Self::Hour => "1h",
        }
    }

    pub(crate) fn of_relation(relation: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.relation() == relation)
    }

    pub(crate) const fn next(self) -> Option<Self> {
        match self {
            Self::Samples => Some(Self::TenSeconds),
            Self::TenSeconds => Some(Self::Minute),
            Self::Minute => Some(Self::Hour),
            Self::Hour => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub level: Level,
    /// Name of the chunk or the partition; none for rows of a table.
    pub name: Option<String>,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Excluded end, in microseconds since the epoch.
    pub end_us: i64,
    /// Size on disk; none if it is unknown.
    pub bytes: Option<u64>,
    /// Keys of the jobs whose rows stay.
    pub kept_jobs: Vec<i64>,
    pub(crate) kind: PartKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Chunk of this hypertable.
    Chunk(String),
    Partition,
    Rows(&'static str),
}

/// Times before which the rows of each level are removed, in microseconds since the epoch; none for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cutoffs {
    pub(crate) before_us: [Option<i64>; Level::ALL.len()],
}

impl Cutoffs {
    pub(crate) fn of(&self, level: Level) -> Option<i64> {
        Level::ALL.into_iter().zip(self.before_us).find(|(of, _)| *of == level).and_then(|(_, before)| before)
    }

    /// Replaces the time of `level`, if another one is given.
    pub(crate) fn with(mut self, level: Level, before_us: Option<i64>) -> Self {
        for (of, before) in Level::ALL.into_iter().zip(&mut self.before_us) {
            if of == level && before_us.is_some() {
                *before = before_us;
            }
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.before_us.iter().all(Option::is_none)
    }

    pub(crate) fn include(&self, part: &Part) -> bool {
        self.of(part.level).is_some_and(|before_us| part.end_us <= before_us)
    }
}
