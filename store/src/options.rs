//! Options with which a store is opened, and the description of an open store.

use std::fmt;
use std::str::FromStr;

use polymeter_proto::text::Text;

use crate::schema::Migration;

/// Use of an extension of the database, TimescaleDB or Citus, where the store is PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExtensionMode {
    #[default]
    Auto,
    Off,
    /// Required: without it the store cannot be opened.
    Require,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode `{0}`: expected `auto`, `off` or `require`")]
pub struct UnknownMode(Text);

impl FromStr for ExtensionMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "require" => Ok(Self::Require),
            _ => Err(UnknownMode(Text::of(text))),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    pub timescale: ExtensionMode,
    pub citus: ExtensionMode,
    /// Further changes of the schema, for tests.
    pub later_migrations: &'static [Migration],
    pub may_create: bool,
    /// True if ends of jobs are queued for a command.
    pub queues_job_ends: bool,
    /// Id of the collector, which is recorded with the sessions whose frames it stores.
    pub collector_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteMode {
    pub name: &'static str,
    pub reason: String,
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.reason)
    }
}

/// Identity of a store, as far as a connection can determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOrigin {
    /// Numbers that identify the store, such as those of a file.
    identity: (u64, u64),
    is_new: bool,
}

impl StoreOrigin {
    pub(crate) const fn new(identity: (u64, u64), is_new: bool) -> Self {
        Self { identity, is_new }
    }

    /// Returns true if a later connection with the origin `later` leads to the same store.
    pub fn is_same(self, later: Self) -> bool {
        self.identity == later.identity && !later.is_new
    }

    /// Returns true if this connection created the schema.
    pub const fn is_new(self) -> bool {
        self.is_new
    }
}
