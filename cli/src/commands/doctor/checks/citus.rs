//! The use of Citus.

use polymeter_store::ExtensionMode;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    if config.store.file().is_some() {
        return findings.ok("not used: the store is SQLite, which is for small clusters");
    }
    let storage = match machine.store() {
        Ok(state) => &state.storage,
        Err(reason) => return findings.not_checked(reason),
    };
    match (storage.is_citus, config.citus) {
        (true, _) => findings.ok(storage.form),
        (false, ExtensionMode::Require) => findings.problem(
            format!("the configuration requires Citus, and the store is {}", storage.form),
            "restart the collector, which distributes a store with a partition per day, or use a new database",
        ),
        (false, ExtensionMode::Auto) => {
            findings.ok(format!("not used: the samples are on one server, {}", storage.form));
        }
        (false, ExtensionMode::Off) => findings.ok(format!("off, as configured: {}", storage.form)),
    }
}
