//! Keys of encryption, and the check that other machines can connect without it only if the configuration
//! permits it.

use polymeter_proto::endpoint;
use polymeter_proto::series::Identifier;
use polymeter_service::document::Faults;
use polymeter_service::keys::Value;

use crate::ingest::DeviceAgents;
use crate::keys::CollectorKeyFiles;

/// Fault of a collector without keys that other machines can reach.
const UNPROTECTED: &str = "other machines can reach this address, but without keys, data is not encrypted and agents are \
    not authenticated; create keys with `polymeter keygen` and set `key` and `authorised_agents`, or set `insecure = true` (--insecure) on a \
    trusted network";

/// Takes the collector's key file and the directory of the agents' keys: both or neither.
pub(super) fn key_files(Value { section, reporter, .. }: Value<'_, '_, '_>) -> Option<CollectorKeyFiles> {
    let alone = match (section.span("key"), section.span("authorised_agents")) {
        (Some(span), None) => {
            Some((span, "`key`: requires `authorised_agents`, the directory of the agents' keys"))
        }
        (None, Some(span)) => {
            Some((span, "`authorised_agents`: requires `key`, the collector's own key file"))
        }
        (Some(_), Some(_)) | (None, None) => None,
    };
    if let Some((span, message)) = alone {
        reporter.fault(&span, message);
    }
    let key = section.parse("key", reporter, str::parse);
    let authorised_agents = section.parse("authorised_agents", reporter, str::parse);
    Some(CollectorKeyFiles { key: key?, authorised_agents: authorised_agents? })
}

/// Takes the name of a node, a glob, or [`DeviceAgents::WITHOUT_JOBS`].
pub(super) fn device_agent(text: &str) -> Result<String, String> {
    let is_name =
        Identifier::try_from(text).is_ok() && (!text.starts_with('@') || text == DeviceAgents::WITHOUT_JOBS);
    let without_jobs = DeviceAgents::WITHOUT_JOBS;
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        format!("expected the name of a node, a glob such as `service*`, or `{without_jobs}`, found `{text}`")
    })
}

/// Adds a fault at `place` if other machines can reach the endpoint for agents, unless there are keys or the
/// configuration permits it.
pub(super) fn check_endpoint(listen: &str, is_permitted: bool, place: &str, faults: &mut Faults) {
    if !is_permitted && !endpoint::is_local(listen) {
        faults.add(place, UNPROTECTED);
    }
}
