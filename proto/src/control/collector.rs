//! The collector's part of the control language: requests about whole jobs, their answers, and the signed
//! form in which they arrive over TCP.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{self, Fields, identifier, invalid};
use super::reading::ReadSession;
use super::refusal::Refusal;
use super::registry::{Request, VERBS};
use super::tokens::TokenList;
use super::verb::{Remote, Verb};
use super::verbs::keep::KeepRequest;
use super::verbs::pmu_release::PmuReleaseRequest;
use super::verbs::pmu_resume::PmuResumeRequest;
use crate::ledger::{JobDetails, JobFacts};
use crate::period::Period;
use crate::series::{DEVICE_METRICS, Identifier};
use crate::text::Text;
use crate::wire::control::ControlLine;

/// Level of the leases that release hardware events, while they wait for nodes that are away.
const PMU_LEVEL: &str = "pmu";

/// Level of leases of the ring, which replace no others.
const RING_LEVEL: &str = "ring";

const STATE: &str = "state";
const STATE_EXAMPLE: &str = r#"{"verb":"state","job":"4242","state":"TIMEOUT"}"#;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CollectorAnswer {
    Nodes(JobAnswer),
    Done {},
    /// Queries may follow, in the form of [`crate::read`].
    Reading(ReadSession),
    Tokens(TokenList),
    NoticeChoices(NoticeChoices),
    /// The collector refused the request and sent it to no agent.
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobAnswer {
    pub job: String,
    /// Common time at which the request takes effect, in microseconds since the epoch; none for at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// Nodes of the job by name, then agents of devices that serve them.
    pub nodes: Vec<NodeAnswer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeAnswer {
    pub node: String,
    /// Answer in the form of the control socket; none if none arrived in time.
    pub answer: Option<Value>,
}

impl CollectorAnswer {
    /// Encodes the answer as one line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        // Serialising plain data into memory cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Request for the nodes of a job: the fields that the collector needs. The agents check the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedRequest {
    pub verb: &'static str,
    pub job: Identifier,
    pub remote: Remote,
    pub selectors: Vec<String>,
    pub level: Option<String>,
    /// Name of the trigger that it adds or removes.
    pub trigger: Option<String>,
    pub duration_us: Option<u64>,
    pub line: ControlLine,
}

/// Fields that the collector reads. Agents refuse unknown fields.
#[derive(Debug, Default, Deserialize)]
struct RoutedFields {
    job: Option<String>,
    #[serde(default)]
    plan: BTreeMap<String, IgnoredAny>,
    level: Option<String>,
    #[serde(default)]
    ring: bool,
    #[serde(rename = "for")]
    duration: Option<String>,
    rule: Option<RoutedRule>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RoutedRule {
    name: String,
}

impl RoutedRequest {
    /// True if it asks for metrics of devices outside the nodes.
    pub fn wants_devices(&self) -> bool {
        self.selectors.iter().any(|selector| selector.starts_with(DEVICE_METRICS))
    }

    /// Parses a request that a user sends now: one about the last time becomes one about an interval, which
    /// all nodes keep. `now_us` is in microseconds since the epoch, and `number` that of the interval.
    ///
    /// # Errors
    ///
    /// Refuses what the collector does not forward.
    pub fn parse_now(line: &[u8], now_us: i64, number: u64) -> Result<Self, Refusal> {
        let request = Self::parse(line)?;
        // What does not parse is refused by the agents.
        match Request::parse(request.line.as_str().as_bytes()) {
            Ok(Request::KeepLast(last)) => Self::keep(last.fixed(now_us, number)?),
            _ => Ok(request),
        }
    }

    /// Request to keep an interval.
    ///
    /// # Errors
    ///
    /// Refuses an invalid job.
    pub fn keep(request: KeepRequest) -> Result<Self, Refusal> {
        // Serialising plain data into memory cannot fail.
        Self::parse(&serde_json::to_vec(&Request::Keep(request)).unwrap_or_default())
    }

    /// Refuses what the collector does not forward.
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let malformed = |error: &dyn std::fmt::Display| Refusal::new("malformed", None, &error.to_string());
        let text = std::str::from_utf8(line.trim_ascii()).map_err(|error| malformed(&error))?;
        let mut parsed = Fields::parse(text.as_bytes())?;
        let verb = parsed.take_verb()?;
        let info = VERBS.iter().find(|info| info.name == verb);
        let remotes = VERBS.iter().filter(|info| info.remote.is_for_users()).map(|info| info.name);
        let info = info.ok_or_else(|| fields::unknown_verb(&verb, remotes.clone()))?;
        if !info.remote.is_for_users() {
            let remotes = remotes.collect::<Vec<_>>().join(", ");
            let message = format!(
                "cannot send `{verb}` through the collector: only {remotes} are supported; send it to the agent on the node"
            );
            return Err(invalid("verb", &message));
        }
        let RoutedFields { job, plan, level, ring, duration, rule, name } =
            parsed.into_request(info.example)?;
        // They replace each other, and no leases of metrics.
        let is_of_pmu = [PmuReleaseRequest::NAME, PmuResumeRequest::NAME].contains(&info.name);
        let level = match (is_of_pmu, ring) {
            (true, _) => Some(PMU_LEVEL.to_owned()),
            (false, true) => Some(RING_LEVEL.to_owned()),
            (false, false) => level,
        };
        let job = job.ok_or_else(|| {
            invalid("job", &"missing field; to change metrics of a node, send the request on that node")
        })?;
        Ok(Self {
            verb: info.name,
            job: identifier("job", &job)?,
            remote: info.remote,
            selectors: plan.into_keys().collect(),
            level,
            trigger: match info.remote {
                Remote::AddsTrigger => rule.map(|rule| rule.name),
                Remote::RemovesTrigger => name,
                Remote::Refused
                | Remote::CollectorOnly
                | Remote::Immediate
                | Remote::ImmediateOrEnded
                | Remote::OneNode
                | Remote::GrantsLeases
                | Remote::EndsLeases => None,
            },
            // An invalid duration is refused by the agents.
            duration_us: duration.and_then(|text| text.parse().ok()).map(Period::as_micros),
            line: ControlLine::try_from(text).map_err(|error| malformed(&error))?,
        })
    }
}

/// Final state, name and requested resources of a job, from the scheduler's controller: `{"verb": "state",
/// "job": "4242", "state": "TIMEOUT"}`. The collector executes it itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRequest {
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// State in the scheduler's terms; none while the job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<u32>,
    /// What the scheduler said and could not be read, with the names of the fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<Text>,
    /// Cores on all nodes; the number of a prolog takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    #[serde(default, skip_serializing_if = "JobDetails::is_empty")]
    pub details: JobDetails,
}

