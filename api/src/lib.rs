//! Polymeter's HTTP API: stored jobs, live values and control, for programs and pages.
//!
//! ```text
//! client --socket--> server --> router --> auth --> quota --> endpoint --> readers --> guard --> store
//!                                                                 |
//!                                                                 +--> coordinator (plan, set)
//!                                                                 +--> live <-- committed frames <-- writers
//! ```
//!
//! The API has a thread of its own with a low priority, and a bounded number of threads that read the store.
//! Nothing is shared with the writers: the store is read through read-only connections of its own, in front
//! of which the same guard stands as in front of reports ([`polymeter_store::reader::GuardedReader`]). Live
//! values come from committed frames through a bounded queue, which drops rather than waits.
//!
//! The invariant: every row that leaves the process has passed the guard, and every request costs bounded
//! time and memory.

mod access;
mod arguments;
mod auth;
mod body;
mod call;
mod config;
mod connection;
mod endpoint;
mod endpoints;
mod failures;
mod filter;
mod format;
mod headers;
mod health;
mod hosts;
mod limits;
mod links;
mod listener;
mod live;
mod metrics;
mod openapi;
mod pace;
mod peer;
mod principal;
mod problem;
mod quota;
mod read_stop;
mod reader_places;
mod readers;
mod readiness;
mod recent;
mod refused;
mod router;
mod rows;
mod server;
mod site;
mod table;
mod tokens;
mod unparsed;

pub use self::access::AccessOf;
pub use self::config::{ApiConfig, Listen, Proxy};
pub use self::limits::ApiLimits;
pub use self::links::{AgentStatus, ClockOffset, ControlRequest, Links};
pub use self::listener::{ApiListener, ListenError};
pub use self::live::LiveValues;
pub use self::metrics::ApiMetrics;
pub use self::server::{Api, lower_priority};
pub use self::tokens::TokenService;
