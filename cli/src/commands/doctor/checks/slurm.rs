//! Slurm calls Polymeter's scripts, and makes cgroups for jobs.

use std::path::{Path, PathBuf};

use super::script::{Script, files};
use super::slurm_conf::SlurmConf;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

const PACKAGED: &str = "/usr/libexec/polymeter/slurm";

struct Hook {
    /// Key in `slurm.conf`.
    setting: &'static str,
    packaged: &'static str,
    /// What is missing without the script; ends a message.
    missing: &'static str,
    daemon: Daemon,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Daemon {
    /// Runs all files that fit a pattern.
    Slurmd,
    /// Runs one program: slurmctld of 22.05 takes a pattern for a file's name, and runs nothing. It reads the
    /// setting when it starts.
    Slurmctld,
}

const OF_NODE: [Hook; 2] = [
    Hook {
        setting: "Prolog",
        packaged: "prolog",
        missing: "owners, accounts and requests of jobs are not announced",
        daemon: Daemon::Slurmd,
    },
    Hook {
        setting: "Epilog",
        packaged: "epilog",
        missing: "the ends of jobs are not announced",
        daemon: Daemon::Slurmd,
    },
];

const OF_CONTROLLER: [Hook; 2] = [
    Hook {
        setting: "PrologSlurmctld",
        packaged: "prolog-slurmctld.sh",
        missing: "names, time limits and memory of jobs are not recorded",
        daemon: Daemon::Slurmctld,
    },
    Hook {
        setting: "EpilogSlurmctld",
        packaged: "epilog-slurmctld.sh",
        missing: "final states of jobs are not recorded",
        daemon: Daemon::Slurmctld,
    },
];

impl Hook {
    /// How to connect the script where the setting names the files `paths`.
    fn remedy(&self, paths: &[PathBuf], conf_path: &Path) -> String {
        let Self { setting, packaged, daemon, .. } = self;
        match (daemon, paths.first().and_then(|path| Some((path, path.parent()?)))) {
            (Daemon::Slurmd, Some((_, parent))) => {
                format!("install -D -m 755 {PACKAGED}/{packaged} {}/50-polymeter", parent.display())
            }
            (Daemon::Slurmctld, Some((path, _))) => {
                format!("add the line `{PACKAGED}/{packaged}` to {}", path.display())
            }
            (Daemon::Slurmd, None) => {
                let directory = format!("/etc/slurm/{}.d", setting.to_lowercase());
                format!(
                    "install -D -m 755 {PACKAGED}/{packaged} {directory}/50-polymeter, and in {}: {setting}={directory}/*, then scontrol reconfigure",
                    conf_path.display()
                )
            }
            (Daemon::Slurmctld, None) => format!(
                "install -D -m 755 {PACKAGED}/{packaged} /etc/slurm/{packaged}, and in {}: {setting}=/etc/slurm/{packaged}, then systemctl restart slurmctld",
                conf_path.display()
            ),
        }
    }
}

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
        OF_NODE.iter().for_each(|hook| called(&conf, hook, &path, findings));
        settings(&conf, findings);
    }
    // On a machine with several roles, the first one reports for the controller.
    if is_controller(&conf) && machine.roles.first() == Some(&role) {
        OF_CONTROLLER.iter().for_each(|hook| called(&conf, hook, &path, findings));
    }
    if !findings.has_any() && role == Role::Node {
        findings.ok(format!("{} calls the scripts, and jobs get cgroups", path.display()));
    }
}

pub(super) fn starts_agent() -> bool {
    let conf = SlurmConf::find().and_then(|path| SlurmConf::read(&path).ok()).unwrap_or_default();
    let mut scripts = conf.values("Prolog").into_iter().flat_map(files);
    scripts.any(|path| Script::read(&path) == Script::Calls { starts_agent: true })
}

