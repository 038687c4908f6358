//! A segment of the agent's spool as bytes: records of messages to the collector. Pure.
//!
//! The contents of a record is a message, byte for byte: a frame, a Skipped, or a Dictionary. A segment
//! begins with the whole dictionary, so that it can be decoded alone, and repeats it when it has changed.

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::ToCollector;
use polymeter_service::spool::record::Records;

use super::super::frame_summary::{FrameSummary, LostSamples, Sources};
use super::super::outbox::Restored;

/// Contents of a segment, as far as it is intact.
#[derive(Debug, Default)]
pub struct Segment {
    pub restored: Vec<Restored>,
    pub dictionary: Vec<Entry>,
    pub damaged: u64,
    /// Bytes at the end that are no record: an incomplete write, or damage.
    pub cut_bytes: usize,
}

/// Decodes the segment `bytes` of a session, which may be damaged in any way.
pub fn read(session: SessionId, bytes: &[u8]) -> Segment {
    let mut segment = Segment::default();
    let mut sources = Sources::default();
    let mut records = Records::of(bytes);
    for contents in records.by_ref() {
        let known = contents.and_then(|contents| segment.take(session, contents, &mut sources));
        segment.damaged += u64::from(known.is_none());
    }
    segment.cut_bytes = records.rest().len();
    segment
}

impl Segment {
    fn take(&mut self, session: SessionId, contents: &[u8], sources: &mut Sources) -> Option<()> {
        if contents.starts_with(&frame::MAGIC) {
            let frame = Frame::decode(contents).ok().filter(|frame| frame.session == session)?;
            frame.dictionary.iter().for_each(|entry| sources.learn(entry));
            let known = FrameSummary::of_frame(&frame, sources);
            let records = frame.events.iter().map(|event| sources.record(event)).collect();
            self.restored.push(Restored::Frame(frame.sequence, contents.to_vec(), known, records));
            self.dictionary.extend(frame.dictionary);
            return Some(());
        }
        match ToCollector::decode(contents).ok()? {
            ToCollector::Dictionary { session: of, entries } if of == session => {
                entries.iter().for_each(|entry| sources.learn(entry));
                self.dictionary.extend(entries);
            }
            ToCollector::Skipped { session: of, first, last, reason, span_us, lost } if of == session => {
                let losses = LostSamples::of_lost(lost, span_us);
                self.restored.push(Restored::Skipped(first, last, losses, reason));
            }
            ToCollector::Dictionary { .. } | ToCollector::Skipped { .. } | ToCollector::Answer { .. } => {
                return None;
            }
        }
        Some(())
    }

    pub fn last(&self) -> Option<u64> {
        self.restored.last().map(|restored| match restored {
            Restored::Frame(last, ..) | Restored::Skipped(_, last, ..) => *last,
        })
    }
}
