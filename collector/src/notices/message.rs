//! Text of a notice, and its forms for mail, programs and servers. Pure.
//!
//! The names in it are those that users chose: nothing of them reaches a shell, and no line break reaches the
//! header of a mail.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polymeter_analysis::model::Finding;
use polymeter_service::printable::printable;
use polymeter_store::reader::JobRow;
use serde_json::json;

/// A line without any of its values is left out.
pub(super) const TEXT: &str = "\
{sentence}

{evidence}
What to do: {remedy}

Job: {job} {name}
User: {user}
Account, queue: {account} {queue}
Nodes: {nodes}
State: {state}

polymeter report {job} shows more.
There is one such notice a job. To get none: polymeter notices --off {rule}
";

/// Names that may stand in braces in a text.
const NAMES: [&str; 13] = [
    "sentence", "evidence", "remedy", "rule", "severity", "job", "name", "user", "account", "queue", "nodes",
    "state", "cluster",
];

/// A job may have thousands of nodes.
const VALUE_CHARS: usize = 500;

const SUBJECT_CHARS: usize = 150;

/// Bytes of text in an encoded word of a header, which has 75 characters at most.
const WORD_BYTES: usize = 42;

const LINE_CHARS: usize = 76;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) rule: String,
    pub(super) severity: &'static str,
    pub(super) job: String,
    pub(super) user: Option<String>,
    pub(super) subject: String,
    pub(super) text: String,
}

/// Names in braces that no value has.
pub(super) fn unknown_names(template: &str) -> Vec<String> {
    let inner = template.split('{').skip(1).filter_map(|part| part.split_once('}'));
    inner.map(|(name, _)| name.to_owned()).filter(|name| !NAMES.contains(&name.as_str())).collect()
}

impl Message {
    pub(super) fn of(finding: &Finding, job: &JobRow, remedy: Option<&str>, template: &str) -> Self {
        let shown = job.display_id.as_deref().unwrap_or(&job.job_id);
        let user = job.owner.clone().or_else(|| job.owner_uid.map(|uid| format!("uid {uid}")));
        let nodes = job.node_list.clone().unwrap_or_else(|| job.nodes.join(","));
        let value = |name: &str| match name {
            "sentence" => Some(finding.sentence.as_str()),
            "evidence" => Some(finding.evidence.as_str()),
            "remedy" => remedy,
            "rule" => Some(finding.id.as_str()),
            "severity" => Some(finding.severity.name()),
            "job" => Some(shown),
            "name" => job.name.as_deref(),
            "user" => user.as_deref(),
            "account" => job.account.as_deref(),
            "queue" => job.queue.as_deref(),
            "nodes" => Some(nodes.as_str()),
            "state" => job.state.as_deref().or(job.ended_ns.is_none().then_some("running")),
            "cluster" => job.cluster.as_deref(),
            _ => None,
        };
        let lines = template.lines().filter_map(|line| filled(line, value));
        let subject = format!("Job {shown}: {}", finding.sentence);
        Self {
            rule: finding.id.clone(),
            severity: finding.severity.name(),
            job: shown.to_owned(),
            user: job.owner.clone(),
            subject: printable(&subject, SUBJECT_CHARS),
            text: lines.map(|line| line + "\n").collect(),
        }
    }

    pub(super) fn mail(&self, from: &str, to: &str) -> Vec<u8> {
        let mut mail = format!("From: {from}\r\nTo: {to}\r\nSubject: {}\r\n", header_text(&self.subject));
        mail.push_str("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n");
        mail.push_str("Content-Transfer-Encoding: base64\r\nAuto-Submitted: auto-generated\r\n\r\n");
        let encoded = STANDARD.encode(self.text.replace('\n', "\r\n"));
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at_checked(LINE_CHARS).unwrap_or((rest, ""));
            mail.push_str(line);
            mail.push_str("\r\n");
            rest = after;
        }
        mail.into_bytes()
    }

    /// JSON for commands and servers. Chat servers show `text`.
    pub(super) fn json(&self) -> Vec<u8> {
        let text = format!("{}\n{}", self.subject, self.text);
        let value = json!({
            "text": text, "rule": self.rule, "severity": self.severity, "job": self.job, "user": self.user,
            "subject": self.subject,
        });
        value.to_string().into_bytes()
    }

    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("POLYMETER_NOTICE_RULE", Some(self.rule.clone())),
            ("POLYMETER_NOTICE_SEVERITY", Some(self.severity.to_owned())),
            ("POLYMETER_NOTICE_SUBJECT", Some(self.subject.clone())),
            ("POLYMETER_JOB_ID", Some(self.job.clone())),
            ("POLYMETER_JOB_OWNER", self.user.clone()),
        ];
        let known = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
        known.filter(|(_, value)| !value.contains('\0')).collect()
    }
}

/// Fills in a line of a template; none if it has names and no value is known.
fn filled<'a>(line: &str, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let mut parts = line.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let (mut named, mut known) = (0, 0);
    for part in parts {
        let Some((name, rest)) = part.split_once('}') else {
            text.push('{');
            text.push_str(part);
            continue;
        };
        named += 1;
        if let Some(value) = value(name) {
            known += 1;
            text.push_str(&printable(value, VALUE_CHARS));
        }
        text.push_str(rest);
    }
    (named == 0 || known > 0).then(|| text.trim_end().to_owned())
}

