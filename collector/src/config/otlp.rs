//! Section `[otlp]`.

use polymeter_service::keys;
use polymeter_service::keys::Kind::{OneOf, Text};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::outbound::{self, credentials};
use super::value_parsers::absolute;
use crate::sinks::otlp::{GZIP, protocol};
use crate::sinks::outbound::OutboundConfig;

keys! {
    /// The keys that other sections lack.
    pub(super) const KEYS: OutboundConfig = |config, value|

    /// The receiver, http or https with the path, without credentials.
    "url": Text("url"), Example("http://localhost:4318/v1/metrics") => url = value.parse(str::parse);

    /// The compression of requests: "gzip", or "none".
    "compression": OneOf(&["gzip", "none"]), Usual("gzip") => protocol = value.parse(protocol);

    /// Credentials: a name and a file with the password, or a file with a bearer token. Not every user may be
    /// able to read these files.
    "username": Text("string"), Example("polymeter");
    "password_file": Text("path"), Example("/etc/polymeter/otlp.password");
    "bearer_token_file": Text("path"), Example("/etc/polymeter/otlp.token")
        => credentials = Some(credentials(value, "bearer_token_file", "Bearer"));

    /// The directory of samples that were not sent, and its size, from 16MiB to 16384GiB. The oldest samples
    /// beyond it are dropped.
    "spool": Text("path"), Usual("/var/lib/polymeter/otlp") => spool = value.parse(absolute);
}

pub(super) fn take(value: Value<'_, '_, '_>) -> Option<OutboundConfig> {
    outbound::take(value, KEYS, &GZIP, "\"http://HOST:4318/v1/metrics\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check;
    use super::outbound::tests;
    use super::*;
    use crate::sinks::otlp::PLAIN;
    use crate::sinks::outbound::Credentials;

    #[test]
    fn settings_are_read() {
        let resolved = |text: &str| tests::resolved(text).otlp;
        assert_eq!(resolved(""), None);
        let usual = OutboundConfig::new(&GZIP, "https://otel:4318/v1/metrics".parse().unwrap());
        let section = "[otlp]\nurl = 'https://otel:4318/v1/metrics'\n";
        assert_eq!(resolved(section), Some(usual.clone()));
        let found = resolved(&format!(
            "{section}compression = 'none'\nbearer_token_file = '/t'\nspool = '/s'\nmetrics = ['cpu.*']\n"
        ));
        let expected = OutboundConfig {
            protocol: &PLAIN,
            credentials: Some(Credentials::Token { scheme: "Bearer", token_file: "/t".into() }),
            spool: "/s".into(),
            metrics: vec!["cpu.*".parse().unwrap()],
            ..usual
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn faults_are_reported() {
        let all = check(Path::new("collector.toml"), "[otlp]\nurl = 'udp://x'\ncompression = 'zstd'\n");
        for part in ["expected http", "expected `gzip` or `none`"] {
            assert!(all.to_string().contains(part), "{part}: {all}");
        }
        let missing = check(Path::new("collector.toml"), "[otlp]\n").to_string();
        assert!(missing.contains("[otlp]: missing `url`"), "{missing}");
    }
}
