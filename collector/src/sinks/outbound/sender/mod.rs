//! Thread that sends: a task for each shard, with a connection of its own.
//!
//! A request is repeated after an overload or a fault of the server, and without an answer. After another refusal it is halved, since a
//! receiver refuses a whole request for one bad sample, until the bad samples are found or the attempts are
//! used up; what remains is dropped and counted.
//!
//! After the receiver was lost, the requests that it accepted lately are sent again, if the spool keeps them.

mod outcome;
mod part;
mod sender_state;
mod shard;
mod thread;

pub(super) use self::thread::Sender;
