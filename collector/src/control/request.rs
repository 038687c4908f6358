//! What the collector must know of a request before it passes it on. The rest is for the agents to check.

use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::wire::control::ControlLine;
use serde_json::{Map, Value};

use super::answer::Refusal;

/// A request about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The job.
    pub(super) job: Identifier,
    /// What is asked.
    pub(super) kind: Kind,
    /// The request, as it is passed on.
    pub(super) line: ControlLine,
}

/// What is asked, as far as it concerns the collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that is done with the answer: nobody needs to hear of it later.
    Once,
    /// Leases.
    Set {
        /// On what.
        selectors: Vec<String>,
        /// For how long, in microseconds, where that is said.
        lasts_us: Option<u64>,
    },
    /// No more leases.
    Reset,
}

/// The request that a line is.
pub(super) fn parse(line: &[u8]) -> Result<Request, Refusal> {
    let malformed = |field, message: &str| Refusal::new("malformed", field, message);
    let text = std::str::from_utf8(line.trim_ascii()).map_err(|error| malformed(None, &error.to_string()))?;
    let object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| malformed(None, &format!("it is no JSON object: {error}")))?;
    let verb = object.get("verb").and_then(Value::as_str);
    let kind = match verb {
        None => return Err(malformed(Some("verb"), "it must say what is asked: {\"verb\": \"plan\"}")),
        Some("plan" | "mark") => Kind::Once,
        Some("reset") => Kind::Reset,
        Some("set") => Kind::Set { selectors: selectors(&object), lasts_us: lasts_us(&object) },
        Some(_) => {
            let message = "through the collector `plan`, `set`, `reset` and `mark` can be asked; ask the rest on the node";
            return Err(Refusal::new("invalid", Some("verb"), message));
        }
    };
    let job = object.get("job").and_then(Value::as_str).ok_or_else(|| {
        Refusal::new("invalid", Some("job"), "name a job; the nodes' own metrics are changed on the nodes")
    })?;
    let job = Identifier::try_from(job).map_err(|error| {
        Refusal::new("invalid", Some("job"), &format!("it cannot be the name of a job: {error}"))
    })?;
    let line = ControlLine::try_from(text).map_err(|error| malformed(None, &error.to_string()))?;
    Ok(Request { job, kind, line })
}

fn selectors(object: &Map<String, Value>) -> Vec<String> {
    let plan = object.get("plan").and_then(Value::as_object);
    plan.map(|plan| plan.keys().cloned().collect()).unwrap_or_default()
}

fn lasts_us(object: &Map<String, Value>) -> Option<u64> {
    let text = object.get("for").and_then(Value::as_str)?;
    // What is none the agents refuse.
    text.parse().ok().map(Period::as_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_is_what_was_asked() {
        let line = r#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"},"for":"1min","new":[1]}"#;
        let request = parse(format!("{line}\r\n").as_bytes()).unwrap();
        assert_eq!(request.job.as_str(), "7");
        let set = Kind::Set { selectors: vec!["cpu.*".to_owned()], lasts_us: Some(60_000_000) };
        assert_eq!(request.kind, set);
        assert_eq!(request.line.as_str(), line);
        assert_eq!(parse(br#"{"verb":"plan","job":"7"}"#).unwrap().kind, Kind::Once);
        assert_eq!(parse(br#"{"verb":"mark","job":"7","name":"x"}"#).unwrap().kind, Kind::Once);
        assert_eq!(parse(br#"{"verb":"reset","job":"7"}"#).unwrap().kind, Kind::Reset);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_field() {
        for (line, code, field) in [
            (&b"hello"[..], "malformed", None),
            (b"\xff", "malformed", None),
            (b"[]", "malformed", None),
            (b"{}", "malformed", Some("verb")),
            (br#"{"verb":7}"#, "malformed", Some("verb")),
            (br#"{"verb":"flush"}"#, "invalid", Some("verb")),
            (br#"{"verb":"set","plan":{}}"#, "invalid", Some("job")),
            (br#"{"verb":"set","job":7}"#, "invalid", Some("job")),
            (br#"{"verb":"set","job":"a\u0007b"}"#, "invalid", Some("job")),
            (b"{\"verb\":\"plan\",\n\"job\":\"7\"}", "malformed", None),
        ] {
            let refusal = parse(line).unwrap_err();
            assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), (code, field), "{refusal:?}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().code, "malformed");
    }
}
