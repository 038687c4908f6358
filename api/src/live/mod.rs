//! Values of running jobs, sent while they are committed.
//!
//! ```text
//! writer --commit--> queue --> LiveValues --> feed of a job --> mailbox of each stream --> client
//! ```
//!
//! A feed is one selection of a job's series at one rate. Streams with the same selection share it, so that
//! values are reduced and encoded once. Nothing here waits: a full mailbox counts what it misses.
//!
//! The invariant: the memory of a stream is bounded, and no stream delays another one, or a writer.

mod event;
mod feed;
mod filter;
mod mailbox;
mod periods;
mod reducer;
mod values;

pub(crate) use self::event::{HEARTBEAT, RETRY, event};
pub(crate) use self::feed::FeedRequest;
pub(crate) use self::filter::{SeriesFilter, is_selected};
pub(crate) use self::mailbox::Step;
pub(crate) use self::periods::{Periods, describe};
pub use self::values::LiveValues;
pub(crate) use self::values::Subscription;
