//! Tables of users' requests to agents, which the collectors of a store share.
//!
//! A collector stores a request before it sends it, so that the request survives the collector. The other
//! collectors find it by its number: numbers are assigned under a lock, in the order in which transactions
//! commit. Each session has a row with its answer.

mod answers;
mod collectors;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod wanted;

pub use self::rows::{
    AnswerRow, AnsweringSession, CollectorRow, ControlRequest, NewControlRequest, Replaced,
    StoredControlRequest, StoredJobNode, Taken,
};
pub use self::table::ControlTable;
