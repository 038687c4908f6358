//! Section `[remote_write]`: the receiver of samples, and the selection.

use std::path::PathBuf;

use polymeter_service::keys::Kind::{Integer, OneOf, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;
use polymeter_service::{byte_size, keys};

use super::value_parsers::{absolute, duration_up_to, section_with};
use crate::sinks::remote_write::{Credentials, ReceiverUrl, RemoteWriteConfig, SHARDS_MAX};

/// Samples in a request: its body has some 20 bytes for each, and the labels.
pub(super) const BATCH_SAMPLES_MAX: u64 = 50_000;

/// Longest time for which samples wait or are kept, and the longest timeout.
pub(super) const LONGEST: &str = "10min";

pub(super) const SPOOL_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=16 << 40;

/// Labels that each series gets.
const LABELS_MAX: usize = 16;

keys! {
    /// The keys of the section.
    pub(super) const KEYS: RemoteWriteConfig = |config, value|

    /// The receiver, http or https, without credentials. With https, ca_file has the root certificates;
    /// without it those of the operating system count.
    "url": Text("url"), Example("http://localhost:9090/api/v1/write") => url = value.parse(str::parse);
    "ca_file": Text("path"), Example("/etc/polymeter/ca.pem")
        => ca_file = ca_file(&config.url, value).map(Some);

    /// The version of the protocol: "1.0", "2.0", or "auto" for 2.0 if the receiver accepts it.
    "protocol": OneOf(&["auto", "1.0", "2.0"]), Usual("auto") => protocol = value.parse(str::parse);

    /// The samples that are sent: globs of metrics, of the ids of jobs, and of nodes. jobs = [] leaves the
    /// series of nodes.
    "metrics": Texts, Usual("[\"*\"]") => metrics = value.list(str::parse);
    "jobs": Texts, Usual("[\"*\"]") => jobs = value.list(str::parse);
    "nodes": Texts, Usual("[\"*\"]") => nodes = value.list(str::parse);

    /// Labels that each series gets.
    "labels": Texts, Example("[\"site=here\"]") => labels = labels(value);

    /// Credentials: a name and a file with the password, or a file with a bearer token. Not every user may be
    /// able to read these files.
    "username": Text("string"), Example("polymeter");
    "password_file": Text("path"), Example("/etc/polymeter/remote-write.password");
    "bearer_token_file": Text("path"), Example("/etc/polymeter/remote-write.token")
        => credentials = Some(credentials(value, "bearer_token_file", "Bearer"));

    /// Further headers, and a file with such that are secrets, one in each line.
    "headers": Texts, Example("[\"X-Scope-OrgID: hpc\"]") => headers = value.list(str::parse);
    "headers_file": Text("path"), Example("/etc/polymeter/remote-write.headers")
        => headers_file = value.parse(absolute).map(Some);

    /// The directory of samples that were not sent, and its size, from 16MiB to 16384GiB. The oldest samples
    /// beyond it are dropped.
    "spool": Text("path"), Usual("/var/lib/polymeter/remote-write") => spool = value.parse(absolute);
    "spool_bytes": Text("size"), Usual("8GiB")
        => spool_bytes = value.parse(|text| byte_size::parse(text, SPOOL_BYTES));

    /// The number of connections, each with a part of the series; the most samples of a request, and the
    /// longest time, in whole s or min, for which they wait for others; the timeout of a request.
    "shards": Integer(1, SHARDS_MAX as u64), Usual("4") => shards = value.integer();
    "batch_samples": Integer(1, BATCH_SAMPLES_MAX), Usual("2000") => batch_samples = value.integer();
    "batch_wait": Text("reach"), Usual("5s")
        => batch_wait = value.parse(|text| duration_up_to(text, LONGEST));
    "timeout": Text("reach"), Usual("30s") => timeout = value.parse(|text| duration_up_to(text, LONGEST));

    /// For a receiver that is killed and forgets what it accepted, such as VictoriaMetrics: what was accepted
    /// within this time, in whole s or min, is sent again after the receiver could not be reached. The
    /// receiver must ignore samples that it has. Without it nothing is sent again.
    "resend_window": Text("reach"), Example("1min")
        => resend_window = value.parse(|text| duration_up_to(text, LONGEST));
}

/// The section must have a URL.
pub(super) fn take(value: Value<'_, '_, '_>) -> Option<RemoteWriteConfig> {
    // A receiver in place of one that is missing or invalid, so that the other keys are checked, too.
    let any: ReceiverUrl = "http://localhost/".parse().ok()?;
    section_with(value, KEYS, RemoteWriteConfig::new(any), "url", "\"http://HOST:PORT/PATH\"")
}

pub(super) fn ca_file(url: &ReceiverUrl, value: Value<'_, '_, '_>) -> Option<PathBuf> {
    if let Some(place) = value.span().filter(|_| !url.is_tls()) {
        value.reporter.fault(&place, "`ca_file`: requires a `url` that begins with https");
    }
    value.parse(absolute)
}

/// Their names must differ.
pub(super) fn labels(mut value: Value<'_, '_, '_>) -> Option<Vec<(String, String)>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for (text, span) in value.strings()? {
        let reporter = &mut *value.reporter;
        match label(&text) {
            Ok((name, _)) if labels.iter().any(|(known, _)| *known == name) => {
                reporter.fault(&span, format_args!("`labels`: `{name}` is listed twice"));
            }
            Ok(_) if labels.len() >= LABELS_MAX => {
                reporter.fault(&span, format_args!("`labels`: there are more than {LABELS_MAX}"));
            }
            Ok(label) => labels.push(label),
            Err(reason) => reporter.fault(&span, format_args!("`labels`: {reason}")),
        }
    }
    Some(labels)
}

