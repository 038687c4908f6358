//! A trigger in a request at submission: `trigger NAME when CONDITION keep 30s`, the words of
//! `polymeter trigger add`.

use super::rule::RuleFields;

/// Word with which a trigger begins.
pub const TRIGGER_WORD: &str = "trigger";

const WHEN: &str = "when";

/// Words that end the condition: the options of `polymeter trigger add`.
const ACTIONS: [&str; 9] =
    ["keep", "after", "raise", "raise-for", "stacks", "mark", "notice", "hold-off", "firings"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrigger {
    #[error("`trigger` has no name; write `trigger NAME when oom keep 30s`")]
    NoName,
    #[error("`trigger {0}` has no condition; write `trigger {0} when oom keep 30s`")]
    NoCondition(String),
    #[error("`{word}` of `trigger {name}` has no value; write such as `{example}`")]
    NoValue { name: String, word: String, example: &'static str },
    #[error(
        "unknown word `{word}` in `trigger {name}`; expected one of {}, or a comma before another request",
        ACTIONS.join(", ")
    )]
    Unknown { name: String, word: String },
}

impl RuleFields {
    /// Parses the words behind `trigger`. [`super::Rule::parse`] checks the values.
    ///
    /// # Errors
    /// A part is missing, or a word is unknown.
    pub fn of_request(text: &str) -> Result<Self, InvalidTrigger> {
        let mut words = text.split_whitespace().peekable();
        let name = words.next().filter(|name| *name != WHEN).ok_or(InvalidTrigger::NoName)?.to_owned();
        let mut condition = Vec::new();
        if words.next() == Some(WHEN) {
            while let Some(word) = words.next_if(|word| !ACTIONS.contains(word)) {
                condition.push(word);
            }
        }
        if condition.is_empty() {
            return Err(InvalidTrigger::NoCondition(name));
        }
        let mut fields = Self { name, when: condition.join(" "), ..Self::default() };
        while let Some(word) = words.next() {
            fields.take(word, || words.next())?;
        }
        Ok(fields)
    }

    fn take<'a>(&mut self, word: &str, next: impl FnOnce() -> Option<&'a str>) -> Result<(), InvalidTrigger> {
        let value = |example| {
            let (name, word) = (self.name.clone(), word.to_owned());
            next().ok_or(InvalidTrigger::NoValue { name, word, example })
        };
        match word {
            "keep" => self.keep = Some(value("keep 30s")?.to_owned()),
            "after" => self.after = Some(value("after 5s")?.to_owned()),
            "raise" => {
                // A value without a period is refused as one with an invalid period.
                let pair = value("raise cpu.*=10ms")?;
                let (selector, period) = pair.split_once('=').unwrap_or((pair, ""));
                self.raise.insert(selector.to_owned(), period.to_owned());
            }
            "raise-for" => self.raise_for = Some(value("raise-for 1min")?.to_owned()),
            "stacks" => self.stacks = Some(value("stacks 10ms")?.to_owned()),
            "mark" => self.mark = true,
            "notice" => self.notice = true,
            "hold-off" => self.hold_off = Some(value("hold-off 1min")?.to_owned()),
            // 0 is refused as any other number that is out of range.
            "firings" => self.firings = Some(value("firings 5")?.parse().unwrap_or(0)),
            _ => return Err(InvalidTrigger::Unknown { name: self.name.clone(), word: word.to_owned() }),
        }
        Ok(())
    }

    /// Name and condition, as in a request.
    pub fn request_text(&self) -> String {
        format!("{TRIGGER_WORD} {} {WHEN} {}", self.name, self.when)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::*;

    #[test]
    fn the_words_are_those_of_the_command() {
        let text = "stall when rate(cpu.usage) < 1000 for 30s and pids.current>=1 keep 20s after 1s \
            raise cpu.*=10ms raise memory.*=20ms raise-for 2min stacks 5ms mark notice hold-off 5min firings 3";
        let fields = RuleFields::of_request(text).unwrap();
        assert_eq!(fields.when, "rate(cpu.usage) < 1000 for 30s and pids.current>=1");
        assert_eq!(fields.request_text(), format!("trigger stall when {}", fields.when));
        let some = |text: &str| Some(text.to_owned());
        let expected = RuleFields {
            name: "stall".to_owned(),
            when: fields.when.clone(),
            keep: some("20s"),
            after: some("1s"),
            raise: [("cpu.*", "10ms"), ("memory.*", "20ms")]
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .into(),
            raise_for: some("2min"),
            stacks: some("5ms"),
            mark: true,
            notice: true,
            hold_off: some("5min"),
            firings: Some(3),
        };
        assert_eq!(fields, expected);
        assert!(Rule::parse(&fields).is_ok());
        let short = RuleFields::of_request("oom when oom").unwrap();
        assert_eq!(Rule::parse(&short).unwrap().keep_us, Some(30_000_000));
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (text, part) in [
            ("", "no name"),
            ("when oom", "no name"),
            ("x", "`trigger x` has no condition"),
            ("x oom", "`trigger x` has no condition"),
            ("x when keep 30s", "`trigger x` has no condition"),
            ("x when oom keep", "such as `keep 30s`"),
            ("x when oom keep 30s for 1h", "unknown word `for`"),
            ("x when oom mark cpu.*=10ms", "unknown word `cpu.*=10ms`"),
        ] {
            let error = RuleFields::of_request(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in ["x when oom firings many", "x when oom raise cpu.*", "x when oom cpu.*=10ms keep 1s"] {
            assert!(Rule::parse(&RuleFields::of_request(text).unwrap()).is_err(), "{text}");
        }
    }
}
