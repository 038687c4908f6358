//! Bodies of requests and of their parts.

use bytes::Bytes;
use prost::Message;

use crate::sinks::remote_write::http::Answer;
use crate::sinks::remote_write::request::{self, Lines, RequestV2};

pub(super) struct Part {
    /// Compressed body of 1.0.
    pub(super) payload: Bytes,
    pub(super) samples: u64,
}

/// Halves of a refused part, if a part of it may be accepted: receivers of 1.0 refuse a whole request, and
/// InfluxDB one that is too large.
pub(super) fn halves(part: &Part, refusal: &Answer) -> Option<[Part; 2]> {
    if ![400, 413].contains(&refusal.status) || refusal.written.is_some() {
        return None;
    }
    let halves = request::read(&part.payload)?.halves()?.map(|half| {
        let payload = snap::raw::Encoder::new().compress_vec(&half.encode_to_vec()).ok()?;
        Some(Part { payload: payload.into(), samples: half.sample_count() })
    });
    let [Some(first), Some(second)] = halves else { return None };
    Some([first, second])
}

pub(super) fn to_lines(payload: &[u8]) -> Option<Lines> {
    request::read(payload).map(Lines::from)
}

pub(super) fn to_v2(payload: &[u8]) -> Option<Bytes> {
    let request = RequestV2::from(request::read(payload)?);
    Some(snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).ok()?.into())
}