/// None for a name that may be something else to a mail server.
pub(super) fn address(user: &str, domain: Option<&str>) -> Option<String> {
    let is_name = (1..=64).contains(&user.len())
        && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !user.starts_with(['-', '.']);
    is_name.then(|| domain.map_or_else(|| user.to_owned(), |domain| format!("{user}@{domain}")))
}

/// Encodes a text that is not plain as encoded words.
fn header_text(text: &str) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !text.contains("=?") {
        return text.to_owned();
    }
    let mut words = vec![String::new()];
    for letter in text.chars() {
        let is_full = words.last().is_some_and(|word| word.len() + letter.len_utf8() > WORD_BYTES);
        if is_full {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    let encoded = words.iter().map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polymeter_analysis::model::Severity;

    use super::*;

    fn finding() -> Finding {
        Finding {
            severity: Severity::Warning,
            id: "idle-gpu".to_owned(),
            resource: None,
            sentence: "A GPU has been idle for 2 h.".to_owned(),
            evidence: "1 of 2 GPUs".to_owned(),
            figures: BTreeMap::new(),
            remedies: BTreeMap::new(),
        }
    }

    fn job(name: &str) -> JobRow {
        let job = json!({
            "job_key": 1, "job_id": "4010", "display_id": "4009_1", "owner": "zoe", "started_ns": 5, "name": name,
            "sampled_ns": {"start": 0, "end": 9}, "lost_nodes": [], "nodes": ["n1", "n2"],
        });
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_text_has_the_values_and_no_line_without_any() {
        let message = Message::of(&finding(), &job("train"), None, TEXT);
        assert_eq!(message.subject, "Job 4009_1: A GPU has been idle for 2 h.");
        assert!(
            message.text.starts_with("A GPU has been idle for 2 h.\n\n1 of 2 GPUs\n\nJob: 4009_1 train\n"),
            "{}",
            message.text
        );
        assert!(message.text.contains("\nNodes: n1,n2\nState: running\n"), "{}", message.text);
        assert!(!message.text.contains("What to do") && !message.text.contains('{'), "{}", message.text);
        assert_eq!(unknown_names(TEXT), Vec::<String>::new());
        assert_eq!(unknown_names("{job} {jobs} {} {open"), ["jobs", ""]);
    }

    #[test]
    fn hostile_names_change_neither_header_nor_lines() {
        for name in [
            "x\r\nBcc: all@example.org\r\n\r\nbody",
            "$(reboot) `reboot` ; reboot | sh",
            "\u{1b}]0;title\u{7}\u{202e}",
            "{sentence}{job}",
            &"long ".repeat(10_000),
            "\0",
        ] {
            let mut finding = finding();
            finding.sentence = format!("The job {name} waits.");
            let message = Message::of(&finding, &job(name), Some(name), TEXT);
            assert!(message.subject.chars().count() <= SUBJECT_CHARS + 1, "{name:?}");
            let mail = String::from_utf8(message.mail("polymeter@x.org", "zoe@x.org")).unwrap();
            let (header, body) = mail.split_once("\r\n\r\n").unwrap();
            let fields: Vec<&str> = header.split("\r\n").filter(|line| !line.starts_with(' ')).collect();
            assert_eq!(fields.len(), 7, "{header}");
            assert!(
                !header.contains("Bcc") || header.lines().all(|line| !line.starts_with("Bcc")),
                "{header}"
            );
            assert!(mail.lines().all(|line| line.len() <= 998), "{name:?}");
            assert!(body.lines().all(|line| line.len() <= LINE_CHARS), "{name:?}");
            let text = STANDARD.decode(body.replace("\r\n", "")).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.replace("\r\n", "\n"), message.text);
            assert!(text.lines().count() <= TEXT.lines().count(), "{text}");
            assert!(!text.chars().any(|letter| letter.is_control() && !"\r\n".contains(letter)), "{text:?}");
            assert!(serde_json::from_slice::<serde_json::Value>(&message.json()).is_ok());
            assert!(message.variables().iter().all(|(_, value)| !value.contains('\0')));
        }
    }

    #[test]
    fn headers_that_are_not_plain_are_encoded() {
        assert_eq!(header_text("Job 7: idle"), "Job 7: idle");
        assert_eq!(header_text("é"), "=?utf-8?B?w6k=?=");
        let long = header_text(&"日本".repeat(60));
        assert!(long.split("\r\n ").all(|word| word.len() <= 75), "{long}");
        assert!(header_text("=?utf-8?Q?x?=").starts_with("=?utf-8?B?"));
    }

    #[test]
    fn only_plain_names_have_addresses() {
        assert_eq!(address("zoe.b_1", Some("x.org")).as_deref(), Some("zoe.b_1@x.org"));
        assert_eq!(address("zoe", None).as_deref(), Some("zoe"));
        for name in ["", "-f", ".x", "a b", "a@b", "a,b", "a\nb", "|sh", "\"a\"", "<a>", "ä", &"x".repeat(65)]
        {
            assert_eq!(address(name, Some("x.org")), None, "{name}");
        }
    }
}
