//! Access to the stored requests, which all collectors of a store share.

use std::io;

use polymeter_proto::series::SessionId;
use polymeter_service::clock::Clock;
use polymeter_store::{
    AnswerRow, AnsweringSession, CollectorRow, ControlTable, NewControlRequest, StoreUrl,
    StoredControlRequest, StoredJobNode, TableThread, Taken,
};

use super::nonce::nonce;
use super::pending_requests;

#[derive(Debug, Clone)]
pub(super) struct RequestStore {
    table: TableThread<ControlTable>,
    collector: CollectorRow,
    /// Other collectors can use the store at the same time.
    is_shared: bool,
    clock: Clock,
}

impl RequestStore {
    /// Starts the thread that uses the tables. `collector_id` is that of the writers.
    pub(super) fn start(store: &StoreUrl, collector_id: &str, clock: Clock) -> io::Result<Self> {
        let collector = CollectorRow {
            collector_id: collector_id.to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let is_shared = store.has_parallel_writers();
        let table = TableThread::start("requests", store.clone(), ControlTable::open)?;
        Ok(Self { table, collector, is_shared, clock })
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn collector_id(&self) -> &str {
        &self.collector.collector_id
    }

    /// Unique over all collectors.
    pub(super) fn request_id(&self) -> String {
        // Without random bytes the time makes it unique, except for another request of the same microsecond.
        nonce().unwrap_or_else(|_| format!("{} {}", self.collector_id(), self.clock.now().wall_us))
    }

    /// None if the store does not answer in time; the request may be stored later.
    pub(super) async fn take(&self, new: NewControlRequest) -> Option<Taken> {
        let now_us = self.clock.now().wall_us;
        self.table
            .run(move |table| {
                table.take(&new, now_us, |earlier| {
                    pending_requests::replaced(&new.request.line, new.request.uid, earlier)
                })
            })
            .await
    }

    /// Sorted by number.
    pub(super) async fn after(&self, number: i64) -> Option<Vec<StoredControlRequest>> {
        let now_us = self.clock.now().wall_us;
        self.table.run(move |table| table.after(number, now_us)).await
    }

    pub(super) async fn unanswered(
        &self,
        job_id: String,
        session: SessionId,
    ) -> Option<Vec<StoredControlRequest>> {
        let now_us = self.clock.now().wall_us;
        self.table.run(move |table| table.unanswered(&job_id, session, now_us)).await
    }

    /// Sessions to which this collector shall forward a request.
    pub(super) async fn claim(
        &self,
        number: i64,
        sessions: Vec<AnsweringSession>,
        is_lasting: bool,
    ) -> Option<Vec<SessionId>> {
        let collector_id = self.collector_id().to_owned();
        self.table.run(move |table| table.claim(number, &sessions, &collector_id, is_lasting)).await
    }

    pub(super) async fn answer(&self, number: i64, answers: Vec<AnswerRow>, until_us: Option<i64>) {
        if !answers.is_empty() {
            let now_us = self.clock.now().wall_us;
            // An agent whose answer is not stored receives the request again, which has no further effect.
            self.table.run(move |table| table.answer(number, &answers, until_us, now_us)).await;
        }
    }

    pub(super) async fn answers(&self, number: i64) -> Vec<AnswerRow> {
        self.table.run(move |table| table.answers(number)).await.unwrap_or_default()
    }

    /// The user has the answers.
    pub(super) async fn settle(&self, number: i64, expires_us: Option<i64>) {
        self.table.run(move |table| table.settle(number, expires_us)).await;
    }

    pub(super) fn remove(&self, number: i64) {
        // Otherwise it is removed when it has expired.
        self.table.submit(move |table| table.remove(number));
    }

    pub(super) async fn job_nodes(&self, job_id: String, may_have_ended: bool) -> Option<Vec<StoredJobNode>> {
        self.table.run(move |table| table.job_nodes(&job_id, may_have_ended)).await
    }

    /// Records that this collector runs. Returns true if others run, too.
    pub(super) async fn beat(&self) -> Option<bool> {
        let collector = self.collector.clone();
        self.table.run(move |table| table.beat(&collector)).await
    }

    pub(super) async fn leave(&self) {
        let collector_id = self.collector_id().to_owned();
        self.table.run(move |table| table.leave(&collector_id)).await;
    }
}
