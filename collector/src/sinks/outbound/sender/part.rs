//! Parts of refused requests.

use bytes::Bytes;
use prost::Message;

use crate::sinks::outbound::http::Answer;
use crate::sinks::outbound::protocol::Count;
use crate::sinks::outbound::request;

pub(super) struct Part {
    /// Compressed request of remote_write 1.0, which the spool has.
    pub(super) payload: Bytes,
    pub(super) samples: u64,
}

/// Halves of a refused part, if a part of it may be accepted: receivers of remote_write 1.0 refuse a whole
/// request, and others one that is too large.
pub(super) fn halves(part: &Part, refusal: &Answer) -> Option<[Part; 2]> {
    if ![400, 413].contains(&refusal.status) || refusal.statement.count != Count::Unstated {
        return None;
    }
    let halves = request::read(&part.payload)?.halves()?.map(|half| {
        let payload = snap::raw::Encoder::new().compress_vec(&half.encode_to_vec()).ok()?;
        Some(Part { payload: payload.into(), samples: half.sample_count() })
    });
    let [Some(first), Some(second)] = halves else { return None };
    Some([first, second])
}
