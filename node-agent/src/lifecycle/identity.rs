//! Identity of jobs, from the system: the job's number and owner from its processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use polymeter_proto::series::Identifier;

use crate::cgroups::{JobCgroups, subdirectories};
use crate::sources::process_list::listed;

/// Most directories of one job that are searched for processes: its own, its steps' and its tasks'.
const DIRECTORIES: usize = 256;

/// Most processes of one job whose environment is read: the first has the number, if any.
const PROCESSES: usize = 16;

const ENVIRONMENT_BYTES: u64 = 128 * 1024;

/// Variable that holds the job's number. `DIGITS` is the most digits of the number.
const VARIABLE: &[u8] = b"SLURM_JOB_ID=";
const DIGITS: usize = 10;

/// User that owns all processes in a cgroup and below it, apart from root's; none if there are several.
pub(crate) fn owner_of_processes(proc: &Path, cgroup: &Path) -> Option<u32> {
    let mut owners = BTreeSet::new();
    let mut directories = vec![cgroup.to_owned()];
    let mut visited = 0;
    while let Some(directory) = directories.pop() {
        visited += 1;
        if visited > DIRECTORIES {
            break;
        }
        let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        owners.extend(processes.lines().filter_map(|line| owner_of(proc, line.parse().ok()?)));
        directories.extend(subdirectories(&directory));
    }
    owners.remove(&0);
    let mut owners = owners.into_iter();
    owners.next().filter(|_| owners.next().is_none())
}

/// Owner of a process: its directory's owner, proc(5).
pub(crate) fn owner_of(proc: &Path, process: u32) -> Option<u32> {
    directory_owner(&proc.join(process.to_string()))
}

pub(crate) fn directory_owner(directory: &Path) -> Option<u32> {
    fs::metadata(directory).ok().map(|metadata| metadata.uid())
}

/// Number of a job of Slurm, from the environment of one of its processes.
pub(crate) fn job_number(proc: &Path, cgroups: &JobCgroups) -> Option<Identifier> {
    let processes = listed(cgroups.of_processes()?)?;
    processes.into_iter().take(PROCESSES).find_map(|pid| {
        let mut environment = Vec::new();
        let file = File::open(proc.join(pid.to_string()).join("environ")).ok()?;
        file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment).ok()?;
        parse_number(&environment)
    })
}

fn parse_number(environment: &[u8]) -> Option<Identifier> {
    let value = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(VARIABLE))?;
    let is_number = (1..=DIGITS).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| Identifier::try_from(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_number_has_digits_only() {
        let name = Identifier::try_from("42").unwrap();
        assert_eq!(parse_number(b"PATH=/bin\0SLURM_JOB_ID=42\0X=1\0"), Some(name));
        for other in [
            &b"PATH=/bin\0"[..],
            b"SLURM_JOB_ID=\0",
            b"SLURM_JOB_ID=4x\0",
            b"SLURM_JOB_ID=12345678901\0",
            b"NOT_SLURM_JOB_ID=7\0",
        ] {
            assert_eq!(parse_number(other), None);
        }
    }

    #[test]
    fn the_number_is_that_of_a_process_in_any_cgroup_of_the_job() {
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("s5K1KKYAYG5D00"));
        let step = job.join("step_0/user/task_0");
        fs::create_dir_all(&step).unwrap();
        for cgroup in [&job, &job.join("step_0"), &job.join("step_0/user"), &step] {
            fs::write(cgroup.join("cgroup.procs"), "").unwrap();
        }
        let cgroups = JobCgroups { v2: Some(job), ..JobCgroups::default() };
        assert_eq!(job_number(&proc, &cgroups), None);
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(proc.join("7/environ"), "SLURM_JOB_ID=42\0").unwrap();
        fs::write(step.join("cgroup.procs"), "7\n").unwrap();
        assert_eq!(job_number(&proc, &cgroups), Identifier::try_from("42").ok());
    }

    #[test]
    fn the_owner_is_the_only_user_beside_root() {
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
        let step = job.join("step_0/task_0");
        fs::create_dir_all(&step).unwrap();
        let process = |pid: &str, uid: u32| {
            let path = proc.join(pid);
            fs::create_dir_all(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(uid), None).is_ok()
        };
        assert_eq!(owner_of_processes(&proc, &job), None);
        if !(process("10", 0) && process("11", 1234) && process("12", 1235)) {
            return; // Only root makes processes of other users.
        }
        fs::write(job.join("cgroup.procs"), "10\n").unwrap();
        assert_eq!(owner_of_processes(&proc, &job), None);
        fs::write(step.join("cgroup.procs"), "11\n99999\n").unwrap();
        assert_eq!(owner_of_processes(&proc, &job), Some(1234));
        fs::write(job.join("cgroup.procs"), "10\n12\n").unwrap();
        assert_eq!(owner_of_processes(&proc, &job), None);
    }
}
