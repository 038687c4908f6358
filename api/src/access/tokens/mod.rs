//! Tokens of the HTTP API: their table in the store, the check of those that clients present, and users'
//! requests about them.
//!
//! A token that was accepted is remembered for some seconds. So a revocation takes effect at once in the
//! collector that executes it, and within [`limits::TOKEN_AGE_NS`](crate::limits) in others of the same
//! store.

mod requests;
mod service;

pub use self::service::TokenService;
pub(crate) use self::service::Unverified;
