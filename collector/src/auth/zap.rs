//! ZeroMQ's authentication protocol, ZAP (RFC 27). Only requests for the CURVE mechanism are accepted.

use polymeter_proto::key::{KEY_BYTES, PublicKey};

/// Place where libzmq sends requests.
pub(super) const ENDPOINT: &str = "inproc://zeromq.zap.01";

pub(super) const DOMAIN: &str = "polymeter";

const VERSION: &[u8] = b"1.0";
const MECHANISM: &[u8] = b"CURVE";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// Address without the port; empty if the transport has none.
    pub(super) address: String,
    /// The peer has proven to own the key pair.
    pub(super) key: PublicKey,
}

/// None if it is not one for CURVE and this collector.
pub(super) fn parse(parts: &[Vec<u8>]) -> Option<Request> {
    let [version, _id, domain, address, _routing_id, mechanism, key] = parts else { return None };
    if version != VERSION || domain != DOMAIN.as_bytes() || mechanism != MECHANISM {
        return None;
    }
    let key: [u8; KEY_BYTES] = key.as_slice().try_into().ok()?;
    Some(Request { address: String::from_utf8_lossy(address).into_owned(), key: PublicKey::new(key) })
}

/// Key in a request, and whether its answer has the form that libzmq requires; used by the fuzzer.
pub fn ask(parts: &[Vec<u8>]) -> (Option<PublicKey>, bool) {
    let [version, id, status, ..] = answer(parts, None);
    let is_answer = version == VERSION && status == b"400" && parts.get(1).is_none_or(|asked| *asked == id);
    (parse(parts).map(|request| request.key), is_answer)
}

/// Accepts the connection with `user_id` in the metadata of its messages, or refuses it.
pub(super) fn answer(parts: &[Vec<u8>], user_id: Option<&str>) -> [Vec<u8>; 6] {
    let id = parts.get(1).cloned().unwrap_or_default();
    let (status, text) = if user_id.is_some() { ("200", "OK") } else { ("400", "the key is not authorised") };
    [VERSION.to_vec(), id, status.into(), text.into(), user_id.unwrap_or_default().into(), Vec::new()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Vec<Vec<u8>> {
        [b"1.0".as_slice(), b"7", b"polymeter", b"10.0.0.1", b"", b"CURVE", &[9; 32]]
            .map(<[u8]>::to_vec)
            .into()
    }

    #[test]
    fn parses_valid_requests_only() {
        let expected = Request { address: "10.0.0.1".to_owned(), key: PublicKey::new([9; 32]) };
        assert_eq!(parse(&request()), Some(expected));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&request()[..6]), None);
        for (part, other) in
            [(0, b"2.0".as_slice()), (2, b"global"), (5, b"PLAIN"), (6, b"short"), (6, &[9; 33])]
        {
            let mut request = request();
            request[part] = other.to_vec();
            assert_eq!(parse(&request), None, "{part}");
        }
    }

    #[test]
    fn answers_have_the_id_of_their_request() {
        let [version, id, status, _, user, metadata] = answer(&request(), Some("who"));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!([version, id, status, user].map(|part| text(&part)), ["1.0", "7", "200", "who"]);
        assert!(metadata.is_empty());
        assert_eq!(text(&answer(&request(), None)[2]), "400");
        assert_eq!(text(&answer(&[], None)[2]), "400");
    }
}
