//! Answers of the nodes of a job as text.

use polymeter_proto::control::{
    Answer, JobAnswer, LeaseAnswer, NodeAnswer, PlanAnswer, ResetAnswer, TriggerAddedAnswer,
};
use polymeter_proto::text::abridged_list;
use polymeter_service::clock;

use super::keeps::keeps_text;
use super::plan::{cost_text, plan_text, released_text, targets_text};
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::table::table_within;
use crate::output::{terminal, units};

/// Metrics that a line names; further ones are counted.
const NAMED: usize = 4;

/// Prints the answer of each node. Fails if a node refused or did not answer.
pub fn print(answer: &JobAnswer, as_json: bool) -> Result<(), Failure> {
    let answers: Vec<_> = answer.nodes.iter().map(|node| (node, parsed(node))).collect();
    if as_json {
        terminal::print_json(answer)?;
    } else {
        let limit = terminal::width_limit(&std::io::stdout());
        terminal::print(&text(&answers, clock::realtime_us(), limit))?;
    }
    let succeeded =
        answers.iter().filter(|(_, answer)| matches!(answer, Some(Ok(answer)) if is_success(answer)));
    let succeeded = succeeded.count();
    if succeeded == answers.len() {
        return Ok(());
    }
    Err(Failure::Partial(format!("succeeded on {succeeded} of {}", units::counted(answers.len(), "node"))))
}

pub fn have_succeeded(answer: &JobAnswer) -> bool {
    answer.nodes.iter().all(|node| matches!(parsed(node), Some(Ok(answer)) if is_success(&answer)))
}

/// None if the node did not answer.
type Parsed = Option<Result<Answer, Unreadable>>;

/// An answer that cannot be parsed, as from an agent of another version.
struct Unreadable;

fn parsed(node: &NodeAnswer) -> Parsed {
    let answer = node.answer.clone()?;
    Some(serde_json::from_value(answer).map_err(|_another_version| Unreadable))
}

const fn is_success(answer: &Answer) -> bool {
    !matches!(answer, Answer::Refused(_))
}

/// Plans by node, and a table of the other answers.
fn text(answers: &[(&NodeAnswer, Parsed)], now_us: i64, limit: Option<usize>) -> String {
    let mut plans = String::new();
    let mut rows = Vec::new();
    for (node, answer) in answers {
        if let Some(Ok(Answer::Plan(PlanAnswer { plan, refused, .. }))) = answer {
            plans.push_str(&format!("node {}\n", printable_name(&node.node)));
            plans.push_str(&plan_text(plan, refused, now_us, limit));
        } else {
            let (result, detail) = result(node, answer, now_us);
            rows.push(vec![printable_name(&node.node).into_owned(), result, detail]);
        }
    }
    plans + &table_within(&rows, limit)
}

/// A word, and the details.
fn result(node: &NodeAnswer, answer: &Parsed, now_us: i64) -> (String, String) {
    let (result, detail) = match answer {
        None => ("no answer", String::new()),
        Some(Err(Unreadable)) => match abbreviated(node, now_us) {
            Some(abbreviated) => return abbreviated,
            None => (
                "unreadable",
                "cannot read its answer; check that its agent has the version of this command".to_owned(),
            ),
        },
        Some(Ok(Answer::Granted(grant @ LeaseAnswer { metrics, cost, until_us, .. }))) => {
            let granted: Vec<_> =
                metrics.iter().map(|(metric, period)| format!("{metric} {period}")).collect();
            (
                "granted",
                format!(
                    "{}; {}; ends in {}{}",
                    abridged_list(&granted, NAMED),
                    cost_text(cost),
                    units::remaining(now_us, *until_us),
                    targets_text(grant).map_or_else(String::new, |targets| format!("; {targets}"))
                ),
            )
        }
        Some(Ok(Answer::PmuReleased(released))) => ("granted", released_text(released, now_us)),
        Some(Ok(Answer::Reset(ResetAnswer { ended }))) => {
            ("done", format!("{} ended", units::counted(ended, "lease")))
        }
        Some(Ok(Answer::Keeps(keeps))) => ("keeps", keeps_text(keeps)),
        Some(Ok(Answer::TriggerAdded(TriggerAddedAnswer { notes }))) => ("added", notes.join("; ")),
        Some(Ok(Answer::Refused(refusal))) => ("refused", refusal.message.to_string()),
        // The answers to these verbs have no details for a list of nodes.
        Some(Ok(_)) => ("done", String::new()),
    };
    (result.to_owned(), detail)
}

/// A grant that the collector has shortened because the job has very many nodes.
fn abbreviated(node: &NodeAnswer, now_us: i64) -> Option<(String, String)> {
    let answer = node.answer.as_ref()?;
    let word = answer.get("answer")?.as_str().filter(|word| *word == "granted")?;
    let until_us = answer.get("until_us")?.as_i64()?;
    Some((word.to_owned(), format!("ends in {}", units::remaining(now_us, until_us))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text_of(answers: &[Value]) -> String {
        let nodes = answers.iter().enumerate().map(|(number, answer)| NodeAnswer {
            node: format!("n{number}"),
            answer: Some(answer.clone()).filter(|answer| !answer.is_null()),
        });
        let nodes: Vec<_> = nodes.collect();
        text(&nodes.iter().map(|node| (node, parsed(node))).collect::<Vec<_>>(), 0, None)
    }

    #[test]
    fn each_node_has_a_line() {
        let cost = json!({"cpu_percent": 0.5, "samples_per_s": 100.0, "bytes_per_s": 50.0});
        let granted = json!({"answer": "granted", "metrics": {"cpu.usage": "10ms"}, "unavailable": [], "cost": cost, "until_us": 0});
        let refused = json!({"answer": "refused", "code": "forbidden", "message": "no\u{1b}[31m"});
        let text =
            text_of(&[granted, refused, Value::Null, json!({"answer": "granted", "until_us": 0}), json!(7)]);
        let expected = [
            "n0  granted     cpu.usage 10ms; 0.50 % of a CPU, 100 samples/s, 50 bytes/s; ends in 0 s",
            "n1  refused     no?[31m",
            "n2  no answer",
            "n3  granted     ends in 0 s",
            "n4  unreadable  cannot read its answer; check that its agent has the version of this command",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn plans_are_laid_out_node_by_node() {
        let line = json!({"metric": "cpu.usage", "period": "1s", "cause": "baseline"});
        let text = text_of(&[json!({"answer": "plan", "plan": [line], "unavailable": []}), Value::Null]);
        assert_eq!(
            text,
            "node n0\nMETRIC     PERIOD  REASON    ENDS IN\ncpu.usage  1s      baseline  -\nn1  no answer\n"
        );
    }
}
