//! Polymeter's HTTP API: stored jobs, live values and control, for programs and pages.
//!
//! ```text
//! client --> server --> routes --> access --> request --> endpoints --> readers --> guard --> store
//!                                                             |
//!            answer <-----------------------------------------+--> coordinator (plan, set)
//!                                                             +--> live <-- committed frames <-- writers
//! ```
//!
//! | module | what it does with a request |
//! | --- | --- |
//! | `server` | accepts the connection and reads the head |
//! | `routes` | finds the resource, and calls the next two in their order |
//! | `access` | decides who asks, and how much |
//! | `request` | checks the parameters against the declaration of the resource |
//! | `endpoints` | declares the resources, and answers |
//! | `readers` | reads the store on a thread, not too many at once |
//! | `live` | sends values while they are committed |
//! | `answer` | encodes rows, values and problems |
//!
//! The API has a thread of its own with a low priority, and a bounded number of threads that read the store.
//! Nothing is shared with the writers: the store is read through read-only connections of its own, in front
//! of which the same guard stands as in front of reports ([`polymeter_store::reader::GuardedReader`]). Live
//! values come from committed frames through a bounded queue, which drops rather than waits.
//!
//! The invariant: every row that leaves the process has passed the guard, and every request costs bounded
//! time and memory.

mod access;
mod answer;
mod config;
mod endpoints;
mod limits;
mod links;
mod live;
mod own_metrics;
mod readers;
mod request;
mod routes;
mod server;

pub use self::access::{AccessOf, KnownAdministrators, TokenService};
pub use self::config::{ApiConfig, Listen, Proxy};
pub use self::limits::ApiLimits;
pub use self::links::{AgentStatus, ClockOffset, ControlRequest, Links};
pub use self::live::LiveValues;
pub use self::own_metrics::ApiMetrics;
pub use self::server::{Api, ApiListener, ListenError, lower_priority};
