//! Use of the extensions of PostgreSQL.

use polymeter_collector::CollectorConfig;
use polymeter_store::{ExtensionMode, Storage};

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

pub(super) fn timescaledb(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some((config, storage)) = on_server(machine, findings) else { return };
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

pub(super) fn citus(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some((config, storage)) = on_server(machine, findings) else { return };
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

/// Returns none for a store outside of PostgreSQL; the reason is a finding.
fn on_server<'a>(
    machine: &'a Machine,
    findings: &mut Findings,
) -> Option<(&'a CollectorConfig, &'a Storage)> {
    let config = machine.collector.valid()?;
    if config.store.file().is_some() {
        findings.ok("not used: the store is SQLite, which is for small clusters");
        return None;
    }
    match machine.store() {
        Ok(state) => Some((config, &state.storage)),
        Err(reason) => {
            findings.not_checked(reason);
            None
        }
    }
}
