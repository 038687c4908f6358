//! Digests of lists that are stored once. Pure.

use std::fmt::Write;

use sha2::{Digest, Sha256};

pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut digits, byte| {
        // Formatting into a string cannot fail.
        write!(digits, "{byte:02x}").ok();
        digits
    })
}

/// Returns the first 64 bits of the digest of texts, some of which may be missing.
pub(crate) fn digest_id(parts: &[Option<&[u8]>]) -> i64 {
    let mut digest = Sha256::new();
    for part in parts {
        // The length of a missing text is that of none.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        digest.update(length.to_le_bytes());
        digest.update(part.unwrap_or_default());
    }
    let digest: [u8; 32] = digest.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the key that distributes the samples of a node: the first 32 bits of the digest of its name, as in
/// the database's function `polymeter_node_key`.
pub(crate) fn node_key(node: &str) -> i32 {
    let digest: [u8; 32] = Sha256::digest(node.as_bytes()).into();
    let [first, second, third, fourth, ..] = digest;
    i32::from_be_bytes([first, second, third, fourth])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_node_is_the_begin_of_its_digest() {
        assert_eq!(node_key("abc"), i32::from_be_bytes([0xba, 0x78, 0x16, 0xbf]));
    }

    #[test]
    fn the_id_of_texts_depends_on_each_of_them() {
        let id = |parts: &[Option<&str>]| {
            digest_id(&parts.iter().map(|part| part.map(str::as_bytes)).collect::<Vec<_>>())
        };
        let all = [
            id(&[Some("ab"), Some("c")]),
            id(&[Some("a"), Some("bc")]),
            id(&[Some("abc"), Some("")]),
            id(&[Some("abc"), None]),
            id(&[None, Some("abc")]),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_digest_has_64_hexadecimal_digits() {
        assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
