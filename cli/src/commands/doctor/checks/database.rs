//! The store: the collector's user can connect, and its schema fits.

use polymeter_collector::check;
use polymeter_proto::units;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{Machine, user_name};
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    let uid = match machine.collector_uid() {
        Ok(uid) => uid,
        Err(error) => return findings.problem(error.to_string(), "systemd-sysusers"),
    };
    let examined = machine.as_collector("connect to the store", |mut config| {
        // Keys and the programs of the site have checks of their own.
        (config.keys, config.job_end, config.notices) = (None, None, None);
        check::faults(&config, true, true)
    });
    let faults = match examined {
        Ok(faults) => faults,
        Err(reason) => return findings.not_checked(reason),
    };
    let store = &config.store;
    for fault in &faults {
        findings.problem_of(
            fault,
            "check `store` in collector.toml: polymeter setup collector creates a database",
        );
    }
    if !faults.is_empty() {
        return;
    }
    match (machine.store(), store.file()) {
        (Ok(state), _) => {
            let jobs = units::counted(state.storage.jobs, "job");
            findings.ok(format!("{store} answers the user {}, {jobs}", user_name(uid)));
            if !state.missing_roles.is_empty() {
                findings.warning(
                    format!(
                        "the roles {} are missing or have no rights: Grafana and users cannot read the database",
                        state.missing_roles.join(", ")
                    ),
                    "as an administrator of the server, in the database: SELECT polymeter_create_roles(); or polymeter setup collector --store postgres",
                );
            }
        }
        (Err(_), Some(path)) if !path.exists() => {
            findings.ok(format!("the collector creates {} when it starts", path.display()));
        }
        (Err(reason), _) => {
            findings.not_checked(format!("{store} can be reached, but not examined: {reason}"))
        }
    }
}
