//! The periodic work of control: this collector's sign of life, requests of other collectors, and requests that are not stored yet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use polymeter_store::{AnswerRow, ControlRequest, NewControlRequest};
use tokio::time::sleep;
use tracing::{info, warn};

use super::job_requests::JobRequests;
use super::pending_file::{self, FiledRequest};
use crate::limits;

impl JobRequests {
    /// Works until the runtime ends. `file` is the file in which earlier releases kept pending requests.
    pub(super) async fn keep(self: Arc<Self>, file: Option<&Path>) {
        let mut is_filed = file.is_some();
        let (mut is_loaded, mut are_others) = (false, false);
        let mut next_beat = Duration::ZERO;
        loop {
            if let Some(path) = file.filter(|_| is_filed) {
                is_filed = !self.take_over(path).await;
            }
            self.store_unstored().await;
            let now = self.clock.now();
            self.lock().pending_jobs.retain(|_, until_us| *until_us > now.wall_us);
            if self.store.is_shared() && now.since_start >= next_beat {
                next_beat = now.since_start + limits::BEAT_INTERVAL;
                // Without an answer the other collectors may still run.
                are_others = self.store.beat().await.unwrap_or(are_others);
                if are_others {
                    self.lock().others_seen = Some(now.since_start);
                }
            }
            if are_others || !is_loaded {
                is_loaded |= self.find_requests().await;
            }
            sleep(if are_others { limits::REQUESTS_POLL } else { limits::BEAT_INTERVAL }).await;
        }
    }

    /// Stores requests for which the store gave no answer before.
    async fn store_unstored(self: &Arc<Self>) {
        let unstored = std::mem::take(&mut self.lock().unstored);
        for (new, answers) in unstored {
            if new.request.expires_us <= self.clock.now().wall_us {
                continue;
            }
            match self.store.take(new.clone()).await {
                Some(taken) => {
                    self.store.answer(taken.number, answers, None).await;
                    self.catch_up_job(&new.request.job_id);
                }
                None => self.lock().unstored.push((new, answers)),
            }
        }
    }

    /// Sends the stored requests of a job to those of its nodes that have not answered.
    fn catch_up_job(self: &Arc<Self>, job_id: &str) {
        let Ok(job) = job_id.try_into() else { return };
        for node in self.directory.nodes_of(&job) {
            self.catch_up(&job, node);
        }
    }

    /// Moves the requests of a file to the store. Returns true if that is done, or cannot be done.
    async fn take_over(self: &Arc<Self>, path: &Path) -> bool {
        let shown = path.display();
        let requests = match pending_file::read(path) {
            Ok(Some((requests, invalid))) => {
                if invalid > 0 {
                    warn!(path = %shown, count = invalid, "cannot parse some lines of the pending requests");
                }
                requests
            }
            Ok(None) => return true,
            Err(error) => {
                let effect = "agents that were disconnected do not receive earlier requests";
                warn!(%error, path = %shown, effect, "cannot read the pending requests");
                return true;
            }
        };
        let now_us = self.clock.now().wall_us;
        let mut count = 0;
        for filed in requests.into_iter().filter(|filed| filed.until_us > now_us) {
            let (new, answers) = self.filed(filed);
            // A request that was stored before a crash is not stored again.
            let Some(taken) = self.store.take(new.clone()).await else { return false };
            self.store.answer(taken.number, answers, None).await;
            if let Ok(job) = new.request.job_id.as_str().try_into() {
                self.expect(&job, new.request.expires_us);
            }
            self.catch_up_job(&new.request.job_id);
            count += 1;
        }
        match pending_file::set_aside(path) {
            Ok(aside) => {
                info!(
                    "moved {count} pending requests from {shown} to the store; the file is now {}, and `pending_requests_file` can be removed",
                    aside.display()
                );
            }
            Err(error) => {
                warn!(%error, path = %shown, "cannot rename the file of pending requests, which are in the store now; remove it")
            }
        }
        true
    }

    fn filed(&self, filed: FiledRequest) -> (NewControlRequest, Vec<AnswerRow>) {
        let FiledRequest { request, uid, at_us, until_us, answered } = filed;
        let line = request.line.as_str().to_owned();
        let job_id = request.job.to_string();
        let answers = answered.into_iter().map(|session| AnswerRow {
            session: SessionId(session),
            node: String::new(),
            answer: None,
            is_final: true,
        });
        let new = NewControlRequest {
            request_id: format!("file {uid} {at_us} {line}"),
            request: ControlRequest {
                collector_id: self.store.collector_id().to_owned(),
                job_id,
                uid,
                line,
                is_lasting: true,
                at_us,
                expires_us: until_us,
            },
            wanted: Vec::new(),
        };
        (new, answers.collect())
    }

    /// Removes the sign of life, so that other collectors know at once that this one has ended.
    pub(super) async fn leave(&self) {
        if self.store.is_shared() {
            self.store.leave().await;
        }
    }
}
