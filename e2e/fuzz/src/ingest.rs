//! A sequence of an agent's messages: the collector accepts each number of a session once, in order.

use std::time::Duration;

use polymeter_collector::clock::Now;
use polymeter_collector::ingest::{Ingest, OutOfRangePolicy, TimeRange, Verdict};
use polymeter_collector::session_messages::Peer;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::ToCollector;

pub fn body(data: &[u8]) {
    // The length of the input selects the policy, so that the seeds need no extra byte.
    let out_of_range =
        if data.len().is_multiple_of(2) { OutOfRangePolicy::Reject } else { OutOfRangePolicy::Quarantine };
    let mut ingest = Ingest::new(TimeRange { out_of_range, ..TimeRange::default() });
    let peer = Peer::from(&b"peer"[..]);
    let (mut rest, mut number) = (data, 0);
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (message, next) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
        rest = next;
        number += 1;
        let now = Now { since_start: Duration::from_millis(number), wall_us: 1_790_000_000_000_000 };
        let mut bytes = message.to_vec();
        bytes.extend(crc32fast::hash(message).to_le_bytes());
        let verdict = match (Frame::decode(&bytes), ToCollector::decode(message)) {
            (Ok(frame), _) => {
                if !ingest.knows(frame.session) {
                    ingest.open(frame.session, &peer, 0, now);
                }
                ingest.frame(&peer, frame, now)
            }
            (_, Ok(message)) => ingest.message(&peer, message, now),
            _ => continue,
        };
        if let Verdict::Accepted(accepted) | Verdict::Rejected(accepted, _) = verdict {
            let rows = accepted.rows() + accepted.rows_quarantined();
            assert!(accepted.series().count() <= rows.max(1) * 4096);
            assert!(out_of_range == OutOfRangePolicy::Quarantine || accepted.quarantined.is_empty());
        }
    }
}
