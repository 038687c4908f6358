//! Section `[remote_write]`.

use polymeter_service::keys;
use polymeter_service::keys::Kind::{OneOf, Text};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::outbound::{self, LONGEST, credentials};
use super::value_parsers::{absolute, duration_up_to};
use crate::sinks::outbound::OutboundConfig;
use crate::sinks::remote_write::{AUTO, protocol};

keys! {
    /// The keys that other sections lack.
    pub(super) const KEYS: OutboundConfig = |config, value|

    /// The receiver, http or https, without credentials.
    "url": Text("url"), Example("http://localhost:9090/api/v1/write") => url = value.parse(str::parse);

    /// The version of the protocol: "1.0", "2.0", or "auto" for 2.0 if the receiver accepts it.
    "protocol": OneOf(&["auto", "1.0", "2.0"]), Usual("auto") => protocol = value.parse(protocol);

    /// Credentials: a name and a file with the password, or a file with a bearer token. Not every user may be
    /// able to read these files.
    "username": Text("string"), Example("polymeter");
    "password_file": Text("path"), Example("/etc/polymeter/remote-write.password");
    "bearer_token_file": Text("path"), Example("/etc/polymeter/remote-write.token")
        => credentials = Some(credentials(value, "bearer_token_file", "Bearer"));

    /// For a receiver that is killed and forgets what it accepted, such as VictoriaMetrics: what was accepted
    /// within this time, in whole s or min, is sent again after the receiver could not be reached. The
    /// receiver must ignore samples that it has. Without it nothing is sent again.
    "resend_window": Text("reach"), Example("1min")
        => resend_window = value.parse(|text| duration_up_to(text, LONGEST));

    /// The directory of samples that were not sent, and its size, from 16MiB to 16384GiB. The oldest samples
    /// beyond it are dropped.
    "spool": Text("path"), Usual("/var/lib/polymeter/remote-write") => spool = value.parse(absolute);
}

pub(super) fn take(value: Value<'_, '_, '_>) -> Option<OutboundConfig> {
    outbound::take(value, KEYS, &AUTO, "\"http://HOST:PORT/PATH\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::check;
    use super::outbound::tests;
    use super::*;
    use crate::sinks::outbound::{Credentials, ReceiverUrl};
    use crate::sinks::remote_write::V1;

    fn faults(text: &str) -> String {
        check(Path::new("collector.toml"), text).to_string()
    }

    fn resolved(text: &str) -> Option<OutboundConfig> {
        tests::resolved(text).remote_write
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(resolved(""), None);
        let url: ReceiverUrl = "https://mimir:9009/api/v1/push".parse().unwrap();
        let usual = OutboundConfig::new(&AUTO, url);
        assert_eq!(resolved("[remote_write]\nurl = 'https://mimir:9009/api/v1/push'\n"), Some(usual.clone()));
        let found = resolved(
            "[remote_write]\nurl = 'https://mimir:9009/api/v1/push'\nprotocol = '1.0'\nmetrics = ['cpu.*']\njobs = []\n\
             nodes = ['n[1]*', 'N-2']\nlabels = ['site=a=b']\nspool = '/s'\nspool_bytes = '1GiB'\nshards = 2\n\
             batch_samples = 10\nbatch_wait = '1s'\ntimeout = '1min'\nresend_window = '30s'\nusername = 'u'\npassword_file = '/p'\n\
             headers = ['X-Scope-OrgID: t']\nheaders_file = '/h'\nca_file = '/c'\n",
        );
        let expected = OutboundConfig {
            protocol: &V1,
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
