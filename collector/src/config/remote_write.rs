//! The section `[remote_write]`: the receiver of samples, and the selection.

use std::fmt::Display;

use polymeter_service::byte_size;
use polymeter_service::document::{Reporter, Section, Span};

use super::values::{absolute, duration_up_to};
use crate::sinks::remote_write::{Credentials, ReceiverUrl, RemoteWriteConfig, SHARDS_MAX};

/// The maximum number of samples in a request: its body has some 20 bytes for each, and the labels.
const BATCH_SAMPLES_MAX: u64 = 50_000;

/// The longest time for which samples wait or are kept, and the longest timeout.
const LONGEST: &str = "10min";

/// The least and the greatest size of the spool.
const SPOOL_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=16 << 40;

/// The maximum number of labels that each series gets.
const LABELS_MAX: usize = 16;

/// Takes the section out of the document; none without one, and without a valid URL.
pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Option<RemoteWriteConfig> {
    let place = root.span("remote_write");
    let mut section = root.section("remote_write", reporter)?;
    let has_url = section.span("url").is_some();
    let url: Option<ReceiverUrl> = section.parse("url", reporter, str::parse);
    if let Some(place) = place.filter(|_| !has_url) {
        let message =
            "[remote_write]: missing `url`; remove the section, or set url = \"http://HOST:PORT/PATH\"";
        reporter.fault(&place, message);
    }
    // Without a URL the other keys are checked, too.
    let any: Option<ReceiverUrl> = "http://localhost/".parse().ok();
    let mut config = RemoteWriteConfig::new(url.clone().or(any)?);
    read_selection(&mut config, &mut section, reporter);
    read_delivery(&mut config, &mut section, reporter);
    read_requests(&mut config, &mut section, reporter);
    section.finish(reporter);
    url.map(|_| config)
}

/// Replaces a setting that the section has.
fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

fn read_selection(config: &mut RemoteWriteConfig, section: &mut Section<'_>, reporter: &mut Reporter<'_>) {
    set(&mut config.metrics, list(section, reporter, "metrics", str::parse));
    set(&mut config.jobs, list(section, reporter, "jobs", str::parse));
    set(&mut config.nodes, list(section, reporter, "nodes", str::parse));
    let mut labels: Vec<(String, String)> = Vec::new();
    for (text, span) in section.strings("labels", reporter).unwrap_or_default() {
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
    config.labels = labels;
}

fn read_delivery(config: &mut RemoteWriteConfig, section: &mut Section<'_>, reporter: &mut Reporter<'_>) {
    set(&mut config.protocol, section.parse("protocol", reporter, str::parse));
    set(&mut config.spool, section.parse("spool", reporter, absolute));
    let size = |text: &str| byte_size::parse(text, SPOOL_BYTES);
    set(&mut config.spool_bytes, section.parse("spool_bytes", reporter, size));
    let shards = section.integer("shards", reporter, 1..=SHARDS_MAX as u64);
    set(&mut config.shards, shards.and_then(|shards| usize::try_from(shards).ok()));
    let samples = section.integer("batch_samples", reporter, 1..=BATCH_SAMPLES_MAX);
    set(&mut config.batch_samples, samples.and_then(|samples| u32::try_from(samples).ok()));
    set(&mut config.batch_wait, section.parse("batch_wait", reporter, |text| duration_up_to(text, LONGEST)));
    set(&mut config.timeout, section.parse("timeout", reporter, |text| duration_up_to(text, LONGEST)));
    let window = section.parse("resend_window", reporter, |text| duration_up_to(text, LONGEST));
    set(&mut config.resend_window, window);
}

fn read_requests(config: &mut RemoteWriteConfig, section: &mut Section<'_>, reporter: &mut Reporter<'_>) {
    let place = |key| section.span(key);
    let (user_place, password_place) = (place("username"), place("password_file"));
    let (token_place, ca_place) = (place("bearer_token_file"), place("ca_file"));
    let username = section.parse("username", reporter, user_name);
    let password_file = section.parse("password_file", reporter, absolute);
    let token_file = section.parse("bearer_token_file", reporter, absolute);
    let mut fault = |place: &Option<Span>, message: &str| {
        if let Some(place) = place {
            reporter.fault(place, message);
        }
    };
    match (&user_place, &password_place) {
        (Some(_), None) => fault(&user_place, "`username`: requires `password_file`"),
        (None, Some(_)) => fault(&password_place, "`password_file`: requires `username`"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if user_place.is_some() && token_place.is_some() {
        fault(&token_place, "`bearer_token_file`: cannot be combined with `username`");
    }
    if ca_place.is_some() && !config.url.is_tls() {
        fault(&ca_place, "`ca_file`: requires a `url` that begins with https");
    }
    config.credentials = match (username, password_file, token_file) {
        (Some(username), Some(password_file), None) => Some(Credentials::Basic { username, password_file }),
        (_, _, Some(token_file)) => Some(Credentials::Bearer { token_file }),
        _ => None,
    };
    config.headers_file = section.parse("headers_file", reporter, absolute);
    config.ca_file = section.parse("ca_file", reporter, absolute);
    set(&mut config.headers, list(section, reporter, "headers", str::parse));
}

/// Takes a list, and parses each of its strings.
fn list<T, E: Display>(
    section: &mut Section<'_>,
    reporter: &mut Reporter<'_>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<Vec<T>> {
    let mut parsed = Vec::new();
    for (text, span) in section.strings(key, reporter)? {
        match parse(&text) {
            Ok(item) => parsed.push(item),
            Err(reason) => reporter.fault(&span, format_args!("`{key}`: {reason}")),
        }
    }
    Some(parsed)
}

/// Parses a label, `NAME=VALUE`.
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_valid = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_name);
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
