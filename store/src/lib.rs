//! Polymeter's store, shared by the collector and the command: schema, migrations, writer and reader.
//!
//! SQLite is for one machine and for trials, PostgreSQL with or without TimescaleDB or Citus for a cluster.
//! All stores have the same tables and columns, and run the same statements. A transaction stores frames
//! together with the last sequence numbers of their sessions, so that a repeated frame is stored once,
//! whichever collector receives it.
//!
//! ```text
//! accepted frames -> writer (statements) -> backend.rs <- sqlite/, postgres/ <- selected in url.rs
//!          reports <- reader (statements) <-----+
//! ```

pub mod accepted;
mod administration;
mod api_tokens;
mod backend;
mod bounds;
mod control_requests;
mod copying;
mod digest;
mod error;
mod file_problem;
mod firings;
mod job_end_queue;
mod job_usage;
mod labels;
mod limits;
mod maintenance;
mod notices;
mod options;
mod postgres;
pub mod reader;
mod removal;
mod retention;
mod row;
mod schema;
mod schema_check;
mod sqlite;
mod stop;
mod stragglers;
mod table_thread;
#[cfg(test)]
mod testing;
mod url;
mod value;
mod writer;

pub use crate::administration::{
    Administration, KeptJob, Pruned, STORE_ROLES, prune, set_managers, set_retention,
};
pub use crate::api_tokens::{StoredToken, TokenTable};
pub use crate::backend::InvalidStoreUrl;
pub use crate::control_requests::{
    AnswerRow, AnsweringSession, CollectorRow, ControlRequest, ControlTable, NewControlRequest, Replaced,
    StoredControlRequest, StoredJobNode, Taken,
};
pub use crate::copying::{Copied, copy};
pub use crate::error::{DatabaseError, StoreError};
pub use crate::file_problem::{Displaced, FileProblem};
pub use crate::firings::{FiringBounds, FiringTable};
pub use crate::job_end_queue::{ClaimedEnd, Claims, JobEndQueue};
pub use crate::job_usage::{JobEnergy, JobUsageTable};
pub use crate::labels::labels_json;
pub use crate::maintenance::{ClockLinks, Maintenance};
pub use crate::notices::{NewNotice, NoticeClaim, NoticeTable, OptOut};
pub use crate::options::{ExtensionMode, OpenOptions, StoreOrigin, UnknownMode, WriteMode};
pub use crate::removal::clock_check::ClockJump;
pub use crate::retention::{InvalidKeep, Keep, Level, LevelSize, LevelState, Part, Retention, Storage};
pub use crate::schema::{Migration, SCHEMA_VERSION};
pub use crate::stragglers::{JobPart, NodeSum, StragglerTable, WantedParts};
pub use crate::table_thread::TableThread;
pub use crate::url::StoreUrl;
pub use crate::writer::{DeviceJob, DeviceJobs, Store};
