//! Agent and job that the environment names.

use std::path::PathBuf;

/// Variables with the id of the job, as for `polymeter push`.
const JOBS: [&str; 3] = ["POLYMETER_JOB_ID", "SLURM_JOB_ID", "OAR_JOB_ID"];

/// Variable with the path of the agent's socket, and the path without it.
const SOCKET: (&str, &str) = ("POLYMETER_SOCKET", "/run/polymeter/agent.sock");

/// Variables with the rank of the process. Those of launchers come first: a script of Slurm has a number
/// itself, which the ranks that it launches by other means inherit.
const RANKS: [&str; 7] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "PMI_RANK",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
];

/// Place to which the sums of this process go, and their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) socket: PathBuf,
    pub(crate) job: String,
    pub(crate) process: u32,
    pub(crate) rank: Option<u32>,
}

impl Destination {
    /// None outside of jobs.
    pub(crate) fn of_environment() -> Option<Self> {
        let job = JOBS.into_iter().find_map(variable)?;
        let socket = variable(SOCKET.0).unwrap_or_else(|| SOCKET.1.to_owned());
        let rank = RANKS.into_iter().find_map(|name| variable(name)?.parse().ok());
        Some(Self { socket: PathBuf::from(socket), job, process: std::process::id(), rank })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
