//! Keys of the encryption between agent and collector: CURVE keys of 32 bytes, and the text of key files.
//!
//! A reader of key files first checks with [`Guard`] that no other user could have read or changed them. Only
//! [`KeyPair::to_text`] formats a secret key, so that none gets into a log or an error by mistake.

mod file;
mod guard;
mod pair;
mod z85;

pub use file::{KEY_FILE_BYTES, KeyFileError};
pub use guard::{Exposed, Guard, SERVICE_USER};
pub use pair::{KeyError, KeyPair, PublicKey, SecretKey};
pub use z85::KEY_BYTES;
