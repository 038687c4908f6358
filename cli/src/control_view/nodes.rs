//! What the nodes of a job answer, as people read it.

use polymeter_agent::control::Answer;
use polymeter_collector::control::answer::{JobAnswer, NodeAnswer};

use super::json;
use super::lease::{left, plan_text};
use crate::failure::Failure;
use crate::printable::printable_name;
use crate::report::units;
use crate::terminal;

/// Metrics that one line names; of more it says how many.
const NAMED: usize = 4;

/// Prints what each node says, and fails where one of them refuses or does not answer.
pub(super) fn show(answer: &JobAnswer, as_json: bool) -> Result<(), Failure> {
    let said: Vec<_> = answer.nodes.iter().map(|node| (node, parsed(node))).collect();
    if as_json { terminal::print_json(&json(answer)) } else { terminal::print(&text(&said)) }?;
    let done = said.iter().filter(|(_, said)| matches!(said, Some(Ok(said)) if is_done(said))).count();
    if done == said.len() {
        return Ok(());
    }
    Err(Failure::Partly(format!("done on {done} of {} nodes", said.len())))
}

/// What a node said: nothing, an answer, or something that is none.
type Said = Option<Result<Answer, ()>>;

fn parsed(node: &NodeAnswer) -> Said {
    let answer = node.answer.clone()?;
    Some(serde_json::from_value(answer).map_err(|_another_version| ()))
}

const fn is_done(answer: &Answer) -> bool {
    !matches!(answer, Answer::Refused(_))
}

fn text(said: &[(&NodeAnswer, Said)]) -> String {
    let mut plans = String::new();
    let mut rows = Vec::new();
    for (node, said) in said {
        if let Some(Ok(Answer::Plan { plan, refused, .. })) = said {
            plans.push_str(&format!("node {}\n", printable_name(&node.node)));
            plans.push_str(&plan_text(plan, refused));
        } else {
            let (word, more) = line(node, said);
            rows.push(vec![printable_name(&node.node).into_owned(), word, more]);
        }
    }
    plans + &terminal::table(&rows)
}

/// What a node says, in a word and a sentence.
fn line(node: &NodeAnswer, said: &Said) -> (String, String) {
    let (word, more) = match said {
        None => ("no answer", String::new()),
        Some(Err(())) => match short(node) {
            Some(short) => return short,
            None => ("refused", "its answer cannot be read; is the agent of another version?".to_owned()),
        },
        Some(Ok(Answer::Granted { metrics, cost, until_us, .. })) => {
            let named = metrics.iter().take(NAMED).map(|(metric, period)| format!("{metric} {period}"));
            let more = metrics.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = named.collect::<Vec<_>>().join(", ");
            let samples = units::number(cost.samples_per_s);
            let cost = format!("{:.2} % of a CPU, {samples} samples/s", cost.cpu_percent);
            ("granted", format!("{named}{more}; {cost}; ends in {}", left(*until_us)))
        }
        Some(Ok(Answer::Reset { ended })) => ("done", format!("{ended} leases ended")),
        Some(Ok(Answer::Refused(refusal))) => ("refused", refusal.message.to_string()),
        Some(Ok(
            Answer::Status(_)
            | Answer::Plan { .. }
            | Answer::Metrics { .. }
            | Answer::Registered { .. }
            | Answer::Samples { .. }
            | Answer::Progress { .. }
            | Answer::Lagged { .. }
            | Answer::Ended {}
            | Answer::Started { .. }
            | Answer::Done {},
        )) => ("done", String::new()),
    };
    (word.to_owned(), more)
}

/// An answer of which the collector has left only whether it was granted, for the job has very many nodes.
fn short(node: &NodeAnswer) -> Option<(String, String)> {
    let answer = node.answer.as_ref()?;
    let word = answer.get("answer")?.as_str().filter(|word| *word == "granted")?;
    let until_us = answer.get("until_us")?.as_i64()?;
    Some((word.to_owned(), format!("ends in {}", left(until_us))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(answers: &[Value]) -> String {
        let node = |(number, answer): (usize, &Value)| NodeAnswer {
            node: format!("n{number}"),
            answer: Some(answer.clone()).filter(|answer| !answer.is_null()),
        };
        let nodes: Vec<_> = answers.iter().enumerate().map(node).collect();
        text(&nodes.iter().map(|node| (node, parsed(node))).collect::<Vec<_>>())
    }

    #[test]
    fn each_node_has_a_line() {
        let cost = json!({"cpu_percent": 0.5, "samples_per_s": 100.0, "bytes_per_s": 50.0});
        let granted = json!({"answer": "granted", "metrics": {"cpu.usage": "10ms"}, "unavailable": [], "cost": cost, "until_us": 0});
        let refused = json!({"answer": "refused", "code": "forbidden", "message": "no\u{1b}[31m"});
        let text =
            shown(&[granted, refused, Value::Null, json!({"answer": "granted", "until_us": 0}), json!(7)]);
        let expected = [
            "n0  granted    cpu.usage 10ms; 0.50 % of a CPU, 100 samples/s; ends in 0 s",
            "n1  refused    no?[31m",
            "n2  no answer",
            "n3  granted    ends in 0 s",
            "n4  refused    its answer cannot be read; is the agent of another version?",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn plans_are_shown_node_by_node() {
        let line = json!({"metric": "cpu.usage", "period": "1s", "cause": "baseline"});
        let text = shown(&[json!({"answer": "plan", "plan": [line], "unavailable": []}), Value::Null]);
        assert_eq!(
            text,
            "node n0\nMETRIC     PERIOD  BECAUSE OF  ENDS IN\ncpu.usage  1s      baseline    -\nn1  no answer\n"
        );
    }
}
