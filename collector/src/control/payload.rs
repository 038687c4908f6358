//! What a credential signs, as the collector and the `polymeter` command both make it.

use std::fmt::Write;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// In front of everything that is signed: a credential for another program has not this.
const CONTEXT: &str = "polymeter control 1";

/// What the collector says first.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// The version of this conversation: 1.
    polymeter_control: u32,
    /// What the credential must repeat.
    nonce: String,
}

/// A number that nobody can guess and that does not come again.
pub(super) fn nonce() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Into memory: it cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    }))
}

/// The line with which the collector begins.
pub(super) fn greeting(nonce: &str) -> String {
    format!("{{\"polymeter_control\":1,\"nonce\":\"{nonce}\"}}\n")
}

/// What a user's credential has to sign for the request `line`, given the collector's first line; none where that is none
/// of this version.
pub fn sign(greeting: &str, line: &str) -> Option<String> {
    let greeting: Greeting = serde_json::from_str(greeting).ok()?;
    (greeting.polymeter_control == 1).then(|| format!("{CONTEXT} {}\n{line}", greeting.nonce))
}

/// The request in what was signed; none where it was signed for something else.
pub(super) fn request<'a>(payload: &'a [u8], nonce: &str) -> Option<&'a [u8]> {
    payload.strip_prefix(format!("{CONTEXT} {nonce}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_for_one_connection() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
        let signed = sign(&greeting(&one), "{}").unwrap();
        assert_eq!(request(signed.as_bytes(), &one), Some(&b"{}"[..]));
        assert_eq!(request(signed.as_bytes(), &other), None);
        assert_eq!(request(b"{}", &one), None);
        assert_eq!(sign("{\"polymeter_control\":2,\"nonce\":\"0\"}", "{}"), None);
        assert_eq!(sign("SSH-2.0", "{}"), None);
    }
}
