//! How commands within the run reach its agent, and the requests of its user that had no effect.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use polymeter_agent::request::View;
use polymeter_client::connection::agent::{JOB_VARIABLE, SOCKET_VARIABLE, STORE_VARIABLE};
use polymeter_proto::catalogue::derived::{self, Derived};
use polymeter_proto::control::UnavailableGroup;
use polymeter_proto::name::Selector;
use tempfile::TempDir;

use super::destination::private_directory;

/// `sun_path` of unix(7), less the lock's suffix.
const PATH_MAX: usize = 100;

/// Has a private directory, which is removed at the end.
#[derive(Debug)]
pub(super) struct ControlSocket {
    directory: TempDir,
}

impl ControlSocket {
    /// Creates the directory among the temporary files, or in /tmp where their path is too long for a socket.
    /// None where neither is possible: requests of commands within the run then fail as outside of it.
    pub(super) fn create() -> Option<Self> {
        let parents = [std::env::temp_dir(), PathBuf::from("/tmp")];
        parents.iter().find_map(|parent| {
            let directory = private_directory(parent).ok()?;
            let socket = Self { directory };
            (socket.path().as_os_str().len() <= PATH_MAX).then_some(socket)
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    /// They name the agent, the job, and the file with its samples.
    pub(super) fn environment(&self, job_id: &str, samples: &Path) -> Vec<(&'static str, OsString)> {
        // The command may run in another directory.
        let samples = std::path::absolute(samples).unwrap_or_else(|_| samples.to_owned());
        vec![
            (SOCKET_VARIABLE, self.path().into()),
            (JOB_VARIABLE, job_id.into()),
            (STORE_VARIABLE, samples.into()),
        ]
    }
}

const OF_CGROUPS: [&str; 4] = ["cpu.", "memory.", "io.", "pids."];

/// Describes each request `SELECTOR[=PERIOD]` none of whose metrics is sampled, or none of those of a cgroup
/// where the command has none, with the reasons.
pub(super) fn without_effect(requested: &[String], view: &View, has_cgroup: bool) -> Vec<String> {
    let mut notes = Vec::new();
    for text in requested {
        let (selector, period) = text.split_once('=').unwrap_or((text, ""));
        let Ok(selector) = selector.parse::<Selector>() else { continue };
        let derived: Vec<&Derived> = derived::select(&selector).collect();
        let selects =
            |metric: &str| selector.matches(metric) || derived.iter().any(|derived| derived.may_use(metric));
        let mut plans = view.subjects.iter().flat_map(|subject| &subject.plan);
        let is_sampled = plans.any(|(metric, _)| selects(metric));
        let unavailable = view.subjects.iter().flat_map(|subject| &subject.unavailable);
        let mut unavailable: Vec<(String, String)> =
            unavailable.filter(|(metric, _)| selects(metric)).cloned().collect();
        if is_sampled {
            unavailable.retain(|(metric, _)| {
                !has_cgroup && OF_CGROUPS.iter().any(|prefix| metric.starts_with(prefix))
            });
        }
        if is_sampled && period != "off" && text.starts_with("node.") {
            notes.push(format!(
                "-m '{text}' samples the node: the values are in the file of -o, not in this report"
            ));
        }
        if period == "off" || (is_sampled && unavailable.is_empty()) {
            continue;
        }
        if unavailable.is_empty() && !derived.is_empty() {
            notes.push(format!("-m '{text}' has no effect: nothing is sampled for it on this CPU"));
            continue;
        }
        if unavailable.is_empty() {
            notes.push(format!(
                "-m '{text}' has no effect until the command has what is sampled: a process that has used a \
                 second of CPU time, or a device"
            ));
            continue;
        }
        unavailable.sort();
        unavailable.dedup();
        let groups = UnavailableGroup::by_reason(&unavailable);
        let reasons = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let extent = if is_sampled { " on" } else { ": none of its metrics is available here:" };
        let remedy = if has_cgroup {
            "`polymeter metrics` lists the metrics and their sources"
        } else {
            "the command has no cgroup; `process.*` and `perf.*` need none, and root or a delegated cgroup gets one"
        };
        notes.push(format!("-m '{text}' has no effect{extent} {reasons}; {remedy}"));
    }
    notes
}
