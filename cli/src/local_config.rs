//! Configurations of the daemons of this machine.

use std::path::Path;

use clap::Parser;
use polymeter_collector::CollectorConfig;
use polymeter_collector::config::CollectorArguments;
use polymeter_service::document::Faults;

/// Returns the collector's defaults without a file.
pub(crate) fn collector_config(path: &Path) -> Result<CollectorConfig, Faults> {
    let file = path.exists().then(|| ["--config".into(), path.as_os_str().to_owned()]);
    let words = std::iter::once("polymeter-collector".into()).chain(file.into_iter().flatten());
    CollectorArguments::try_parse_from(words)
        .map_err(|error| {
            let mut faults = Faults::default();
            faults.add(path.display().to_string(), error);
            faults
        })
        .and_then(|arguments| arguments.resolve())
}
