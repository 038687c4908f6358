//! Ranks of processes: the numbers that launchers of parallel programs give them, in their environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::sources::kernel_text;
use crate::sources::process_files::variables;

/// Variables with the rank of a process, in the order of the library of regions.
const RANKS: [&str; 7] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "PMI_RANK",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
];

/// Bound of the processes whose ranks are told: a node has fewer ranks, but each may start many processes,
/// which inherit the number.
const PROCESSES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Ranks {
    proc: PathBuf,
    known: BTreeSet<u32>,
    told: usize,
}

impl Ranks {
    pub(super) fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), known: BTreeSet::new(), told: 0 }
    }

    /// Records that a process executes another program, perhaps with another environment.
    pub(super) fn exec(&mut self, pid: u32) {
        self.known.remove(&pid);
    }

    /// Ranks of those processes that were not asked for since they began, each with its id.
    pub(super) fn of_new(&mut self, pids: &BTreeSet<u32>) -> Vec<(u32, u32)> {
        let mut ranks = Vec::new();
        for pid in pids {
            if self.told < PROCESSES_MAX
                && self.known.insert(*pid)
                && let Ok(environment) = kernel_text::bytes(&self.proc.join(format!("{pid}/environ")))
                && let Some(rank) = rank(&environment)
            {
                self.told += 1;
                ranks.push((*pid, rank));
            }
        }
        // The id of a process that is not sampled any more may become that of another.
        self.known.retain(|pid| pids.contains(pid) || self.proc.join(pid.to_string()).exists());
        ranks
    }
}

/// Rank in an environment, proc_pid_environ(5).
fn rank(environment: &[u8]) -> Option<u32> {
    RANKS.into_iter().find_map(|name| variables(environment, name).find_map(|value| value.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_environment(proc: &Path, pid: u32, environment: &str) {
        let directory = proc.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("environ"), environment).unwrap();
    }

    #[test]
    fn a_process_is_asked_once_unless_it_executes_another_program() {
        let proc = tempfile::tempdir().unwrap();
        let write = |pid, environment| write_environment(proc.path(), pid, environment);
        write(7, "A=1\0SLURM_PROCID=4\0PMI_RANK=9\0");
        write(8, "XPMI_RANK=1\0PMI_RANK=x\0SLURM_PROCID=\0");
        let mut ranks = Ranks::new(proc.path());
        let pids = BTreeSet::from([7, 8, 9]);
        assert_eq!(ranks.of_new(&pids), [(7, 9)], "a launcher comes before the scheduler");
        write(8, "OMPI_COMM_WORLD_RANK=3");
        assert_eq!(ranks.of_new(&pids), []);
        ranks.exec(8);
        assert_eq!(ranks.of_new(&pids), [(8, 3)]);
        std::fs::remove_dir_all(proc.path().join("7")).unwrap();
        assert_eq!(ranks.of_new(&BTreeSet::new()), []);
        write(7, "PMIX_RANK=0");
        assert_eq!(ranks.of_new(&pids), [(7, 0)], "another process");
    }

    #[test]
    fn the_variables_are_those_of_the_library_of_regions() {
        let library = include_str!("../../../regions/src/destination.rs");
        let list = library.split("const RANKS").nth(1).unwrap().split("];").next().unwrap();
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(names, RANKS);
    }
}
