//! Triggers that fired and are to be noticed, on their way from the writers. Pure.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use polymeter_analysis::firings::cause;
use polymeter_analysis::model::{Finding, Severity};
use polymeter_proto::control::TRIGGER_NOTICES;
use polymeter_store::reader::FiringRow;

/// Firings that wait. There is one notice for a job and rule, so that most of more would be repetitions.
const WAITING: usize = 256;

#[derive(Debug)]
pub(crate) struct NoticedFiring {
    pub(crate) job_key: i64,
    pub(crate) firing: FiringRow,
}

pub(crate) type NoticedSender = SyncSender<NoticedFiring>;
pub(crate) type NoticedReceiver = Receiver<NoticedFiring>;

pub(crate) fn noticed_queue() -> (NoticedSender, NoticedReceiver) {
    sync_channel(WAITING)
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
    fn the_name_of_a_trigger_has_no_meaning_in_a_shell() {
        assert_eq!(rule_of("out-of.memory_1"), "trigger:out-of.memory_1");
        assert_eq!(rule_of("x $(touch y)\u{e4}"), "trigger:x___touch_y__");
    }
}