/// Takes a name and the file with its password, or the file with a token that `scheme` announces.
pub(super) fn credentials(
    Value { section, reporter, .. }: Value<'_, '_, '_>,
    token_key: &'static str,
    scheme: &'static str,
) -> Option<Credentials> {
    let place = |key| section.span(key);
    let (user_place, password_place) = (place("username"), place("password_file"));
    let token_place = place(token_key);
    let username = section.parse("username", reporter, user_name);
    let password_file = section.parse("password_file", reporter, absolute);
    let token_file = section.parse(token_key, reporter, absolute);
    match (&user_place, &password_place) {
        (Some(place), None) => reporter.fault(place, "`username`: requires `password_file`"),
        (None, Some(place)) => reporter.fault(place, "`password_file`: requires `username`"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if let (Some(_), Some(place)) = (&user_place, &token_place) {
        reporter.fault(place, format_args!("`{token_key}`: cannot be combined with `username`"));
    }
    match (username, password_file, token_file) {
        (Some(username), Some(password_file), None) => Some(Credentials::Basic { username, password_file }),
        (_, _, Some(token_file)) => Some(Credentials::Token { scheme, token_file }),
        _ => None,
    }
}

/// `NAME=VALUE`
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_valid || value.is_empty() || value.chars().any(char::is_control) {
        return Err(format!(
            "invalid label `{text}`: expected NAME=VALUE, with a name of letters, digits and _"
        ));
    }
    if matches!(name, "node" | "jobid") {
        return Err(format!("the label `{name}` is set by the sink"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn user_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        return Err("expected a name without `:`".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use clap::Parser;

    use super::super::{CollectorArguments, check};
    use super::*;
    use crate::sinks::remote_write::Protocol;

    fn faults(text: &str) -> String {
        check(Path::new("collector.toml"), text).to_string()
    }

    fn resolved(text: &str) -> Option<RemoteWriteConfig> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["polymeter-collector", "--config", path.to_str().unwrap()];
        CollectorArguments::try_parse_from(arguments).unwrap().resolve().unwrap().remote_write
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(resolved(""), None);
        let url: ReceiverUrl = "https://mimir:9009/api/v1/push".parse().unwrap();
        let usual = RemoteWriteConfig::new(url);
        assert_eq!(resolved("[remote_write]\nurl = 'https://mimir:9009/api/v1/push'\n"), Some(usual.clone()));
        let found = resolved(
            "[remote_write]\nurl = 'https://mimir:9009/api/v1/push'\nprotocol = '1.0'\nmetrics = ['cpu.*']\njobs = []\n\
             nodes = ['n[1]*', 'N-2']\nlabels = ['site=a=b']\nspool = '/s'\nspool_bytes = '1GiB'\nshards = 2\n\
             batch_samples = 10\nbatch_wait = '1s'\ntimeout = '1min'\nresend_window = '30s'\nusername = 'u'\npassword_file = '/p'\n\
             headers = ['X-Scope-OrgID: t']\nheaders_file = '/h'\nca_file = '/c'\n",
        );
        let expected = RemoteWriteConfig {
            protocol: Protocol::V1,
            metrics: vec!["cpu.*".parse().unwrap()],
            jobs: Vec::new(),
            nodes: vec!["n[1]*".parse().unwrap(), "N-2".parse().unwrap()],
            labels: vec![("site".to_owned(), "a=b".to_owned())],
            spool: "/s".into(),
            spool_bytes: 1 << 30,
            shards: 2,
            batch_samples: 10,
            batch_wait: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            resend_window: Duration::from_secs(30),
            credentials: Some(Credentials::Basic { username: "u".to_owned(), password_file: "/p".into() }),
            headers: vec!["X-Scope-OrgID: t".parse().unwrap()],
            headers_file: Some("/h".into()),
            ca_file: Some("/c".into()),
            ..usual
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn all_faults_are_reported_with_their_lines() {
        let all = faults(
            "[remote_write]\nurl = 'mimir:9009'\nprotocol = '3'\nmetrics = ['CPU']\nlabels = ['node=x', 'a=b', 'a=c', '1=2']\n\
             spool = 's'\nspool_bytes = '1MiB'\nshards = 65\nbatch_wait = '1h'\nusername = 'u'\nbearer_token_file = 't'\n\
             headers = ['Authorization: x']\nca_file = '/c'\nheader = 1\n",
        );
        for (line, part) in [
            (2, "`url`: invalid URL"),
            (3, "unknown protocol `3`"),
            (4, "`metrics`"),
            (5, "the label `node` is set by the sink"),
            (5, "`a` is listed twice"),
            (5, "invalid label `1=2`"),
            (6, "expected an absolute path, found `s`"),
            (7, "from 16MiB to 16384GiB"),
            (8, "from 1 to 64"),
            (9, "from 1s to 10min"),
            (10, "`username`: requires `password_file`"),
            (11, "cannot be combined with `username`"),
            (12, "the header `authorization` is set by the sink"),
            (13, "requires a `url` that begins with https"),
            (14, "did you mean `headers`?"),
        ] {
            let place = format!("collector.toml:{line}: ");
            assert!(
                all.lines().any(|fault| fault.contains(&place) && fault.contains(part)),
                "{line} {part}:\n{all}"
            );
        }
        assert!(
            faults("[remote_write]\nmetrics = ['*']\n")
                .contains("collector.toml:1: [remote_write]: missing `url`")
        );
        assert!(faults("remote_write = 'http://x/'\n").contains("a section [remote_write]"));
        let secret = faults("[remote_write]\nurl = 'http://u:secret@x/'\n");
        assert!(secret.contains("password_file") && !secret.contains("secret"), "{secret}");
    }
}
