//! Who sends a request, and whether it is served: the names by which clients address the API, authentication,
//! tokens, and the use by each user.

mod auth;
mod failures;
mod hosts;
mod identity;
mod quota;
mod tokens;

pub(crate) use self::auth::Authenticator;
pub(crate) use self::hosts::Hosts;
pub use self::identity::{AccessOf, KnownAdministrators};
pub(crate) use self::identity::{Client, Peer, Principal, Scope, Trust};
pub(crate) use self::quota::{Permit, Quota};
pub use self::tokens::TokenService;
pub(crate) use self::tokens::Unverified;
