//! Access to private parsers for `e2e/fuzz/`.

pub use crate::auth::{ask, authorise};
pub use crate::control::munge::signed;
pub use crate::limits::{HTTP_REQUEST_BYTES, KEY_FAULTS};
pub use crate::metrics::metrics_answer;
