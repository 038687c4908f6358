//! Section `[influx]`: a receiver of InfluxDB's line protocol, and the selection.

use polymeter_service::keys::Kind::{Integer, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;
use polymeter_service::{byte_size, keys};

use super::remote_write::{BATCH_SAMPLES_MAX, LONGEST, SPOOL_BYTES, ca_file, credentials, labels};
use super::value_parsers::{absolute, duration_up_to, section_with};
use crate::sinks::remote_write::{ReceiverUrl, RemoteWriteConfig, SHARDS_MAX};

keys! {
    /// The keys of the section.
    pub(super) const KEYS: RemoteWriteConfig = |config, value|

    /// The receiver: http or https with the path and the parameters of InfluxDB, without credentials, or
    /// udp://HOST:PORT, which acknowledges nothing. With https, ca_file has the root certificates; without it
    /// those of the operating system count.
    "url": Text("url"), Example("http://localhost:8086/api/v2/write?org=hpc&bucket=polymeter")
        => url = value.parse(ReceiverUrl::of_influx);
    "ca_file": Text("path"), Example("/etc/polymeter/ca.pem")
        => ca_file = ca_file(&config.url, value).map(Some);

    /// The samples that are sent: globs of metrics, of the ids of jobs, and of nodes. jobs = [] leaves the
    /// series of nodes.
    "metrics": Texts, Usual("[\"*\"]") => metrics = value.list(str::parse);
    "jobs": Texts, Usual("[\"*\"]") => jobs = value.list(str::parse);
    "nodes": Texts, Usual("[\"*\"]") => nodes = value.list(str::parse);

    /// Tags that each series gets.
    "labels": Texts, Example("[\"site=here\"]") => labels = labels(value);

    /// Credentials: a name and a file with the password, or a file with a token of InfluxDB. Not every user
    /// may be able to read these files.
    "username": Text("string"), Example("polymeter");
    "password_file": Text("path"), Example("/etc/polymeter/influx.password");
    "token_file": Text("path"), Example("/etc/polymeter/influx.token")
        => credentials = Some(credentials(value, "token_file", "Token"));

    /// Further headers, and a file with such that are secrets, one in each line.
    "headers": Texts, Example("[\"X-Scope-OrgID: hpc\"]") => headers = value.list(str::parse);
    "headers_file": Text("path"), Example("/etc/polymeter/influx.headers")
        => headers_file = value.parse(absolute).map(Some);

    /// The directory of samples that were not sent, and its size, from 16MiB to 16384GiB. The oldest samples
    /// beyond it are dropped.
    "spool": Text("path"), Usual("/var/lib/polymeter/influx") => spool = value.parse(absolute);
    "spool_bytes": Text("size"), Usual("8GiB")
        => spool_bytes = value.parse(|text| byte_size::parse(text, SPOOL_BYTES));

    /// The number of connections, each with a part of the series; the most samples of a request, and the
    /// longest time, in whole s or min, for which they wait for others; the timeout of a request.
    "shards": Integer(1, SHARDS_MAX as u64), Usual("4") => shards = value.integer();
    "batch_samples": Integer(1, BATCH_SAMPLES_MAX), Usual("2000") => batch_samples = value.integer();
    "batch_wait": Text("reach"), Usual("5s")
        => batch_wait = value.parse(|text| duration_up_to(text, LONGEST));
    "timeout": Text("reach"), Usual("30s") => timeout = value.parse(|text| duration_up_to(text, LONGEST));
}

/// The section must have a URL.
pub(super) fn take(value: Value<'_, '_, '_>) -> Option<RemoteWriteConfig> {
    // A receiver in place of one that is missing or invalid, so that the other keys are checked, too.
    let any: ReceiverUrl = "http://localhost/".parse().ok()?;
    section_with(value, KEYS, RemoteWriteConfig::influx(any), "url", "\"http://HOST:8086/write?db=NAME\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::super::{CollectorArguments, check};
    use super::*;
    use crate::sinks::remote_write::Credentials;

    fn resolved(text: &str) -> Option<RemoteWriteConfig> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["polymeter-collector", "--config", path.to_str().unwrap()];
        CollectorArguments::try_parse_from(arguments).unwrap().resolve().unwrap().influx
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(resolved(""), None);
        let url = "https://db:8086/api/v2/write?org=o&bucket=b";
        let usual = RemoteWriteConfig::influx(url.parse().unwrap());
        assert_eq!(resolved(&format!("[influx]\nurl = '{url}'\n")), Some(usual.clone()));
        let found = resolved(&format!("[influx]\nurl = '{url}'\ntoken_file = '/t'\nshards = 2\n"));
        let credentials = Some(Credentials::Token { scheme: "Token", token_file: "/t".into() });
        assert_eq!(found, Some(RemoteWriteConfig { credentials, shards: 2, ..usual }));
        let udp = resolved("[influx]\nurl = 'udp://db'\n").unwrap();
        assert_eq!((udp.url.to_string(), udp.url.port()), ("udp://db/".to_owned(), 8089));
    }

    #[test]
    fn faults_are_reported() {
        let all = "[influx]\nurl = 'udp://u:secret@x'\nusername = 'u'\ntoken_file = '/t'\nca_file = '/c'\n";
        let all = check(Path::new("collector.toml"), all).to_string();
        for part in ["expected udp://HOST:PORT", "`token_file`: cannot be combined", "begins with https"] {
            assert!(all.contains(part) && !all.contains("secret"), "{part}: {all}");
        }
        let missing = check(Path::new("collector.toml"), "[influx]\nshards = 1\n").to_string();
        assert!(missing.contains("[influx]: missing `url`"), "{missing}");
    }
}
