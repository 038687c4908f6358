//! Digests of lists that are stored once. Pure.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest of `text` in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut digits, byte| {
        // Formatting into a string cannot fail.
        write!(digits, "{byte:02x}").ok();
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_64_hexadecimal_digits() {
        assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
