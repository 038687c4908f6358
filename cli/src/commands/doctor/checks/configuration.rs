//! The configuration files have no faults.

use std::fs::File;
use std::path::Path;

use polymeter_client::connection::collector::Collector;
use polymeter_collector::check;
use polymeter_service::document::Faults;
use polymeter_service::users;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{Configured, Machine, Unexamined, user_name};
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    match role {
        Role::Node => file(&machine.agent, machine.agent_uid(), "polymeter setup node", findings),
        Role::Collector => {
            file(&machine.collector, machine.collector_uid(), "polymeter setup collector", findings);
            command_at_job_ends(machine, findings);
        }
        Role::Login => match Collector::find(None, None) {
            Ok(_) => findings.ok("/etc/polymeter/client.toml has no faults"),
            Err(failure) => findings.problem_of(&failure.to_string(), "correct /etc/polymeter/client.toml"),
        },
    }
}

fn file<T>(configured: &Configured<T>, uid: Result<u32, Unexamined>, setup: &str, findings: &mut Findings) {
    let path = configured.path.display();
    match &configured.content {
        Ok(_) if configured.path.exists() => match uid.map(|uid| (uid, is_readable(&configured.path, uid))) {
            Ok((uid, false)) => findings.problem(
                format!("the user {} cannot read {path}", user_name(uid)),
                format!("chgrp {} {path} && chmod g+r {path}", user_name(uid)),
            ),
            Ok((_, true)) | Err(_) => findings.ok(format!("{path} has no faults")),
        },
        Ok(_) => findings.warning(format!("there is no {path}; the defaults apply"), setup),
        Err(Faults(faults)) => {
            for fault in faults {
                findings.problem(fault.to_string(), format!("correct {}", fault.place));
            }
        }
    }
}

/// False if a user cannot read a file. True if this user may not find out.
fn is_readable(path: &Path, uid: u32) -> bool {
    users::act_as(uid, || File::open(path).is_ok()).unwrap_or(true)
}

/// Examines the command at the ends of jobs with the rights of the collector. Keys and the store have checks
/// of their own.
fn command_at_job_ends(machine: &Machine, findings: &mut Findings) {
    if machine.collector.valid().is_none_or(|config| config.job_end.is_none() && config.notices.is_none()) {
        return;
    }
    let examined = machine.as_collector("examine the programs of [job_end] and [notices]", |mut config| {
        config.keys = None;
        check::faults(&config, false, false)
    });
    match examined {
        Ok(faults) => {
            faults.iter().for_each(|fault| findings.problem_of(fault, "correct [job_end] or [notices]"))
        }
        Err(reason) => findings.not_checked(reason),
    }
}