const NOTICES: &str = "notices";

const NOTICES_EXAMPLE: &str = r#"{"verb":"notices","rule":"idle-gpu","off":true}"#;

/// Request of a user who wants no notices, or wants them again: `{"verb": "notices", "rule": "idle-gpu",
/// "off": true}`. Without both fields it lists what was chosen. The collector executes it itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoticesRequest {
    /// Id of a rule; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// None to list the choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<bool>,
}

/// Users who want no notices: the user who asks, or all for an administrator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeChoices {
    pub all_users: bool,
    pub choices: Vec<NoticeChoice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeChoice {
    pub uid: u32,
    /// None if the collector's machine does not know the user.
    pub user: Option<String>,
    /// Rule of which the user wants no notices; none for all.
    pub rule: Option<String>,
}

/// Begins the names under which users choose the notices of triggers.
pub const TRIGGER_NOTICES: &str = "trigger:";

fn is_rule_id(rule: &str) -> bool {
    const RULE_BYTES: usize = 64;
    let (id, is_plain): (&str, fn(u8) -> bool) = match rule.strip_prefix(TRIGGER_NOTICES) {
        Some(name) => (name, |byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
        None => (rule, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
    };
    (1..=RULE_BYTES).contains(&id.len()) && id.bytes().all(is_plain)
}

impl NoticesRequest {
    /// Returns none if the line has another verb.
    pub fn parse(line: &[u8]) -> Option<Result<Self, Refusal>> {
        let mut fields = Fields::parse(line).ok()?;
        (fields.take_verb().ok()? == NOTICES).then(|| {
            let request: Self = fields.into_request(NOTICES_EXAMPLE)?;
            if request.rule.as_ref().is_some_and(|rule| !is_rule_id(rule)) {
                let message =
                    "expected the id of a rule (lower-case letters, digits and `-`), or trigger:NAME";
                return Err(invalid("rule", &message));
            }
            if request.rule.is_some() && request.off.is_none() {
                return Err(invalid("off", &"missing field; true for no notices of the rule"));
            }
            Ok(request)
        })
    }

    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct WithVerb<'a> {
            verb: &'static str,
            #[serde(flatten)]
            request: &'a NoticesRequest,
        }
        // Serialising plain data into memory cannot fail.
        serde_json::to_string(&WithVerb { verb: NOTICES, request: self }).unwrap_or_default()
    }
}

