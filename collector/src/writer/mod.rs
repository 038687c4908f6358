//! A writer: takes messages of agents from its queue, gathers accepted frames, commits them, acknowledges
//! them, and offers them to the sinks.
//!
//! While the store is unreachable a writer takes no messages: its queue fills, the receiver stops reading,
//! and the data wait in the agents' outboxes. A frame is acknowledged only after its commit.
//!
//! A new store or sink requires no change here: see the crate `store`, and [`crate::sinks`].

mod commit;
mod housekeeping;
mod messages;
mod state;
mod store_access;
mod totals;

pub(crate) use self::state::{Writer, WriterLinks};
pub use self::totals::Totals;
