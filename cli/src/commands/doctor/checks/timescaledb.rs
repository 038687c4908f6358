//! The use of TimescaleDB.

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
    match (storage.is_timescale, config.timescaledb) {
        (true, _) => findings.ok(storage.form),
        (false, ExtensionMode::Require) => findings.problem(
            format!("the configuration requires TimescaleDB, and the store is {}", storage.form),
            "use a new database, or set timescaledb = \"auto\"",
        ),
        (false, ExtensionMode::Auto) if storage.is_citus => {
            findings.ok(format!("not used: {}", storage.form));
        }
        (false, ExtensionMode::Auto) => findings.ok(format!(
            "not used: the store is {}; with TimescaleDB samples take about a twentieth of the space",
            storage.form
        )),
        (false, ExtensionMode::Off) => findings.ok(format!("off, as configured: {}", storage.form)),
    }
}
