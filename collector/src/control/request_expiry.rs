//! Periodic work of control: this collector's sign of life, requests of other collectors, and requests
//! that are not stored yet.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::job_requests::JobRequests;
use crate::limits;

impl JobRequests {
    /// Works until the runtime ends.
    pub(super) async fn keep(self: Arc<Self>) {
        let (mut is_loaded, mut are_others) = (false, false);
        let mut next_beat = Duration::ZERO;
        loop {
            self.store_unstored().await;
            let now = self.clock.now();
            self.lock().pending_jobs.retain(|_, until_us| *until_us > now.wall_us);
            if self.store.is_shared() && now.since_start >= next_beat {
                next_beat = now.since_start + limits::BEAT_INTERVAL;
                // Without an answer the other collectors may still run.
                are_others = self.store.beat().await.unwrap_or(are_others);
                if are_others {
                    self.others.saw(now.since_start);
                }
            }
            if are_others {
                self.share_demands().await;
            }
            if are_others || !is_loaded {
                is_loaded |= self.find_requests().await;
            }
            sleep(if are_others { limits::REQUESTS_POLL } else { limits::BEAT_INTERVAL }).await;
        }
    }

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

    fn catch_up_job(self: &Arc<Self>, job_id: &str) {
        let Ok(job) = job_id.try_into() else { return };
        for node in self.directory.nodes_of(&job) {
            self.catch_up(&job, node);
        }
    }

    /// Removes the sign of life, so that other collectors know at once that this one has ended.
    pub(super) async fn leave(&self) {
        if self.store.is_shared() {
            self.store.leave().await;
        }
    }
}
