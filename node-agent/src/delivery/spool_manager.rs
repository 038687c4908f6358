//! The spool at work: writes what the delivery has no room for, reads back what its turn has come for, and sends what an
//! earlier life of the agent has left, one session after the other. No fault of the disk stops anything: it is said, and
//! what cannot be written is dropped and counted, as if there were no spool.

use std::collections::VecDeque;
use std::path::PathBuf;

use polymeter_proto::series::SessionId;

use super::session::DeliverySession;
use super::spool::segment::Segment;
use super::spool::{Spool, SpoolError};
use tracing::{info, warn};

/// How often faults of the disk are said, in nanoseconds.
const SAY_AGAIN_NS: u64 = 60_000_000_000;

/// Where the spool is, and how much may lie there.
#[derive(Debug, Clone)]
pub(crate) struct SpoolConfig {
    pub(crate) directory: PathBuf,
    pub(crate) bytes: u64,
}

/// The spool and those who use it beside the agent's own delivery.
#[derive(Debug, Default)]
pub(super) struct SpoolManager {
    spool: Option<Spool>,
    outbox_bytes: usize,
    /// Sessions of earlier lives whose turn has not come, with their segments.
    waiting: VecDeque<(SessionId, Vec<u64>)>,
    /// The one whose turn it is.
    earlier: Option<DeliverySession>,
    said_ns: Option<u64>,
}

impl SpoolManager {
    /// Takes the spool into use, and makes `delivery` use it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn open(
        place: Option<&SpoolConfig>,
        delivery: &mut DeliverySession,
        outbox_bytes: usize,
    ) -> Result<Self, SpoolError> {
        let Some(place) = place else { return Ok(Self::default()) };
        let spool = Spool::open(&place.directory, place.bytes)?;
        delivery.use_spool();
        let waiting: VecDeque<_> = spool.sessions().into();
        if !waiting.is_empty() {
            info!(
                sessions = waiting.len(),
                bytes = spool.bytes(),
                path = %place.directory.display(),
                "the spool has samples of earlier sessions"
            );
        }
        Ok(Self { spool: Some(spool), outbox_bytes, waiting, ..Self::default() })
    }

    /// Bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::bytes)
    }

    /// The delivery of an earlier life whose turn it is.
    pub(super) const fn earlier(&mut self) -> Option<&mut DeliverySession> {
        self.earlier.as_mut()
    }

    /// Takes that delivery away for a while.
    pub(super) const fn take_earlier(&mut self) -> Option<DeliverySession> {
        self.earlier.take()
    }

    /// Puts it back.
    pub(super) fn put_back(&mut self, earlier: Option<DeliverySession>) {
        self.earlier = earlier;
    }

    /// Whether nothing of earlier lives is left.
    pub(super) fn is_empty(&self) -> bool {
        self.earlier.is_none() && self.waiting.is_empty()
    }

    /// Writes what must be written of `delivery`, all where the agent `ends`, and removes what is not wanted any more.
    pub(super) fn attend(&mut self, delivery: &mut DeliverySession, ends: bool, now_ns: u64) {
        if self.spool.is_none() {
            return;
        }
        self.release(delivery, now_ns);
        while let Some(spool) = &mut self.spool
            && let Some(batch) = delivery.spill(spool.open_segment(delivery.segment_bytes()), ends, now_ns)
        {
            match spool.append(&batch) {
                Ok(segment) => delivery.spilled(&batch, segment),
                Err(error) => {
                    self.say(&format!("{error}; what memory has no room for is dropped and counted"), now_ns);
                    delivery.not_spilled(now_ns);
                    break;
                }
            }
        }
        if let Some(mut earlier) = self.earlier.take() {
            self.release(&mut earlier, now_ns);
            self.earlier = (!earlier.is_empty()).then_some(earlier);
        }
        if self.earlier.is_none() {
            self.earlier = self.next_earlier(now_ns);
        }
    }

    fn release(&mut self, delivery: &mut DeliverySession, now_ns: u64) {
        for segment in delivery.released() {
            let removed = self.spool.as_mut().map(|spool| spool.remove(delivery.session(), segment));
            if let Some(Err(error)) = removed {
                self.say(&error.to_string(), now_ns);
            }
        }
    }

    /// The next session of an earlier life of which anything is left.
    fn next_earlier(&mut self, now_ns: u64) -> Option<DeliverySession> {
        while let Some((session, firsts)) = self.waiting.pop_front() {
            let newest = *firsts.last()?;
            // A segment ends where the next one begins, but for the newest.
            let last = match self.spool.as_ref()?.read(session, newest) {
                Ok(segment) => segment.last().filter(|last| *last >= newest),
                Err(error) => {
                    self.say(&error.to_string(), now_ns);
                    None
                }
            };
            let ends = firsts.iter().skip(1).map(|next| next - 1).chain(last);
            let segments: Vec<_> = firsts.iter().copied().zip(ends).collect();
            if last.is_none() {
                self.say(&format!("nothing can be read of the newest segment of session {session}"), now_ns);
                self.remove(session, newest, now_ns);
            }
            if !segments.is_empty() {
                return Some(DeliverySession::replay(session, self.outbox_bytes, &segments, now_ns));
            }
        }
        None
    }

    fn remove(&mut self, session: SessionId, segment: u64, now_ns: u64) {
        if let Some(Err(error)) = self.spool.as_mut().map(|spool| spool.remove(session, segment)) {
            self.say(&error.to_string(), now_ns);
        }
    }

    /// Reads a segment back for `delivery`. Says false where that is not possible now, and may be later.
    pub(super) fn restore(&mut self, delivery: &mut DeliverySession, segment: u64, now_ns: u64) -> bool {
        let session = delivery.session();
        let read = match self.spool.as_ref().map(|spool| spool.read(session, segment)) {
            Some(Ok(read)) => read,
            Some(Err(SpoolError::Disk { source, .. })) if source.kind() != std::io::ErrorKind::NotFound => {
                self.say(&format!("cannot read the spool, and will try again: {source}"), now_ns);
                return false;
            }
            Some(Err(_)) | None => Segment::default(),
        };
        let (damaged, cut_bytes) = (read.damaged, read.cut_bytes);
        let missing = delivery.restored(segment, read);
        if missing > 0 {
            warn!(
                error = %format_args!("{damaged} records are damaged, {cut_bytes} bytes are cut off"),
                remedy = "the collector counts them as lost",
                %session,
                "cannot read {missing} frames of the spool"
            );
        }
        true
    }

    /// Says a fault of the disk, but not again and again.
    fn say(&mut self, fault: &str, now_ns: u64) {
        if self.said_ns.is_none_or(|said_ns| now_ns.saturating_sub(said_ns) >= SAY_AGAIN_NS) {
            self.said_ns = Some(now_ns);
            warn!("{fault}");
        }
    }
}
