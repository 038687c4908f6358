//! Nonces, which bind a signed request to one connection.

use std::fmt::Write;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Unpredictable number that does not repeat, in hexadecimal digits. Fails if the system provides no random
/// bytes.
pub(super) fn nonce() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
