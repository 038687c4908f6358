//! Store that an administrator's command works on.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use clap::Parser;
use polymeter_collector::config::{CollectorArguments, DEFAULT_PATH};
use polymeter_service::document::Faults;
use polymeter_store::StoreUrl;

use super::read_source::DEFAULT_FILE;
use crate::failure::Failure;
use crate::output::terminal;

/// The option that names a store.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreChoice {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE. Default: that of
    /// /etc/polymeter/collector.toml; without this file, sqlite:polymeter.db.
    #[arg(long, value_name = "STORE")]
    store: Option<StoreUrl>,
}

impl StoreChoice {
    /// Says on stderr which store it is unless the user named it.
    pub(crate) fn resolve(&self) -> Result<StoreUrl, Failure> {
        match &self.store {
            Some(store) => Ok(store.clone()),
            None => of_machine(Path::new(DEFAULT_PATH)),
        }
    }
}

/// `path` is the configuration of the collector of this machine.
fn of_machine(path: &Path) -> Result<StoreUrl, Failure> {
    let shown = path.display();
    let reason = match File::open(path) {
        Ok(_) => {
            let store = store_of(path).map_err(|faults| {
                Failure::Failed(format!(
                    "cannot find the store of this machine's collector: {faults}; correct {shown}, or name a store with --store"
                ))
            })?;
            terminal::print_error(&format!("using {store}, the store of {shown}\n"));
            return Ok(store);
        }
        Err(error) => error,
    };
    let store = StoreUrl::sqlite(DEFAULT_FILE);
    if reason.kind() != ErrorKind::NotFound {
        terminal::print_error(&format!(
            "using {store}: cannot read {shown}: {reason}; --store names another store\n"
        ));
    }
    Ok(store)
}

fn store_of(path: &Path) -> Result<StoreUrl, Faults> {
    let words: [&OsStr; 3] = ["polymeter-collector".as_ref(), "--config".as_ref(), path.as_os_str()];
    let arguments = CollectorArguments::try_parse_from(words).map_err(|error| {
        let mut faults = Faults::default();
        faults.add(path.display().to_string(), error);
        faults
    })?;
    arguments.resolve().map(|config| config.store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_that_of_the_collector() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        assert_eq!(of_machine(&path).unwrap().to_string(), "sqlite:polymeter.db", "there is no collector");
        std::fs::write(&path, "store = \"sqlite:/srv/meter.db\"\n").unwrap();
        assert_eq!(of_machine(&path).unwrap().to_string(), "sqlite:/srv/meter.db");
        std::fs::write(&path, "store = \"nonsense:\"\n").unwrap();
        let refused = of_machine(&path).unwrap_err().to_string();
        assert!(refused.contains("collector.toml") && refused.contains("--store"), "{refused}");
    }
}
