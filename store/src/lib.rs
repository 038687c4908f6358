//! Polymeter's store, shared by the collector and the command: schema, migrations, writer and reader.
//!
//! SQLite serves one machine and a first look, PostgreSQL with or without TimescaleDB a cluster. All stores have the same tables
//! and columns, and run the same statements. A transaction stores frames together with the last sequence numbers of their
//! sessions, so that a frame that comes twice is stored once, whichever collector brings it.
//!
//! ```text
//! accepted frames -> writer (statements) -> backend.rs <- sqlite/, postgres/ <- selected in url.rs
//!          reports <- reader (statements) <-----+
//! ```

pub mod accepted;
mod backend;
mod error;
mod limits;
mod maintenance;
mod options;
mod postgres;
pub mod reader;
mod sqlite;
mod url;
mod value;
mod writer;

use polymeter_proto::series::Labels;

pub use crate::error::{DatabaseError, StoreError};
pub use crate::maintenance::Maintenance;
pub use crate::options::{OpenOptions, Origin, TimescaleMode, WriteMode};
pub use crate::sqlite::{Displaced, FileProblem};
pub use crate::url::{InvalidStoreUrl, StoreUrl};
pub use crate::writer::Store;

/// The newest version of the schema that this program knows. Each version has a file per backend in `schema/`, and since
/// version 6 one for all of them.
pub const SCHEMA_VERSION: i32 = 6;

/// The latest time that is stored, 2100. An agent's time beyond it is wrong, and must not stop a transaction.
const LATEST_US: i64 = 4_102_444_800 * 1_000_000;

/// Returns a time that an agent reported, in microseconds since the epoch, within the range that every store can hold.
fn stored_us(time_us: i64) -> i64 {
    time_us.clamp(0, LATEST_US)
}

/// Returns a count that an agent reported, within the range that every store can hold.
fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns labels as a JSON object with sorted keys.
pub fn labels_json(labels: &Labels) -> String {
    let object: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    serde_json::Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_canonical_json() {
        let pairs = [("node", "1"), ("cpu", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(labels_json(&Labels::new(pairs.to_vec()).unwrap()), r#"{"cpu":"3","node":"1"}"#);
        assert_eq!(labels_json(&Labels::default()), "{}");
    }

    #[test]
    fn impossible_times_are_bounded() {
        assert_eq!(stored_us(i64::MIN), 0);
        assert_eq!(stored_us(1_700_000_000_000_000), 1_700_000_000_000_000);
        assert!(stored_us(i64::MAX).checked_mul(1000).is_some());
        assert_eq!(stored_count(u64::MAX), i64::MAX);
    }
}
