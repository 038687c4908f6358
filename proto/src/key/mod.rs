//! Keys of the encryption between agent and collector: CURVE's keys of 32 bytes, and the text of the files that hold them.
//!
//! A reader of the files asks [`Guard`] first whether others could have read or changed them. A secret key has no text but
//! in [`KeyPair::to_text`], so that none comes into a log or an error by mistake.

mod file;
mod guard;
mod pair;
mod z85;

pub use file::{KEY_FILE_BYTES, KeyFileError};
pub use guard::{Exposed, Guard, SERVICE_USER};
pub use pair::{KeyError, KeyPair, PublicKey, SecretKey};
pub use z85::KEY_BYTES;
