//! What the collector answers: shared with the `polymeter` command.

use polymeter_proto::text::Text;
use polymeter_proto::wire::control::ControlLine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What is answered to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The agents of the job were asked.
    Nodes(JobAnswer),
    /// What was told is stored.
    Done {},
    /// Nobody was asked.
    Refused(Refusal),
}

/// What the nodes of a job say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobAnswer {
    /// The job.
    pub job: String,
    /// When it takes effect on all of them, in microseconds since the epoch; none for what is done at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// Each node, sorted by name.
    pub nodes: Vec<NodeAnswer>,
}

/// What one node says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// The node.
    pub node: String,
    /// Its agent's answer, as its control socket would give it; none where none came in time.
    pub answer: Option<Value>,
}

/// Why nobody was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A word for programs.
    pub code: String,
    /// The field that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(code: &str, field: Option<&str>, message: &str) -> Self {
        Self { code: code.to_owned(), field: field.map(str::to_owned), message: Text::of(message).into() }
    }
}

impl Answer {
    /// The answer as one line.
    pub(super) fn line(&self) -> Vec<u8> {
        // Plain data into memory: it cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// What of an answer is kept where all answers together would be too long.
const KEPT: [&str; 6] = ["answer", "code", "field", "message", "until_us", "ended"];

/// Agents' answers on their way to one user, within `left` bytes.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
}

impl Budget {
    pub(super) const fn new(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// What an agent answered. One that is no answer becomes a refusal; and one for which there is no room says only
    /// whether it was granted.
    pub(super) fn take(&mut self, line: &ControlLine) -> Value {
        let parsed: Option<Map<String, Value>> = serde_json::from_str(line.as_str()).ok();
        let Some(mut answer) = parsed.filter(|answer| answer.get("answer").is_some_and(Value::is_string))
        else {
            let message = "the agent answers what cannot be read; is it of another version?";
            return json!({"answer": "refused", "code": "internal", "message": message});
        };
        match self.left.checked_sub(line.as_str().len()) {
            Some(left) => self.left = left,
            None => answer.retain(|key, value| {
                KEPT.contains(&key.as_str()) && value.as_str().is_none_or(|text| text.len() <= SHORT_BYTES)
            }),
        }
        Value::Object(answer)
    }
}

/// The longest text of an answer that was made short.
const SHORT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ControlLine {
        text.try_into().unwrap()
    }

    #[test]
    fn answers_are_passed_on_as_they_are_while_there_is_room() {
        let granted = r#"{"answer":"granted","metrics":{"cpu.usage":"10ms"},"until_us":5}"#;
        let mut budget = Budget::new(granted.len() + 10);
        assert_eq!(budget.take(&line(granted)), serde_json::from_str::<Value>(granted).unwrap());
        assert_eq!(budget.take(&line(granted)), json!({"answer": "granted", "until_us": 5}));
        for strange in ["", "[]", "{}", r#"{"answer":7}"#, "hello"] {
            assert_eq!(budget.take(&line(strange))["code"], "internal", "{strange}");
        }
    }

    #[test]
    fn lines_say_what_they_are() {
        let nodes = vec![
            NodeAnswer { node: "n1".into(), answer: Some(json!({"answer": "reset", "ended": 1})) },
            NodeAnswer { node: "n2".into(), answer: None },
        ];
        let answer = Answer::Nodes(JobAnswer { job: "7".into(), at_us: Some(9), nodes });
        let line = String::from_utf8(answer.line()).unwrap();
        assert_eq!(
            line,
            "{\"answer\":\"nodes\",\"job\":\"7\",\"at_us\":9,\"nodes\":[{\"node\":\"n1\",\"answer\":{\"answer\":\"reset\",\"ended\":1}},{\"node\":\"n2\",\"answer\":null}]}\n"
        );
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
    }
}
