//! A segment of the spool as bytes: records of messages to the collector, each with its checksum. Pure.
//!
//! ```text
//! segment: "PLS" 01, session (8 bytes), first number (8 bytes), checksum of these (4 bytes), records
//! record:  length (4 bytes), checksum of the contents (4 bytes), checksum of these (4 bytes), contents
//! ```
//!
//! All numbers are little-endian, and checksums CRC-32. The contents of a record is a message to the
//! collector, byte for byte: a frame, a Skipped, or a Dictionary. A segment begins with the whole dictionary,
//! so that it can be decoded alone, and repeats it when it has changed.

use polymeter_proto::limits;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::ToCollector;

use super::super::frame_summary::{FrameSummary, LostSamples, Sources};
use super::super::outbox::Restored;

const MAGIC: [u8; 4] = *b"PLS\x01";

/// The size of the head of a segment, in bytes.
pub(crate) const HEAD_BYTES: usize = 24;

/// The size of the head of a record, in bytes.
const RECORD_HEAD_BYTES: usize = 12;

/// Returns the head of a segment.
pub fn head(session: SessionId, first: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&session.0.to_le_bytes());
    head.extend_from_slice(&first.to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    head
}

/// Appends a record.
pub(crate) fn put(out: &mut Vec<u8>, contents: &[u8]) {
    // A frame has at most 4 MiB, so the length always fits.
    let len = u32::try_from(contents.len()).unwrap_or(u32::MAX);
    let mut head = len.to_le_bytes().to_vec();
    head.extend_from_slice(&crc32fast::hash(contents).to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(contents);
}

/// The contents of a segment, as far as it is intact.
#[derive(Debug, Default)]
pub struct Segment {
    /// Frames and notes.
    pub restored: Vec<Restored>,
    /// The dictionary that is needed to decode them.
    pub dictionary: Vec<Entry>,
    /// The number of damaged records.
    pub damaged: u64,
    /// The bytes at the end that are no record: an incomplete write, or damage.
    pub cut_bytes: usize,
}

/// Returns the session and the first number of a segment that begins with `bytes`; none if they are damaged.
pub fn session_and_first(bytes: &[u8]) -> Option<(SessionId, u64)> {
    let (head, checksum) = bytes.get(..HEAD_BYTES)?.split_last_chunk::<4>()?;
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let (session, rest) = rest.split_first_chunk::<8>()?;
    let first = rest.first_chunk::<8>()?;
    let is_whole = *magic == MAGIC && crc32fast::hash(head) == u32::from_le_bytes(*checksum);
    is_whole.then(|| (SessionId(u64::from_le_bytes(*session)), u64::from_le_bytes(*first)))
}

/// Decodes the segment `bytes`, which may be damaged in any way.
pub fn read(bytes: &[u8]) -> Segment {
    let mut segment = Segment::default();
    let Some((session, _)) = session_and_first(bytes) else {
        segment.cut_bytes = bytes.len();
        return segment;
    };
    let mut sources = Sources::default();
    let mut rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
    while let Some((contents, behind)) = split_record(rest) {
        rest = behind;
        let known = contents.and_then(|contents| segment.take(session, contents, &mut sources));
        segment.damaged += u64::from(known.is_none());
    }
    segment.cut_bytes = rest.len();
    segment
}

/// Splits off the first record. Returns its contents, none if it is damaged, and the bytes behind it. Returns
/// none if there is no record.
fn split_record(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(RECORD_HEAD_BYTES)?;
    let (head, of_head) = head.split_last_chunk::<4>()?;
    if crc32fast::hash(head) != u32::from_le_bytes(*of_head) {
        return None;
    }
    let (len, contents_checksum) = head.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok().filter(|len| *len <= limits::FRAME_BYTES)?;
    let (contents, behind) = rest.split_at_checked(len)?;
    let checksum = u32::from_le_bytes(*contents_checksum.first_chunk()?);
    Some(((crc32fast::hash(contents) == checksum).then_some(contents), behind))
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

    /// Returns the number of the newest frame.
    pub fn last(&self) -> Option<u64> {
        self.restored.last().map(|restored| match restored {
            Restored::Frame(last, ..) | Restored::Skipped(_, last, ..) => *last,
        })
    }
}