impl StateRequest {
    /// Returns none if the line has another verb.
    pub fn parse(line: &[u8]) -> Option<Result<Self, Refusal>> {
        let mut fields = Fields::parse(line).ok()?;
        (fields.take_verb().ok()? == STATE).then(|| fields.into_request(STATE_EXAMPLE))
    }

    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Tagged<'a> {
            verb: &'static str,
            #[serde(flatten)]
            request: &'a StateRequest,
        }
        // Serialising plain data into memory cannot fail.
        serde_json::to_string(&Tagged { verb: STATE, request: self }).unwrap_or_default()
    }

    /// Returns the job, its cluster, and the facts. Refuses invalid names and a request without facts.
    pub fn facts(&self) -> Result<(Identifier, Option<Identifier>, JobFacts), Refusal> {
        let (exit_code, exit_signal) = (self.exit_code, self.exit_signal);
        let state = fields::optional_identifier("state", self.state.as_deref())?;
        let (unread, cores) = (self.unread.clone(), self.cores);
        if state.is_none() && unread.is_none() && cores.is_none() && self.details.is_empty() {
            let message = format!("missing field; example: {STATE_EXAMPLE}");
            return Err(invalid("state", &message));
        }
        let facts = JobFacts { state, exit_code, exit_signal, unread, cores, ..JobFacts::default() };
        Ok((
            identifier("job", &self.job)?,
            fields::optional_identifier("cluster", self.cluster.as_deref())?,
            facts,
        ))
    }
}

/// Precedes a signed request, so that a signature that was made for another purpose is not accepted.
const CONTEXT: &str = "polymeter control 1";

/// First line that the collector sends on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    polymeter_control: u32,
    nonce: String,
    pub version: String,
    /// Time of the collector's clock, in microseconds since the epoch.
    pub now_us: i64,
}

impl Greeting {
    const DIALOGUE: u32 = 1;

    pub fn new(nonce: String, version: &str, now_us: i64) -> Self {
        Self { polymeter_control: Self::DIALOGUE, nonce, version: version.to_owned(), now_us }
    }

    /// Returns none for a line that is no greeting, or one of another dialogue.
    pub fn parse(line: &str) -> Option<Self> {
        let greeting: Self = serde_json::from_str(line).ok()?;
        (greeting.polymeter_control == Self::DIALOGUE).then_some(greeting)
    }

    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Returns the text that a user's credential must sign for the request `line` on this connection.
    pub fn sign(&self, line: &str) -> String {
        format!("{CONTEXT} {}\n{line}", self.nonce)
    }
}

