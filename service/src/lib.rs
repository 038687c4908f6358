//! Modules that Polymeter's programs share: logging, configuration files, key files, user accounts, clocks,
//! spools and limiters.
//!
//! The invariant: nothing here depends on an agent, a collector or a store.

pub mod api_token;
pub mod bearer_token;
pub mod byte_size;
pub mod cgroup_mounts;
pub mod check;
pub mod clock;
pub mod document;
pub mod fair_budget;
mod faults;
pub mod file_size;
pub mod http_client;
pub mod key_files;
pub mod keys;
pub mod log;
pub mod log_throttle;
pub mod own_file;
pub mod place;
pub mod printable;
pub mod safe_text;
pub mod service_manager;
pub mod silent_connections;
pub mod spool;
pub mod svg;
pub mod time_text;
pub mod tls_client;
pub mod token_bucket;
pub mod turns;
pub mod unix_socket;
pub mod users;
