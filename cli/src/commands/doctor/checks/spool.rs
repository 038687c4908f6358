//! Spool of the agent.

use std::path::Path;

use polymeter_proto::units;
use polymeter_service::check::listed_directory_fault;
use polymeter_service::users;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{Machine, user_name};
use crate::commands::doctor::role::Role;
use crate::disk::disk;

const FULL_BYTES: u64 = 16 << 20;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.agent.valid() else { return };
    let Some(spool) = &config.spool else {
        let memory = units::bytes(u64::try_from(config.outbox_bytes).unwrap_or(u64::MAX));
        return findings
            .ok(format!("none: while the collector is away, {memory} of samples are kept in memory"));
    };
    rights(machine, spool, findings);
    let existing = spool.ancestors().find(|directory| directory.is_dir()).unwrap_or(Path::new("/"));
    match disk(existing) {
        Ok(space) if space.free_bytes < FULL_BYTES => findings.problem(
            format!(
                "the disk of the spool {} is full: {} free",
                spool.display(),
                units::bytes(space.free_bytes)
            ),
            format!("free space at {}, or name another directory in `spool`", existing.display()),
        ),
        Ok(space) if space.free_bytes < config.spool_bytes => findings.warning(
            format!(
                "the spool {} may take {}, and its disk has {} free",
                spool.display(),
                units::bytes(config.spool_bytes),
                units::bytes(space.free_bytes)
            ),
            "lower `spool_bytes`, or name another directory in `spool`",
        ),
        Ok(space) => findings.ok(format!("{}, {} free", spool.display(), units::bytes(space.free_bytes))),
        Err(error) => findings.not_checked(error),
    }
}

fn rights(machine: &Machine, spool: &Path, findings: &mut Findings) {
    // An unknown user is a finding of another check.
    let Ok(uid) = machine.agent_uid() else { return };
    match users::act_as(uid, || listed_directory_fault("spool", spool)) {
        Ok(Some(fault)) => {
            findings.problem_of(&fault, &format!("chown {}: {}", user_name(uid), spool.display()))
        }
        Ok(None) => {}
        Err(_) => findings.not_checked("the rights of the spool: that needs root"),
    }
}
