//! A byte limit for the agents' answers to one request.

use polymeter_proto::wire::control::ControlLine;
use serde_json::{Map, Value, json};

/// Fields that remain in an answer when all answers together would be too long.
const KEPT_FIELDS: [&str; 6] = ["answer", "code", "field", "message", "until_us", "ended"];

const SHORT_BYTES: usize = 1024;

#[derive(Debug)]
pub(super) struct AnswerBudget {
    left: usize,
}

impl AnswerBudget {
    pub(super) const fn new(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// An invalid answer becomes a refusal; one without room is shortened to the fields that tell if the
    /// request was granted.
    pub(super) fn take(&mut self, line: &ControlLine) -> Value {
        let parsed: Option<Map<String, Value>> = serde_json::from_str(line.as_str()).ok();
        let Some(mut answer) = parsed.filter(|answer| answer.get("answer").is_some_and(Value::is_string))
        else {
            let message = "cannot parse the agent's answer; compare the versions of agent and collector";
            return json!({"answer": "refused", "code": "internal", "message": message});
        };
        match self.left.checked_sub(line.as_str().len()) {
            Some(left) => self.left = left,
            None => answer.retain(|key, value| {
                KEPT_FIELDS.contains(&key.as_str())
                    && value.as_str().is_none_or(|text| text.len() <= SHORT_BYTES)
            }),
        }
        Value::Object(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ControlLine {
        text.try_into().unwrap()
    }

    #[test]
    fn shortens_answers_for_which_there_is_no_room() {
        let granted = r#"{"answer":"granted","metrics":{"cpu.usage":"10ms"},"until_us":5}"#;
        let mut budget = AnswerBudget::new(granted.len() + 10);
        assert_eq!(budget.take(&line(granted)), serde_json::from_str::<Value>(granted).unwrap());
        assert_eq!(budget.take(&line(granted)), json!({"answer": "granted", "until_us": 5}));
        for invalid in ["", "[]", "{}", r#"{"answer":7}"#, "hello"] {
            assert_eq!(budget.take(&line(invalid))["code"], "internal", "{invalid}");
        }
    }
}
