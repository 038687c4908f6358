//! The spool manager: writes frames without room in memory to the disk, reads segments back when their turn
//! comes, and sends what earlier processes of the agent have left, one session after the other. A disk fault
//! stops nothing: it is logged, and frames that cannot be written are dropped and counted, as without a
//! spool.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use polymeter_service::log_throttle::LogThrottle;
use polymeter_service::spool::SpoolError;
use tracing::{info, warn};

use super::session::DeliverySession;
use super::spool::Spool;
use super::spool::segment::Segment;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct SpoolConfig {
    pub(crate) directory: PathBuf,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(super) struct SpoolManager {
    spool: Option<Spool>,
    outbox_bytes: usize,
    /// Sessions of earlier processes, each with its segments.
    waiting: VecDeque<(SessionId, Vec<u64>)>,
    earlier: Option<DeliverySession>,
    throttle: LogThrottle,
}

impl SpoolManager {
    pub(super) fn open(
        config: Option<&SpoolConfig>,
        delivery: &mut DeliverySession,
        outbox_bytes: usize,
    ) -> Result<Self, SpoolError> {
        let mut manager = Self {
            spool: None,
            outbox_bytes,
            waiting: VecDeque::new(),
            earlier: None,
            throttle: LogThrottle::new(LOG_INTERVAL, 1),
        };
        let Some(config) = config else { return Ok(manager) };
        let spool = Spool::open(&config.directory, config.bytes)?;
        delivery.use_spool();
        manager.waiting = spool.sessions().into();
        if !manager.waiting.is_empty() {
            info!(
                sessions = manager.waiting.len(),
                bytes = spool.bytes(),
                path = %config.directory.display(),
                "the spool contains samples of earlier sessions; sending them"
            );
        }
        manager.spool = Some(spool);
        Ok(manager)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::bytes)
    }

    pub(super) const fn earlier(&mut self) -> Option<&mut DeliverySession> {
        self.earlier.as_mut()
    }

    /// Takes that session out until [`Self::put_back`].
    pub(super) const fn take_earlier(&mut self) -> Option<DeliverySession> {
        self.earlier.take()
    }

    pub(super) fn put_back(&mut self, earlier: Option<DeliverySession>) {
        self.earlier = earlier;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.earlier.is_none() && self.waiting.is_empty()
    }

    /// Writes the frames of `delivery` that are due, or all if the agent `ends`, removes segments that are
    /// not needed any more, and starts the next earlier session.
    pub(super) fn advance(&mut self, delivery: &mut DeliverySession, ends: bool, now_ns: u64) {
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
                    self.warn_throttled(
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
                self.warn_throttled(&error.to_string(), now_ns);
            }
        }
    }

    /// Next earlier session of which anything is left. A session whose end cannot be read now keeps waiting.
    fn next_earlier(&mut self, now_ns: u64) -> Option<DeliverySession> {
        for _ in 0..self.waiting.len() {
            let (session, firsts) = self.waiting.pop_front()?;
            let newest = *firsts.last()?;
            // A segment ends where the next one begins; the end of the newest must be read.
            let last = match self.spool.as_ref()?.read(session, newest) {
                Ok(segment) => segment.last().filter(|last| *last >= newest),
                Err(error) => {
                    self.warn_throttled(&error.to_string(), now_ns);
                    if error.is_temporary() {
                        self.waiting.push_back((session, firsts));
                        continue;
                    }
                    None
                }
            };
            let ends = firsts.iter().skip(1).map(|next| next - 1).chain(last);
            let segments: Vec<_> = firsts.iter().copied().zip(ends).collect();
            if last.is_none() {
                self.warn_throttled(
                    &format!("cannot read the newest spool segment of session {session}"),
                    now_ns,
                );
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
            self.warn_throttled(&error.to_string(), now_ns);
        }
    }

    /// Returns false if that fails now and may succeed later.
    pub(super) fn restore(&mut self, delivery: &mut DeliverySession, segment: u64, now_ns: u64) -> bool {
        let session = delivery.session();
        let read = match self.spool.as_ref().map(|spool| spool.read(session, segment)) {
            Some(Ok(read)) => read,
            Some(Err(error)) if error.is_temporary() => {
                self.warn_throttled(&format!("{error}; retrying"), now_ns);
                return false;
            }
            Some(Err(_)) | None => Segment::default(),
        };
        let (damaged, cut_bytes) = (read.damaged, read.cut_bytes);
        let missing = delivery.restored(segment, read);
        if missing > 0 {
            warn!(
                error = %format_args!("{damaged} records are damaged, and {cut_bytes} bytes at the end are incomplete"),
                remedy = "check the disk; the samples of these frames are lost",
                %session,
                "cannot read {missing} frames from the spool"
            );
        }
        true
    }

    fn warn_throttled(&mut self, fault: &str, now_ns: u64) {
        if self.throttle.allows("disk", Duration::from_nanos(now_ns)) {
            warn!("{fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::SessionDescriptor;
    use polymeter_proto::wire::message::{SkipReason, ToCollector};

    use polymeter_service::spool::record;

    use super::super::spool::SpoolBatch;
    use super::*;

    const EARLIER: SessionId = SessionId(7);

    /// Returns the path of the segment, which is of an earlier process.
    fn write_segment(directory: &std::path::Path) -> PathBuf {
        let note = ToCollector::Skipped {
            session: EARLIER,
            first: 1,
            last: 1,
            reason: SkipReason::Refused,
            span_us: (0, 0),
            lost: Vec::new(),
        };
        let mut bytes = Vec::new();
        record::put(&mut bytes, &[&note.encode()]);
        let batch = SpoolBatch { session: EARLIER, first: 1, entries: 1, continues: None, bytes };
        Spool::open(directory, 1 << 20).unwrap().append(&batch).unwrap();
        directory.join(format!("{EARLIER}-{:016x}.spool", 1))
    }

    #[test]
    fn a_session_that_cannot_be_read_now_is_sent_later() {
        let directory = tempfile::tempdir().unwrap();
        let segment = write_segment(directory.path());
        let hidden = directory.path().join("hidden");
        std::fs::rename(&segment, &hidden).unwrap();
        // A directory can be opened, but not read.
        std::fs::create_dir(&segment).unwrap();
        let descriptor = SessionDescriptor {
            node: "n1".try_into().unwrap(),
            agent_version: "0".try_into().unwrap(),
            started_us: 0,
            processors: Default::default(),
        };
        let mut delivery = DeliverySession::new(SessionId(8), descriptor, 1 << 20, 0);
        let config = SpoolConfig { directory: directory.path().to_owned(), bytes: 1 << 20 };
        let mut manager = SpoolManager::open(Some(&config), &mut delivery, 1 << 20).unwrap();
        manager.advance(&mut delivery, false, 0);
        assert!(manager.earlier().is_none() && !manager.is_empty());
        std::fs::remove_dir(&segment).unwrap();
        std::fs::rename(&hidden, &segment).unwrap();
        manager.advance(&mut delivery, false, 0);
        assert_eq!(manager.earlier().map(|earlier| earlier.session()), Some(EARLIER));
        std::fs::remove_file(&segment).unwrap();
        let mut manager_of_missing = SpoolManager { earlier: None, ..manager };
        manager_of_missing.waiting.push_back((EARLIER, vec![1]));
        manager_of_missing.advance(&mut delivery, false, 0);
        assert!(manager_of_missing.is_empty(), "a missing segment is not waited for");
    }
}
