//! Triggers that fired and are to be noticed, on their way from the writers. Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_analysis::firings::cause;
use polymeter_analysis::model::{Finding, Severity};
use polymeter_proto::control::TRIGGER_NOTICES;
use polymeter_service::turns::Turns;
use polymeter_store::reader::FiringRow;

/// Firings that wait. There is one notice for a job and rule, so that most of more would be repetitions. The
/// owners of the jobs share them and take turns.
const WAITING: usize = 512;

#[derive(Debug)]
pub(crate) struct NoticedFiring {
    pub(crate) job_key: i64,
    pub(crate) firing: FiringRow,
}

/// User whose jobs share a queue: the owner of a job, or the job itself while its owner is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sharer {
    Owner(u32),
    Job(i64),
}

impl Sharer {
    pub(crate) fn of(job_key: i64, owner_uid: Option<u32>) -> Self {
        owner_uid.map_or(Self::Job(job_key), Self::Owner)
    }
}

type Waiting = Arc<Mutex<Turns<Sharer, NoticedFiring>>>;

#[derive(Debug, Clone)]
pub(crate) struct NoticedSender(Waiting);

#[derive(Debug)]
pub(crate) struct NoticedReceiver(Waiting);

pub(crate) fn noticed_queue() -> (NoticedSender, NoticedReceiver) {
    let waiting = Arc::new(Mutex::new(Turns::new(WAITING)));
    (NoticedSender(Arc::clone(&waiting)), NoticedReceiver(waiting))
}

impl NoticedSender {
    /// Returns false if the owner of the job has no place for it. Never waits.
    pub(crate) fn offer(&self, owner_uid: Option<u32>, noticed: NoticedFiring) -> bool {
        // The queue is consistent at every point where a panic could occur.
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.offer(Sharer::of(noticed.job_key, owner_uid), noticed).is_ok()
    }
}

impl NoticedReceiver {
    pub(super) fn take(&self) -> Option<NoticedFiring> {
        self.lock().take()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Turns<Sharer, NoticedFiring>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-".contains(letter)
}

/// Name of the notices of a trigger. A user may paste it into a shell.
fn rule_of(trigger: &str) -> String {
    let name = trigger.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    TRIGGER_NOTICES.chars().chain(name).collect()
}

pub(super) fn finding_of(firing: &FiringRow) -> Finding {
    Finding {
        severity: Severity::Warning,
        id: rule_of(&firing.rule),
        resource: None,
        sentence: format!("Trigger fired: {}", cause(firing)),
        evidence: firing.actions.clone(),
        figures: BTreeMap::new(),
        remedies: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_a_user_does_not_hold_back_the_notices_of_others() {
        let (sender, receiver) = noticed_queue();
        let new = |job_key| {
            let firing = FiringRow { rule: "r".to_owned(), ..FiringRow::default() };
            NoticedFiring { job_key, firing }
        };
        let taken = (0..10_000).filter(|number| sender.offer(Some(1000), new(*number))).count();
        assert_eq!(taken, WAITING / 2);
        assert!(sender.offer(Some(2000), new(-1)));
        let first: Vec<i64> = (0..3).filter_map(|_| Some(receiver.take()?.job_key)).collect();
        assert_eq!(first, [0, -1, 1]);
    }

    #[test]
    fn the_name_of_a_trigger_has_no_meaning_in_a_shell() {
        assert_eq!(rule_of("out-of.memory_1"), "trigger:out-of.memory_1");
        assert_eq!(rule_of("x $(touch y)\u{e4}"), "trigger:x___touch_y__");
    }
}
