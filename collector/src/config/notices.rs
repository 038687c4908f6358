//! Section `[notices]`: messages to persons about running and ended jobs.

use polymeter_service::keys;
use polymeter_service::keys::Kind::{Flag, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::value_parsers::{absolute, duration_up_to, section_with};
use crate::notices::{Action, NoticesConfig};

/// Pause between two examinations of a running job.
const LONGEST: &str = "24h";

keys! {
    /// The keys of the section.
    pub(super) const KEYS: NoticesConfig = |config, value|

    /// The ways in which each notice is sent: "mail", "webhook", "command". With dry_run notices are recorded
    /// and not sent; `polymeter notices` lists them.
    "actions": Texts, Example(r#"["mail"]"#) => actions = actions(value);
    "dry_run": Flag, Usual("false") => dry_run = value.boolean();

    /// The directory of the site's rules, and the time between two examinations of a running job.
    "rules": Text("path"), Usual("/etc/polymeter/notices.d") => rules = value.parse(absolute);
    "interval": Text("reach"), Usual("10min") => interval = value.parse(|text| duration_up_to(text, LONGEST));

    /// Mail: the program that takes it as sendmail -t does, the sender, and the domain of the recipients, whose
    /// names are those of the users; without a domain the mail server adds its own.
    "sendmail": Text("path"), Usual("/usr/sbin/sendmail") => sendmail = value.parse(absolute);
    "from": Text("string"), Usual("polymeter") => from = value.parse(address);
    "domain": Text("string"), Example("example.org") => domain = value.parse(address).map(Some);

    /// The file with the text, in place of the usual one.
    "text": Text("path"), Example("/etc/polymeter/notice.txt") => text = value.parse(absolute).map(Some);

    /// The server that gets each notice as JSON, and the file with the certificates of its authorities, in
    /// place of the system's.
    "webhook": Text("string"), Example("https://chat.example.org/hooks/1") => webhook = value.parse(str::parse).map(Some);
    "webhook_ca_file": Text("path"), Example("/etc/polymeter/ca.pem")
        => webhook_ca_file = value.parse(absolute).map(Some);

    /// The absolute path of the command, and its arguments; no shell takes part. The notice is in variables of
    /// its environment, and as JSON on its standard input. Only root and the collector's user may be able to
    /// change the file.
    "command": Texts, Example(r#"["/usr/local/sbin/notify"]"#) => command = command(value);
}

/// The section must have actions.
pub(super) fn take(value: Value<'_, '_, '_>) -> Option<NoticesConfig> {
    section_with(value, KEYS, NoticesConfig::default(), "actions", "[\"mail\"]")
}

/// Each must have its setting.
fn actions(mut value: Value<'_, '_, '_>) -> Option<Vec<Action>> {
    let mut actions = Vec::new();
    for (name, place) in value.strings()? {
        let Some(action) = Action::ALL.into_iter().find(|action| action.name() == name) else {
            let known = Action::ALL.map(Action::name).join("`, `");
            value.reporter.fault(&place, format_args!("unknown action `{name}`: expected `{known}`"));
            continue;
        };
        if action != Action::Mail && value.section.span(action.name()).is_none() {
            value.reporter.fault(&place, format_args!("the action `{name}` requires the key `{name}`"));
        }
        actions.push(action);
    }
    Some(actions)
}

/// Part of an address in the header of a mail.
fn address(text: &str) -> Result<String, String> {
    let is_address = (1..=254).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@._+-".contains(&byte))
        && !text.starts_with('-');
    if is_address {
        Ok(text.to_owned())
    } else {
        Err(format!("invalid address `{text}`: expected a name such as polymeter@example.org"))
    }
}

/// The file must have an absolute path.
fn command(mut value: Value<'_, '_, '_>) -> Option<Vec<String>> {
    let place = value.span()?;
    let words: Vec<String> = value.strings()?.into_iter().map(|(word, _)| word).collect();
    let program = words.first().map(String::as_str).unwrap_or_default();
    let fault = match absolute(program) {
        Ok(_) if words.iter().any(|word| word.contains('\0')) => {
            "an argument contains a NUL character".to_owned()
        }
        Ok(_) => return Some(words),
        Err(error) => error,
    };
    value.reporter.fault(&place, format_args!("`command` in [notices]: {fault}"));
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check;

    #[test]
    fn faults_have_their_lines() {
        let faults =
            |text: &str| check(Path::new("collector.toml"), &format!("[notices]\n{text}")).to_string();
        let mail = "actions = ['mail', 'webhook', 'command']\nwebhook = 'http://h/'\ncommand = ['/c', 'x']\n";
        assert_eq!(
            faults(&format!("{mail}from = 'a@b.c'\ndomain = 'b.c'\ninterval = '1h'\ndry_run = true\n")),
            ""
        );
        for (text, part) in [
            ("dry_run = true\n", "missing `actions`"),
            ("actions = ['letter']\n", "unknown action `letter`"),
            ("actions = ['webhook']\n", "requires the key `webhook`"),
            ("actions = ['command']\n", "requires the key `command`"),
            ("actions = ['mail']\nfrom = 'a\\nBcc: b'\n", "invalid address"),
            ("actions = ['mail']\nfrom = '-oQ/tmp'\n", "invalid address"),
            ("actions = ['mail']\ndomain = 'b c'\n", "invalid address"),
            ("actions = ['command']\ncommand = ['c']\n", "expected an absolute path"),
            ("actions = ['mail']\nwebhook = 'ftp://h/'\n", "invalid URL"),
            ("actions = ['mail']\ninterval = '25h'\n", "from 1s to 24h"),
        ] {
            assert!(faults(text).contains(part), "{text}: {}", faults(text));
        }
    }
}
