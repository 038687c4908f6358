//! Triggers that were added to jobs, beyond the life of an agent.

use std::sync::Arc;

use polymeter_proto::trigger::Rule;
use polymeter_service::log::chain;
use tracing::warn;

use crate::config::AgentConfig;
use crate::principal::Principal;
use crate::targets::{Now, Targets};
use crate::trigger_file::{SavedTrigger, TriggerFile, TriggerFileError};
use crate::triggers::{Evaluator, Triggers};

/// Time after the start of the agent in which it finds the jobs that its predecessor had.
const CLAIM_NS: u64 = 600_000_000_000;

#[derive(Debug)]
pub(super) struct KeptTriggers {
    /// None without a control socket: nobody can add triggers.
    file: Option<TriggerFile>,
    /// Triggers of the agent before whose jobs were not found yet.
    unclaimed: Vec<(SavedTrigger, Rule)>,
    claim_until_ns: u64,
    /// Changes of the rules when they were last written.
    written: u64,
    has_failed: bool,
}

impl KeptTriggers {
    pub(super) fn open(config: &AgentConfig, now: Now) -> Self {
        let file = config.control_socket.as_deref().map(TriggerFile::beside);
        let unclaimed = file.as_ref().map_or_else(Vec::new, |file| {
            file.read().unwrap_or_else(|error| {
                log(&error);
                Vec::new()
            })
        });
        let claim_until_ns = now.monotonic_ns.saturating_add(CLAIM_NS);
        Self { file, unclaimed, claim_until_ns, written: 0, has_failed: false }
    }

    /// Gives jobs that were found the triggers that they had, and writes all triggers if they have changed.
    pub(super) fn update(&mut self, triggers: &Triggers, targets: &Targets, now: Now) {
        let Some(file) = &self.file else { return };
        if now.monotonic_ns > self.claim_until_ns {
            self.unclaimed.clear();
        }
        triggers.change(|evaluator| {
            self.unclaimed.retain(|(saved, rule)| !claim(evaluator, targets, saved, rule));
            let changes = evaluator.changes();
            if changes == self.written {
                return;
            }
            self.written = changes;
            let added = evaluator.added().map(|(job, rule, by)| {
                let job = job.descriptor.job_id.clone();
                let owner = targets.job(&job).and_then(|target| target.owner_uid);
                let Principal { uid, administrator } = by;
                SavedTrigger { job, owner, uid, administrator, rule: rule.fields() }
            });
            let all = added.chain(self.unclaimed.iter().map(|(saved, _)| saved.clone())).collect();
            let written = file.write(all);
            if let (Err(error), false) = (&written, self.has_failed) {
                log(error);
            }
            self.has_failed = written.is_err();
        });
    }
}

/// Adds a trigger to its job. False while there is no such job.
fn claim(evaluator: &mut Evaluator, targets: &Targets, saved: &SavedTrigger, rule: &Rule) -> bool {
    let target = targets.job(&saved.job).filter(|target| target.owner_uid == saved.owner);
    let Some(job) = target.and_then(|target| target.job.as_ref()) else { return false };
    let by = Principal { uid: saved.uid, administrator: saved.administrator };
    if let Err(error) = evaluator.add(&Arc::clone(job), rule.clone(), by) {
        warn!(job = %saved.job, trigger = %rule.name, "cannot put a trigger in force again: {error}");
    }
    true
}

fn log(error: &TriggerFileError) {
    warn!("{}", chain(error));
}
