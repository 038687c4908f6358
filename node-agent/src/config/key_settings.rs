//! Keys `key` and `collector_key`.

use polymeter_service::document::{Reporter, Section};

use super::value_parsers::absolute;
use crate::keys::{AgentKeyFiles, CollectorKey};

/// Takes `key` and `collector_key`: both or neither, since one alone encrypts nothing. Each of several
/// `collectors` has the same key, or its own.
pub(super) fn take(
    root: &mut Section<'_>,
    collectors: usize,
    reporter: &mut Reporter<'_>,
) -> Option<AgentKeyFiles> {
    let alone = match (root.span("key"), root.span("collector_key")) {
        (Some(span), None) => Some((span, "`key`: requires `collector_key`, the collector's public key")),
        (None, Some(span)) => Some((span, "`collector_key`: requires `key`, the agent's own key file")),
        (None, None) | (Some(_), Some(_)) => None,
    };
    if let Some((span, message)) = alone {
        reporter.fault(&span, message);
    }
    let key = root.parse("key", reporter, absolute);
    let span = root.span("collector_key");
    let keys = root.one_or_more("collector_key", reporter, CollectorKey::parse);
    if let (Some(span), Some(keys)) = (span, &keys)
        && keys.len() != 1
        && keys.len() != collectors
    {
        let found = keys.len();
        let message = format_args!(
            "`collector_key`: expected one key for all collectors or one for each of {collectors}, found {found}"
        );
        reporter.fault(&span, message);
        return None;
    }
    Some(AgentKeyFiles { key: key?, collectors: keys? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::model::AgentConfig;
    use super::*;

    const KEY: &str = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

    fn parse(text: &str) -> Result<Option<AgentKeyFiles>, String> {
        let config = AgentConfig::parse(Path::new("agent.toml"), text);
        config.map(|config| config.keys).map_err(|faults| faults.to_string())
    }

    #[test]
    fn requires_both_keys_or_neither() {
        assert_eq!(parse(""), Ok(None));
        let files = |collector| Ok(Some(AgentKeyFiles { key: "/k".into(), collectors: vec![collector] }));
        let inline = parse(&format!("key = '/k'\ncollector_key = '{KEY}'\n"));
        assert_eq!(inline, files(CollectorKey::Key(KEY.parse().unwrap())));
        assert_eq!(parse("key = '/k'\ncollector_key = '/c'\n"), files(CollectorKey::File("/c".into())));
        let alone = parse("\nkey = '/k'\n").unwrap_err();
        assert!(alone.starts_with("agent.toml:2: `key`: requires `collector_key`"), "{alone}");
        let alone = parse("collector_key = '/c'\n").unwrap_err();
        assert!(alone.starts_with("agent.toml:1: `collector_key`: requires `key`"), "{alone}");
        let wrong = parse("key = 'k'\ncollector_key = 'c'\n").unwrap_err();
        assert_eq!(wrong.lines().count(), 2, "{wrong}");
        assert!(wrong.contains("absolute path") && wrong.contains("40 characters"), "{wrong}");
    }

    fn keys(keys: &str) -> Result<usize, String> {
        let text = format!("collector = ['ipc:///a', 'ipc:///b']\nkey = '/k'\ncollector_key = {keys}\n");
        parse(&text).map(|files| files.unwrap().collectors.len())
    }

    #[test]
    fn collectors_share_a_key_or_have_one_each() {
        assert_eq!((keys("'/c'"), keys("['/c']"), keys("['/c', '/d']")), (Ok(1), Ok(1), Ok(2)));
        let wrong = keys("['/c', '/d', '/e']").unwrap_err();
        assert!(wrong.contains("one for each of 2, found 3"), "{wrong}");
        assert!(keys("[]").is_err());
    }
}
