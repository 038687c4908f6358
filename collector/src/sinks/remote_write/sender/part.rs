//! The bodies of requests and of their parts.

use bytes::Bytes;

use crate::sinks::remote_write::http::Answer;
use crate::sinks::remote_write::request;

/// A request, or a part of it.
pub(super) struct Part {
    /// The compressed body of 1.0.
    pub(super) payload: Bytes,
    pub(super) samples: u64,
}

/// Returns the two halves of a refused part, if a part of it may be accepted: only receivers of 1.0 refuse a
/// whole request.
pub(super) fn halves(part: &Part, refusal: &Answer) -> Option<[Part; 2]> {
    if refusal.status != 400 || refusal.written.is_some() {
        return None;
    }
    let body = request::decompress(&part.payload)?;
    let halves = request::halves(&body)?.map(|half| {
        let payload = snap::raw::Encoder::new().compress_vec(&half).ok()?;
        Some(Part { payload: payload.into(), samples: request::count(&half) })
    });
    let [Some(first), Some(second)] = halves else { return None };
    Some([first, second])
}

/// Returns a compressed body of 1.0 as one of 2.0.
pub(super) fn to_v2(payload: &[u8]) -> Option<Bytes> {
    let body = request::to_v2(&request::decompress(payload)?).ok()?;
    Some(snap::raw::Encoder::new().compress_vec(&body).ok()?.into())
}
