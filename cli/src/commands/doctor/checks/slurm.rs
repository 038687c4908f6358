//! Slurm calls Polymeter's scripts, and makes cgroups for jobs.

use std::path::Path;

use super::script::{Script, files};
use super::slurm_conf::SlurmConf;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// The directory of the packaged scripts.
const PACKAGED: &str = "/usr/libexec/polymeter/slurm";

/// A script that Slurm has to call: its setting, the packaged file, and what is missing without it.
type Hook = (&'static str, &'static str, &'static str);

const OF_NODE: [Hook; 2] = [
    ("Prolog", "prolog", "owners, accounts and requests of jobs are not announced"),
    ("Epilog", "epilog", "the ends of jobs are not announced"),
];

const OF_CONTROLLER: [Hook; 2] = [
    ("PrologSlurmctld", "prolog-slurmctld.sh", "names, time limits and memory of jobs are not recorded"),
    ("EpilogSlurmctld", "epilog-slurmctld.sh", "final states of jobs are not recorded"),
];

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    let Some(path) = SlurmConf::find() else {
        if role == Role::Node {
            findings.not_checked("there is no slurm.conf");
        }
        return;
    };
    let conf = match SlurmConf::read(&path) {
        Ok(conf) => conf,
        Err(error) => return findings.not_checked(format!("{}: {error}", path.display())),
    };
    if role == Role::Node {
        OF_NODE.iter().for_each(|hook| called(&conf, *hook, true, &path, findings));
        settings(&conf, findings);
    }
    // On a machine with several roles, the first one reports for the controller.
    if is_controller(&conf) && machine.roles.first() == Some(&role) {
        OF_CONTROLLER.iter().for_each(|hook| called(&conf, *hook, false, &path, findings));
    }
    if !findings.has_any() && role == Role::Node {
        findings.ok(format!("{} calls the scripts, and jobs get cgroups", path.display()));
    }
}

/// Returns true if Slurm's prolog starts an agent.
pub(super) fn starts_agent() -> bool {
    let conf = SlurmConf::find().and_then(|path| SlurmConf::read(&path).ok()).unwrap_or_default();
    let mut scripts = conf.values("Prolog").into_iter().flat_map(files);
    scripts.any(|path| Script::read(&path) == Script::Calls { starts_agent: true })
}

/// Checks that a setting names a script that calls Polymeter.
fn called(
    conf: &SlurmConf,
    (setting, packaged, missing): Hook,
    is_needed: bool,
    conf_path: &Path,
    findings: &mut Findings,
) {
    let paths: Vec<_> = conf.values(setting).into_iter().flat_map(files).collect();
    let mut unreadable = None;
    for path in &paths {
        match Script::read(path) {
            Script::Calls { .. } => return,
            Script::NotExecutable => {
                let path = path.display();
                return findings.problem(
                    format!("slurmd cannot run {path}: it is not executable"),
                    format!("chmod 755 {path}"),
                );
            }
            Script::Unreadable(reason) => unreadable = Some(reason),
            Script::Other => {}
        }
    }
    let directory = format!("{}.d", setting.to_lowercase());
    let remedy = match paths.first().and_then(|path| path.parent()) {
        Some(parent) => format!("install -D -m 755 {PACKAGED}/{packaged} {}/50-polymeter", parent.display()),
        None => format!(
            "install -D -m 755 {PACKAGED}/{packaged} /etc/slurm/{directory}/50-polymeter, and in {}: {setting}=/etc/slurm/{directory}/*",
            conf_path.display()
        ),
    };
    let text = match unreadable {
        Some(reason) => format!("{setting} of {}: {reason}", conf_path.display()),
        None if paths.is_empty() => format!("{} has no {setting}: {missing}", conf_path.display()),
        None => format!("no script of {setting} calls polymeter: {missing}"),
    };
    if is_needed { findings.problem(text, remedy) } else { findings.warning(text, remedy) }
}

/// Checks the settings without which jobs have no cgroups, or none in time.
fn settings(conf: &SlurmConf, findings: &mut Findings) {
    if !conf.has("ProctrackType", "proctrack/cgroup") {
        findings.problem(
            "ProctrackType is not proctrack/cgroup: jobs have no cgroups, and are not sampled",
            "set ProctrackType=proctrack/cgroup in slurm.conf, and restart slurmd",
        );
    }
    let missing: Vec<&str> =
        ["Alloc", "Contain"].into_iter().filter(|flag| !conf.has("PrologFlags", flag)).collect();
    if !missing.is_empty() {
        findings.warning(
            format!(
                "PrologFlags lacks {}: jobs are announced at their first step on each node",
                missing.join(" and ")
            ),
            "set PrologFlags=Alloc,Contain in slurm.conf, and restart slurmd",
        );
    }
}

/// Returns true if this machine is one of the controllers.
fn is_controller(conf: &SlurmConf) -> bool {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split(['.', '(']).next().unwrap_or_default().to_owned();
    ["SlurmctldHost", "ControlMachine"]
        .iter()
        .flat_map(|key| conf.values(key))
        .any(|name| short(name) == short(&host))
}
