//! Features of the machine without which a test is skipped.

use std::path::Path;

use polymeter_test_harness::{is_required, skip};

use crate::{
    apache, browser, cgroup, data_frames, disk, ipmi_sim, munge, network, nginx, node_exporter, oar,
    receivers, schemathesis, slurm, snmpd,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    Apache,
    Cgroup1,
    Cgroup2,
    Blkio,
    Perf,
    DataFrames,
    Mounts,
    Network,
    Munge,
    Nginx,
    NodeExporter,
    Chromium,
    Receivers,
    Schemathesis,
    Snmpd,
    Ipmi,
    Oar,
    Slurm,
    SlurmExperiment,
    SlurmFindings,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Apache => "apache",
            Self::Cgroup1 => "cgroup1",
            Self::Cgroup2 => "cgroup2",
            Self::Blkio => "blkio",
            Self::Perf => "perf",
            Self::DataFrames => "data-frames",
            Self::Mounts => "mounts",
            Self::Network => "network",
            Self::Munge => "munge",
            Self::Nginx => "nginx",
            Self::NodeExporter => "node-exporter",
            Self::Chromium => "chromium",
            Self::Receivers => "receivers",
            Self::Schemathesis => "schemathesis",
            Self::Snmpd => "snmpd",
            Self::Ipmi => "ipmi",
            Self::Oar => "oar",
            Self::Slurm => "slurm",
            Self::SlurmExperiment => "slurm-experiment",
            Self::SlurmFindings => "slurm-findings",
        }
    }

    /// Returns the reason why this machine lacks it.
    fn missing(self) -> Option<String> {
        let root = rustix::process::geteuid().is_root();
        match self {
            Self::Root => (!root).then(|| "the tests do not run as root".to_owned()),
            Self::Cgroup1 => cgroup::V1.iter().find_map(|controller| cgroup::unavailable(controller)),
            Self::Cgroup2 => cgroup::unavailable(cgroup::V2),
            Self::Blkio => cgroup::unavailable("blkio"),
            Self::Mounts => disk::missing(),
            Self::Network => network::Network::create().err(),
            Self::Munge => munge::missing(),
            Self::Apache => apache::missing(),
            Self::Nginx => nginx::missing(),
            Self::NodeExporter => node_exporter::missing(),
            Self::Chromium => browser::missing(),
            Self::Receivers => receivers::missing(),
            Self::Schemathesis => schemathesis::missing(),
            Self::DataFrames => data_frames::missing(),
            Self::Snmpd => snmpd::missing(),
            Self::Ipmi => ipmi_sim::missing(),
            Self::Oar => oar::missing(),
            // A cluster takes minutes, and its jobs need an idle machine: it runs only on request.
            Self::Slurm if !is_required(self.name()) => {
                Some("`make test-slurm` or `make test-findings` runs it".to_owned())
            }
            Self::Slurm => slurm::missing(),
            // The experiment prints a table and asserts nothing.
            Self::SlurmExperiment => {
                (!is_required(self.name())).then(|| "`make slurm-experiment` runs it".to_owned())
            }
            // The jobs of minutes: about two hours.
            Self::SlurmFindings => {
                (!is_required(self.name())).then(|| "`make slurm-findings` runs it".to_owned())
            }
            Self::Perf => {
                let implicit = cgroup::root("perf_event").is_none() && cgroup::root(cgroup::V2).is_some();
                let kernel = Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
                (!(implicit && kernel && root))
                    .then(|| "perf events do not follow cgroups of version 2".to_owned())
            }
        }
    }
}

pub fn require(needs: &[Need]) {
    for need in needs {
        if let Some(reason) = need.missing() {
            skip(need.name(), &reason);
        }
    }
}
