//! Doors for the fuzzer (`fuzz/`) to parsers that are nobody else's affair. No other build has them.

pub use crate::control::munge::signed;
pub use crate::control::requests;
pub use crate::gate::{ask, authorise};
pub use crate::limits::{HTTP_REQUEST_BYTES, KEY_COMPLAINTS};
pub use crate::metrics::is_answered;
