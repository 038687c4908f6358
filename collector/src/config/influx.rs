//! Section `[influx]`.

use polymeter_service::keys;
use polymeter_service::keys::Kind::Text;
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::outbound::{self, credentials};
use super::value_parsers::absolute;
use crate::sinks::influx::PROTOCOL;
use crate::sinks::outbound::{OutboundConfig, ReceiverUrl};

keys! {
    /// The keys that other sections lack.
    pub(super) const KEYS: OutboundConfig = |config, value|

    /// The receiver: http or https with the path and the parameters of InfluxDB, without credentials, or
    /// udp://HOST:PORT, which acknowledges nothing.
    "url": Text("url"), Example("http://localhost:8086/api/v2/write?org=hpc&bucket=polymeter")
        => url = value.parse(ReceiverUrl::http_or_udp);

    /// Credentials: a name and a file with the password, or a file with a token of InfluxDB. Not every user
    /// may be able to read these files.
    "username": Text("string"), Example("polymeter");
    "password_file": Text("path"), Example("/etc/polymeter/influx.password");
    "token_file": Text("path"), Example("/etc/polymeter/influx.token")
        => credentials = Some(credentials(value, "token_file", "Token"));

    /// The directory of samples that were not sent, and its size, from 16MiB to 16384GiB. The oldest samples
    /// beyond it are dropped.
    "spool": Text("path"), Usual("/var/lib/polymeter/influx") => spool = value.parse(absolute);
}

pub(super) fn take(value: Value<'_, '_, '_>) -> Option<OutboundConfig> {
    outbound::take(value, KEYS, &PROTOCOL, "\"http://HOST:8086/write?db=NAME\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check;
    use super::outbound::tests;
    use super::*;
    use crate::sinks::outbound::Credentials;

    fn resolved(text: &str) -> Option<OutboundConfig> {
        tests::resolved(text).influx
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(resolved(""), None);
        let url = "https://db:8086/api/v2/write?org=o&bucket=b";
        let usual = OutboundConfig::new(&PROTOCOL, url.parse().unwrap());
        assert_eq!(resolved(&format!("[influx]\nurl = '{url}'\n")), Some(usual.clone()));
        let found = resolved(&format!("[influx]\nurl = '{url}'\ntoken_file = '/t'\nshards = 2\n"));
        let credentials = Some(Credentials::Token { scheme: "Token", token_file: "/t".into() });
        assert_eq!(found, Some(OutboundConfig { credentials, shards: 2, ..usual }));
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