/// Returns the request in a signed text; none if it was signed for another purpose or connection.
pub fn signed_request<'a>(payload: &'a [u8], nonce: &str) -> Option<&'a [u8]> {
    payload.strip_prefix(format!("{CONTEXT} {nonce}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passes_requests_on_unchanged() {
        let line = r#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"},"for":"1min","new":[1]}"#;
        let refused = RoutedRequest::parse(line.as_bytes());
        assert_eq!(
            refused.as_ref().map(|request| request.line.as_str()),
            Ok(line),
            "agents know more fields"
        );
        let request = RoutedRequest::parse(format!("{line}\r\n").as_bytes()).unwrap();
        assert_eq!((request.job.as_str(), request.line.as_str()), ("7", line));
        assert_eq!((request.selectors, request.duration_us), (vec!["cpu.*".to_owned()], Some(60_000_000)));
        assert_eq!(request.remote, Remote::GrantsLeases);
        let remote = |line: &[u8]| RoutedRequest::parse(line).unwrap().remote;
        assert_eq!(remote(br#"{"verb":"plan","job":"7"}"#), Remote::Immediate);
        assert_eq!(remote(br#"{"verb":"mark","job":"7","name":"x"}"#), Remote::Immediate);
        assert_eq!(remote(br#"{"verb":"reset","job":"7"}"#), Remote::EndsLeases);
        let of_ring = br#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"},"ring":true}"#;
        assert_eq!(RoutedRequest::parse(of_ring).unwrap().level.as_deref(), Some("ring"));
        let trigger = |line: &[u8]| RoutedRequest::parse(line).unwrap().trigger;
        let add = br#"{"verb":"trigger_add","job":"7","rule":{"name":"oom","when":"oom"}}"#;
        assert_eq!(trigger(add).as_deref(), Some("oom"));
        assert_eq!(trigger(br#"{"verb":"trigger_remove","job":"7","name":"x"}"#).as_deref(), Some("x"));
        assert_eq!(trigger(br#"{"verb":"mark","job":"7","name":"x"}"#), None);
        let release = RoutedRequest::parse(br#"{"verb":"pmu_release","job":"7","for":"2s"}"#).unwrap();
        assert_eq!((release.level.as_deref(), release.duration_us), (Some("pmu"), Some(2_000_000)));
    }

    #[test]
    fn the_collector_fixes_the_interval_of_the_last_time() {
        let line = br#"{"verb":"keep_last","job":"7","last":"30s","reason":"it hangs"}"#;
        let fixed = RoutedRequest::parse_now(line, 1_790_000_030_000_000, 17).unwrap();
        let keep = r#"{"verb":"keep","job":"7","begin_us":1790000000000000,"end_us":1790000030000000,"trigger":17,"reason":"it hangs"}"#;
        assert_eq!((fixed.line.as_str(), fixed.remote), (keep, Remote::ImmediateOrEnded));
        assert_eq!(RoutedRequest::parse_now(keep.as_bytes(), 0, 1).unwrap().line.as_str(), keep);
        let set = r#"{"verb":"set","job":"7","plan":{"cpu.*":"10ms"},"new":[1]}"#;
        assert_eq!(RoutedRequest::parse_now(set.as_bytes(), 0, 1).unwrap().line.as_str(), set);
        for last in ["-1s", "2d", "1e3s", "\\u0007", ""] {
            let line = format!(r#"{{"verb":"keep_last","job":"7","last":"{last}","reason":"x"}}"#);
            let refused = RoutedRequest::parse_now(line.as_bytes(), 0, 1).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("last"), "{last}");
        }
        let early = RoutedRequest::parse_now(line, i64::MIN, 1).unwrap();
        assert!(early.line.as_str().contains(&format!("\"begin_us\":{}", i64::MIN)));
    }

    #[test]
    fn refuses_what_it_cannot_pass_on_with_the_field() {
        for (line, code, field) in [
            (&b"hello"[..], "malformed", None),
            (b"\xff", "malformed", None),
            (b"[]", "malformed", None),
            (b"{}", "invalid", Some("verb")),
            (br#"{"verb":7}"#, "invalid", Some("verb")),
            (br#"{"verb":"flush"}"#, "invalid", Some("verb")),
            (br#"{"verb":"sett","job":"7"}"#, "invalid", Some("verb")),
            (br#"{"verb":"set","plan":{}}"#, "invalid", Some("job")),
            (br#"{"verb":"set","job":7}"#, "invalid", Some("job")),
            (br#"{"verb":"set","job":"a\u0007b"}"#, "invalid", Some("job")),
            (b"{\"verb\":\"plan\",\n\"job\":\"7\"}", "malformed", None),
        ] {
            let refusal = RoutedRequest::parse(line).unwrap_err();
            assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), (code, field), "{refusal:?}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(RoutedRequest::parse(deep.as_bytes()).unwrap_err().code, "malformed");
    }

    #[test]
    fn a_final_state_has_a_job_and_a_state() {
        let line = br#"{"verb":"state","job":"42","cluster":"lab","state":"TIMEOUT","exit_code":0,"exit_signal":15}"#;
        let request = StateRequest::parse(line).unwrap().unwrap();
        assert_eq!(request.to_line().as_bytes(), line);
        let (job, cluster, facts) = request.facts().unwrap();
        assert_eq!((job.as_str(), cluster.unwrap().as_str()), ("42", "lab"));
        assert_eq!(facts.state.unwrap().as_str(), "TIMEOUT");
        assert_eq!((facts.exit_code, facts.exit_signal), (Some(0), Some(15)));
        let line = br#"{"verb":"state","job":"42","details":{"name":"solver","time_limit_s":60}}"#;
        let running = StateRequest::parse(line).unwrap().unwrap();
        assert_eq!(
            (running.facts().unwrap().2, running.details.time_limit_s),
            (JobFacts::default(), Some(60))
        );
    }

    #[test]
    fn refuses_invalid_final_states_and_leaves_other_requests_alone() {
        for line in [&b"hello"[..], b"{}", br#"{"verb":7}"#, br#"{"verb":"set","job":"42"}"#] {
            assert!(StateRequest::parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
        for (line, field) in [
            (&br#"{"verb":"state"}"#[..], "job"),
            (br#"{"verb":"state","job":"42"}"#, "state"),
            (br#"{"verb":"state","job":"42","exit_code":1}"#, "state"),
            (br#"{"verb":"state","job":"42","details":{"gpu":1}}"#, "details"),
            (br#"{"verb":"state","job":"42","details":{"display_id":"\u202e"}}"#, "details"),
            (br#"{"verb":"state","job":"","state":"FAILED"}"#, "job"),
            (br#"{"verb":"state","job":"42","state":"\u202e"}"#, "state"),
            (br#"{"verb":"state","job":"42","state":"FAILED","exit_code":-1}"#, "exit_code"),
            (br#"{"verb":"state","job":"42","state":"FAILED","exitcode":1}"#, "exitcode"),
        ] {
            let parsed = StateRequest::parse(line).unwrap();
            let refusal = parsed.and_then(|request| request.facts()).unwrap_err();
            assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), ("invalid", Some(field)));
        }
    }

    #[test]
    fn a_signature_is_for_one_connection() {
        let line = Greeting::new("one".to_owned(), "1.2.3", 7).to_line();
        assert_eq!(line, "{\"polymeter_control\":1,\"nonce\":\"one\",\"version\":\"1.2.3\",\"now_us\":7}\n");
        let signed = Greeting::parse(&line).unwrap().sign("{}");
        assert_eq!(signed_request(signed.as_bytes(), "one"), Some(&b"{}"[..]));
        assert_eq!(signed_request(signed.as_bytes(), "other"), None);
        assert_eq!(signed_request(b"{}", "one"), None);
        assert_eq!(Greeting::parse(&line.replace(":1,\"nonce", ":2,\"nonce")), None);
        assert_eq!(Greeting::parse("{\"polymeter_control\":1,\"nonce\":\"0\"}"), None);
        assert_eq!(Greeting::parse("SSH-2.0"), None);
    }

    #[test]
    fn answers_round_trip() {
        let nodes = vec![
            NodeAnswer { node: "n1".into(), answer: Some(json!({"answer": "reset", "ended": 1})) },
            NodeAnswer { node: "n2".into(), answer: None },
        ];
        let answer = CollectorAnswer::Nodes(JobAnswer { job: "7".into(), at_us: Some(9), nodes });
        let line = String::from_utf8(answer.to_line()).unwrap();
        assert_eq!(
            line,
            "{\"answer\":\"nodes\",\"job\":\"7\",\"at_us\":9,\"nodes\":[{\"node\":\"n1\",\"answer\":{\"answer\":\"reset\",\"ended\":1}},{\"node\":\"n2\",\"answer\":null}]}\n"
        );
        assert_eq!(serde_json::from_str::<CollectorAnswer>(&line).unwrap(), answer);
    }

    #[test]
    fn a_choice_of_notices_is_read_and_written() {
        let request = NoticesRequest { rule: Some("idle-gpu".to_owned()), off: Some(true) };
        assert_eq!(NoticesRequest::parse(request.to_line().as_bytes()), Some(Ok(request)));
        let all = NoticesRequest { rule: None, off: Some(false) };
        assert_eq!(NoticesRequest::parse(br#"{"verb":"notices","off":false}"#), Some(Ok(all)));
        assert_eq!(NoticesRequest::parse(br#"{"verb":"state","off":false}"#), None);
        for rule in ["", "*", "A", "a b", "a\n", &"x".repeat(65)] {
            let request = NoticesRequest { rule: Some(rule.to_owned()), off: Some(true) };
            let refusal = NoticesRequest::parse(request.to_line().as_bytes()).unwrap().unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("rule"), "{rule:?}");
        }
        let list = NoticesRequest { rule: None, off: None };
        assert_eq!(list.to_line(), r#"{"verb":"notices"}"#);
        assert_eq!(NoticesRequest::parse(list.to_line().as_bytes()), Some(Ok(list)));
        let refusal = NoticesRequest::parse(br#"{"verb":"notices","rule":"idle-gpu"}"#).unwrap().unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("off"));
    }
}