/// Examines whether the setting of `hook` names a script that calls Polymeter.
fn called(conf: &SlurmConf, hook: &Hook, conf_path: &Path, findings: &mut Findings) {
    let Hook { setting, missing, daemon, .. } = hook;
    let values = conf.values(setting);
    let (patterns, values): (Vec<&str>, Vec<&str>) =
        values.into_iter().partition(|value| *daemon == Daemon::Slurmctld && value.contains('*'));
    let paths: Vec<_> = values.into_iter().flat_map(files).collect();
    let mut unreadable = None;
    for path in &paths {
        match Script::read(path) {
            Script::Calls { .. } => return,
            Script::NotExecutable => {
                let path = path.display();
                return findings.problem(
                    format!("Slurm cannot run {path}: it is not executable"),
                    format!("chmod 755 {path}"),
                );
            }
            Script::Unreadable(reason) => unreadable = Some(reason),
            Script::Other => {}
        }
    }
    let text = match (unreadable, patterns.first()) {
        (Some(reason), _) => format!("{setting} of {}: {reason}", conf_path.display()),
        (None, Some(pattern)) => {
            format!(
                "{setting}={pattern} is a pattern, and not all releases of slurmctld know patterns: {missing}"
            )
        }
        (None, None) if paths.is_empty() => format!("{} has no {setting}: {missing}", conf_path.display()),
        (None, None) => format!("no script of {setting} calls polymeter: {missing}"),
    };
    let remedy = hook.remedy(&paths, conf_path);
    match daemon {
        Daemon::Slurmd => findings.problem(text, remedy),
        Daemon::Slurmctld => findings.warning(text, remedy),
    }
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

fn is_controller(conf: &SlurmConf) -> bool {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split(['.', '(']).next().unwrap_or_default().to_owned();
    ["SlurmctldHost", "ControlMachine"]
        .iter()
        .flat_map(|key| conf.values(key))
        .any(|name| short(name) == short(&host))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::commands::doctor::finding::{Finding, Level};

    /// What is found about `hook` with this `slurm.conf`, in which `DIR` is replaced by the directory of the
    /// script `site`, which calls nothing of Polymeter.
    fn found(hook: &Hook, text: &str) -> Vec<Finding> {
        let directory = tempfile::tempdir().unwrap();
        let (conf, site) = (directory.path().join("slurm.conf"), directory.path().join("site"));
        std::fs::write(&site, "#!/bin/sh\nlogger job\n").unwrap();
        std::fs::set_permissions(&site, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().display().to_string();
        std::fs::write(&conf, text.replace("DIR", &path)).unwrap();
        let mut findings = Findings::new("slurm", Role::Node);
        called(&SlurmConf::read(&conf).unwrap(), hook, &conf, &mut findings);
        let without_path = |text: String| text.replace(&path, "DIR");
        let list = findings.into_list().into_iter();
        list.map(|one| Finding { text: without_path(one.text), remedy: one.remedy.map(without_path), ..one })
            .collect()
    }

    #[test]
    fn remedies_for_slurmctld_name_one_file_and_its_restart() {
        let [prolog, _] = &OF_CONTROLLER;
        let installs = "install -D -m 755 /usr/libexec/polymeter/slurm/prolog-slurmctld.sh /etc/slurm/prolog-slurmctld.sh, and in DIR/slurm.conf: PrologSlurmctld=/etc/slurm/prolog-slurmctld.sh, then systemctl restart slurmctld";
        let missing = found(prolog, "ClusterName=lab\n");
        assert_eq!(missing[0].remedy.as_deref(), Some(installs));
        assert_eq!(missing[0].level, Level::Warning);
        let pattern = found(prolog, "PrologSlurmctld=DIR/*\n");
        assert!(pattern[0].text.starts_with("PrologSlurmctld=DIR/* is a pattern"), "{pattern:?}");
        assert_eq!(pattern[0].remedy.as_deref(), Some(installs));
        let other = found(prolog, "PrologSlurmctld=DIR/site\n");
        let adds = "add the line `/usr/libexec/polymeter/slurm/prolog-slurmctld.sh` to DIR/site";
        assert_eq!(other[0].remedy.as_deref(), Some(adds));
    }

    #[test]
    fn remedies_for_slurmd_use_patterns() {
        let [prolog, _] = &OF_NODE;
        let missing = found(prolog, "ClusterName=lab\n");
        assert_eq!(missing[0].level, Level::Problem);
        assert!(
            missing[0]
                .remedy
                .as_ref()
                .unwrap()
                .ends_with("Prolog=/etc/slurm/prolog.d/*, then scontrol reconfigure")
        );
        let other = found(prolog, "Prolog=DIR/*\n");
        assert_eq!(
            other[0].remedy.as_deref(),
            Some("install -D -m 755 /usr/libexec/polymeter/slurm/prolog DIR/50-polymeter")
        );
    }
}
