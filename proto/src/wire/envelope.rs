//! Serialisation of everything except for columns. The only module that uses bincode.
//!
//! bincode is unmaintained (RUSTSEC-2025-0141) and pinned. Its format is simple enough to be reimplemented
//! behind these functions; therefore no other module may call it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bytes::DecodeError;
use crate::limits;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<{ limits::MESSAGE_BYTES }>()
}

/// Appends `value`, little-endian with variable-length integers.
pub(crate) fn put<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    struct Writer<'a>(&'a mut Vec<u8>);
    impl bincode::enc::write::Writer for Writer<'_> {
        fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
    }
    let serialised = bincode::serde::encode_into_writer(value, Writer(out), config());
    debug_assert!(serialised.is_ok(), "plain data into memory: {serialised:?}");
}

/// Decodes a `T` at the beginning of `bytes`, and ignores the rest.
pub(crate) fn get_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let read = bincode::serde::decode_from_slice(bytes, config());
    match read {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(DecodeError::Serialised),
    }
}

/// Decodes a `T` from all of `bytes`. Refuses a length beyond [`limits::MESSAGE_BYTES`] before memory is
/// allocated.
pub(crate) fn get<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    get_within::<T, { limits::MESSAGE_BYTES }>(bytes)
}

/// Decodes a `T` from all of `bytes`. Refuses a length beyond `LIMIT` before memory is allocated.
pub(crate) fn get_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, DecodeError> {
    match bincode::serde::decode_from_slice(bytes, bincode::config::standard().with_limit::<LIMIT>()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(DecodeError::Trailing),
        Err(_) => Err(DecodeError::Serialised),
    }
}
