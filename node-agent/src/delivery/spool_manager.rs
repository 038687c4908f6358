//! The spool manager: writes frames without room in memory to the disk, reads segments back when their turn comes, and
//! sends what earlier processes of the agent have left, one session after the other. A disk fault stops nothing: it is
//! logged, and frames that cannot be written are dropped and counted, as without a spool.

use std::collections::VecDeque;
use std::path::PathBuf;

use polymeter_proto::series::SessionId;

use super::session::DeliverySession;
use super::spool::segment::Segment;
use super::spool::{Spool, SpoolError};
use tracing::{info, warn};

/// The interval between log messages about disk faults, in nanoseconds.
const SAY_AGAIN_NS: u64 = 60_000_000_000;

/// The directory of the spool and its size limit.
#[derive(Debug, Clone)]
pub(crate) struct SpoolConfig {
    pub(crate) directory: PathBuf,
    pub(crate) bytes: u64,
}

/// The spool, and the sessions of earlier processes that are in it.
#[derive(Debug, Default)]
pub(super) struct SpoolManager {
    spool: Option<Spool>,
    outbox_bytes: usize,
    /// Sessions of earlier processes that wait for their turn, with their segments.
    waiting: VecDeque<(SessionId, Vec<u64>)>,
    /// The earlier session that is being sent.
    earlier: Option<DeliverySession>,
    said_ns: Option<u64>,
}

impl SpoolManager {
    /// Opens the spool, and enables it in `delivery`.
    ///
    /// # Errors
    /// Returns an error if the spool cannot be used.
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
                "the spool contains samples of earlier sessions; sending them"
            );
        }
        Ok(Self { spool: Some(spool), outbox_bytes, waiting, ..Self::default() })
    }

    /// Returns the bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::bytes)
    }

    /// Returns the earlier session that is being sent.
    pub(super) const fn earlier(&mut self) -> Option<&mut DeliverySession> {
        self.earlier.as_mut()
    }

    /// Takes that session out until [`Self::put_back`].
    pub(super) const fn take_earlier(&mut self) -> Option<DeliverySession> {
        self.earlier.take()
    }

    /// Puts it back.
    pub(super) fn put_back(&mut self, earlier: Option<DeliverySession>) {
        self.earlier = earlier;
    }

    /// True if nothing of earlier sessions is left.
    pub(super) fn is_empty(&self) -> bool {
        self.earlier.is_none() && self.waiting.is_empty()
    }

    /// Writes the frames of `delivery` that are due, or all if the agent `ends`, removes segments that are not needed
    /// any more, and starts the next earlier session.
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
                    self.say(
                        &format!("{error}; samples that do not fit into memory are dropped and counted"),
                        now_ns,
                    );
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

    /// Returns the next earlier session of which anything is left.
    fn next_earlier(&mut self, now_ns: u64) -> Option<DeliverySession> {
        while let Some((session, firsts)) = self.waiting.pop_front() {
            let newest = *firsts.last()?;
            // A segment ends where the next one begins; the end of the newest must be read.
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
                self.say(&format!("cannot read the newest spool segment of session {session}"), now_ns);
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

    /// Reads a segment back for `delivery`. Returns false if that fails now and may succeed later.
    pub(super) fn restore(&mut self, delivery: &mut DeliverySession, segment: u64, now_ns: u64) -> bool {
        let session = delivery.session();
        let read = match self.spool.as_ref().map(|spool| spool.read(session, segment)) {
            Some(Ok(read)) => read,
            Some(Err(SpoolError::Disk { source, .. })) if source.kind() != std::io::ErrorKind::NotFound => {
                self.say(&format!("cannot read the spool: {source}; retrying"), now_ns);
                return false;
            }
            Some(Err(_)) | None => Segment::default(),
        };
        let (damaged, cut_bytes) = (read.damaged, read.cut_bytes);
        let missing = delivery.restored(segment, read);
        if missing > 0 {
            warn!(
                error = %format_args!("{damaged} records are damaged, and {cut_bytes} bytes at the end are incomplete"),
                remedy = "their samples are counted as lost",
                %session,
                "cannot read {missing} frames from the spool"
            );
        }
        true
    }

    /// Logs a disk fault, at most once per `SAY_AGAIN_NS`.
    fn say(&mut self, fault: &str, now_ns: u64) {
        if self.said_ns.is_none_or(|said_ns| now_ns.saturating_sub(said_ns) >= SAY_AGAIN_NS) {
            self.said_ns = Some(now_ns);
            warn!("{fault}");
        }
    }
}
