//! Answers of all nodes of a job: those of this collector's agents, and those that other collectors
//! store.

use std::time::Duration;

use polymeter_proto::wire::control::ControlLine;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::agent_requests::Replies;
use super::answer_budget::AnswerBudget;
use super::request_store::RequestStore;
use super::targets::Target;
use crate::limits;

/// Answers by target; none where no answer came in time.
pub(super) type Gathering = Vec<Option<Value>>;

/// Waits for the answers of the targets, at most for `patience`. `stored` is the number of the request, if
/// other collectors know it.
pub(super) async fn gather(
    targets: &[Target],
    mut replies: Replies,
    stored: Option<(i64, &RequestStore)>,
    patience: Duration,
) -> Gathering {
    let stored = stored.filter(|_| targets.iter().any(|target| target.other.is_some()));
    let own: Vec<usize> =
        targets.iter().enumerate().filter_map(|(index, target)| target.own.as_ref().map(|_| index)).collect();
    let mut answers: Gathering = vec![None; targets.len()];
    let mut budget = AnswerBudget::new(limits::JOB_ANSWER_BYTES);
    let mut polls = interval_at(Instant::now() + limits::ANSWERS_POLL, limits::ANSWERS_POLL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let over = sleep(patience);
    tokio::pin!(over);
    while is_incomplete(targets, &answers, stored.is_some()) {
        tokio::select! {
            Some((position, line)) = replies.next() => {
                let answer = own.get(position).and_then(|index| answers.get_mut(*index));
                if let Some(answer @ None) = answer {
                    *answer = Some(budget.take(&line));
                }
            }
            _ = polls.tick(), if stored.is_some() => {
                if let Some((number, store)) = stored {
                    take_stored(targets, &mut answers, &mut budget, (number, store)).await;
                }
            }
            () = &mut over => break,
        }
    }
    answers
}

/// Some node that can answer has not.
fn is_incomplete(targets: &[Target], answers: &Gathering, is_stored: bool) -> bool {
    targets.iter().zip(answers).any(|(target, answer)| {
        answer.is_none() && (target.own.is_some() || is_stored && target.is_reachable())
    })
}

async fn take_stored(
    targets: &[Target],
    answers: &mut Gathering,
    budget: &mut AnswerBudget,
    (number, store): (i64, &RequestStore),
) {
    for row in store.answers(number).await {
        let Ok(index) = targets.binary_search_by(|target| target.node.as_str().cmp(&row.node)) else {
            continue;
        };
        let text = row.answer.and_then(|text| ControlLine::try_from(text).ok());
        if let (Some(answer @ None), Some(text)) = (answers.get_mut(index), text) {
            *answer = Some(budget.take(&text));
        }
    }
}
