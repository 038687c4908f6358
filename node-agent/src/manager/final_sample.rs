//! The last reading of a job, and of each of its steps: when a part of a job ends, all of the job is read at once, before the
//! scheduler removes its cgroups.

use std::collections::BTreeMap;

use crate::clock;
use crate::lanes::Command;
use crate::lifecycle::exit_events::ExitEvents;
use crate::log;
use crate::sources::Target;
use polymeter_service::token_bucket::TokenBucket;

use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};

/// How often one job is looked at because something happened in it: per second in the long run, and at once. To begin and to
/// end a step is some ten such times. A job in which more happens is looked at with the next rescan.
const STIRS: (u32, u32) = (20, 200);

/// How often a job was stirred of late.
#[derive(Debug)]
pub(super) struct RescanBudget {
    bucket: TokenBucket,
    /// Whether something happened that was not looked at.
    missed: bool,
}

impl Default for RescanBudget {
    fn default() -> Self {
        let bucket = TokenBucket::new(f64::from(STIRS.0), f64::from(STIRS.1));
        Self { bucket, missed: false }
    }
}

/// Jobs in which something has happened that are to be looked at, and whether they are still to be read.
pub(super) type PendingRescans = BTreeMap<TargetKey, bool>;

/// Watches for the ends of jobs.
pub(super) fn watch() -> Option<ExitEvents> {
    let told = |error| {
        log::warning(&format!(
            "cannot watch for the ends of jobs ({error}): what they do after the last deadline is not seen"
        ));
    };
    ExitEvents::new().map_err(told).ok()
}

impl Manager {
    /// Reads the jobs of which a part has ended, and watches what goes on.
    pub(super) async fn heed_ends(&mut self) {
        loop {
            self.read_ended().await;
            let Some((key, is_unread)) = self.stirred.pop_first() else { break };
            if is_unread && let Some(followed) = self.followed.get(&key) {
                self.read_once(followed).await;
            }
            self.look_at(&key).await;
        }
    }

    /// Reads the jobs of which a part has ended, and leaves the rest for later. To open the files of one job takes about as
    /// long as a scheduler takes to remove the cgroups of another: so this stands wherever that is done.
    pub(super) async fn read_ended(&mut self) {
        let happened = self.ends.as_mut().map(ExitEvents::happened).unwrap_or_default();
        for (job_id, ended) in happened {
            let key = Some(job_id);
            let Some(followed) = self.followed.get_mut(&key) else {
                // It is being opened just now, or nobody's any more.
                *self.stirred.entry(key).or_default() |= ended;
                continue;
            };
            if !followed.stirs.bucket.try_take(1.0, clock::monotonic_ns()) {
                followed.stirs.missed = true;
                continue;
            }
            self.stirred.entry(key.clone()).or_default();
            if ended && let Some(followed) = self.followed.get(&key) {
                self.read_once(followed).await;
            }
        }
    }

    /// Looks at the jobs in which too much happened to look at each time.
    pub(super) async fn look_again(&mut self) {
        // What was too much for one round of looking is fetched here, too.
        self.heed_ends().await;
        let missed = self.followed.iter_mut().filter(|(_, followed)| followed.stirs.missed);
        let keys: Vec<TargetKey> = missed
            .map(|(key, followed)| {
                followed.stirs.missed = false;
                key.clone()
            })
            .collect();
        for key in keys {
            self.look_at(&key).await;
        }
    }

    /// Looks for what of a job will end, and reads the job if something has ended meanwhile. Then its parts are what is
    /// there now.
    pub(super) async fn look_at(&mut self, key: &TargetKey) {
        let (Some(job_id), Some(followed)) = (key, self.followed.get(key)) else { return };
        if let (Target::Cgroups(cgroups), Some(ends), Some(job)) =
            (&followed.target, &mut self.ends, &followed.job)
            && ends.look(job_id, job.handle, cgroups)
        {
            self.read_once(followed).await;
        }
        let spare = self.capacity.spare();
        if let Some(followed) = self.followed.get_mut(key)
            && Self::look_below(followed, spare)
        {
            followed.stirs.missed = true;
        }
        self.follow_parts(key).await;
    }

    /// Reads all of a job once, out of turn.
    pub(super) async fn read_once(&self, followed: &TrackedTarget) {
        if let Some(job) = &followed.job {
            self.command(Command::ReadJob(job.handle)).await;
        }
    }

    /// Watches a job no more.
    pub(super) fn unwatch(&mut self, job_id: &polymeter_proto::series::Identifier) {
        if let Some(ends) = &mut self.ends {
            ends.forget(job_id);
        }
    }
}
