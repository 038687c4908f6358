//! Exchange of jobs' values with other collectors, through the store. A thread of its own uses the store, so
//! that a slow one delays no comparison.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use polymeter_service::clock::Clock;
use polymeter_store::{JobPart, StoreUrl, StragglerTable, TableThread};

use crate::limits;
use crate::other_collectors::OtherCollectors;
use crate::stragglers::Watch;

/// Parts of other collectors, each with the id of its collector.
type Parts = Vec<(String, JobPart)>;

#[derive(Debug)]
pub(super) struct Exchange {
    table: TableThread<StragglerTable>,
    collector_id: String,
    others: OtherCollectors,
    clock: Clock,
    /// Answer of the round that is under way.
    answer: Option<Receiver<Parts>>,
    /// Others ran at the last round.
    is_shared: bool,
}

impl Exchange {
    /// Starts the thread. It connects to the store when there are other collectors.
    pub(super) fn start(
        store: StoreUrl,
        collector_id: &str,
        others: OtherCollectors,
        clock: Clock,
    ) -> io::Result<Self> {
        let table = TableThread::start("stragglers", store, StragglerTable::open)?;
        let collector_id = collector_id.to_owned();
        Ok(Self { table, collector_id, others, clock, answer: None, is_shared: false })
    }

    /// Returns what has arrived since the last call, and lets the next round begin: it stores what others
    /// need of `watch`, and reads what `watch` needs. Does nothing while no other collector runs.
    pub(super) fn turn(&mut self, watch: &mut Watch) -> Parts {
        let now = self.clock.now();
        let was_shared = self.is_shared;
        self.is_shared = self.others.ran_within(limits::OTHERS_AWAY, now.since_start);
        if !self.is_shared {
            if was_shared {
                watch.forget_others();
                self.answer = None;
            }
            return Parts::new();
        }
        let arrived = match self.answer.as_ref().map(Receiver::try_recv) {
            // The store is slow. What is not exchanged in time is compared without others.
            Some(Err(TryRecvError::Empty)) => return Parts::new(),
            Some(Ok(parts)) => parts,
            // The store failed, which the thread logs.
            Some(Err(TryRecvError::Disconnected)) | None => Parts::new(),
        };
        self.answer = self.begin(watch, now.wall_us);
        arrived
    }

    fn begin(&self, watch: &mut Watch, now_us: i64) -> Option<Receiver<Parts>> {
        let (shared, wanted) = (watch.take_shared(now_us), watch.wanted(now_us));
        if shared.is_empty() && wanted.is_empty() {
            return None;
        }
        let (sender, answer) = sync_channel(1);
        let collector_id = self.collector_id.clone();
        let is_begun = self.table.submit(move |table| {
            let parts = table.exchange(&collector_id, &shared, &wanted)?;
            // The collector may stop.
            sender.send(parts).ok();
            Ok(())
        });
        is_begun.then_some(answer)
    }
}
