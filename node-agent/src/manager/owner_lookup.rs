//! Whose job it is, where neither registration nor the cgroup's path told a number: by the owner's name, else by the
//! processes of the job.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_proto::ledger::{Event, JobOwner};
use polymeter_proto::series::Identifier;
use tokio::time::Instant;

use super::{Manager, TargetKey};
use crate::lanes::{Command, EventRecord};
use crate::sources::Target;
use crate::user_database;

/// How long a name service may take. One that is slower knows nobody, this time.
const NAME_SERVICE: Duration = Duration::from_secs(2);

/// How soon a name service is asked again for a name that it did not know.
const NAME_AGAIN: Duration = Duration::from_secs(60);

/// Directories of one job that are looked through: its own, its steps' and its tasks'.
const DIRECTORIES: usize = 256;

impl Manager {
    /// Finds out whose the jobs are of which that is not known yet: they may have had no process before.
    pub(super) async fn learn_owners(&mut self) {
        let unknown =
            self.followed.iter().filter(|(key, followed)| key.is_some() && followed.owner_uid.is_none());
        let keys: Vec<TargetKey> = unknown.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(followed) = self.followed.get(&key) else { continue };
            let name = followed.job.as_ref().and_then(|job| job.descriptor.owner.clone());
            let owner = match (name, &followed.target) {
                // A name that was told is believed, and nobody else's process in the job makes it another's.
                (Some(_), _) if followed.owner_asked_at.is_some_and(|at| at.elapsed() < NAME_AGAIN) => {
                    continue;
                }
                (Some(name), _) => uid_of(name.as_str().to_owned()).await,
                (None, Target::Cgroups(cgroups)) => cgroups
                    .directories()
                    .into_iter()
                    .find_map(|path| owner_of_processes(&self.mounts.proc, path)),
                (None, Target::Processes(root)) => owner_of(&self.mounts.proc, *root),
                (None, Target::Node(_)) => None,
            };
            if let Some(followed) = self.followed.get_mut(&key) {
                followed.owner_asked_at = Some(Instant::now());
            }
            if let (Some(uid), Some(job_id)) = (owner, &key) {
                self.set_owner(&key, uid).await;
                // What she requested had to wait for that.
                self.grant_sampling(job_id).await;
            }
        }
    }

    /// Sets the owner of a job of which none was known, and puts it into the data: the job was announced without.
    pub(super) async fn set_owner(&mut self, key: &TargetKey, uid: u32) {
        let Some(followed) = self.followed.get_mut(key).filter(|followed| followed.owner_uid.is_none())
        else {
            return;
        };
        followed.owner_uid = Some(uid);
        let Some(job) = followed.job.clone() else { return };
        let announced = job.descriptor.owner.is_some();
        let name = if announced { None } else { name_of(uid).await };
        let name = name.and_then(|name| Identifier::try_from(name).ok());
        let event = Event::JobOwner(JobOwner { job: job.handle, uid: Some(uid), name });
        self.command(Command::RecordEvent(Box::new(EventRecord { job: Some(job), event }))).await;
    }
}

/// The number of a user's name. The name service is asked on a thread of its own, since it may not answer.
pub(super) async fn uid_of(name: String) -> Option<u32> {
    let asked = tokio::task::spawn_blocking(move || user_database::uid_of(&name));
    tokio::time::timeout(NAME_SERVICE, asked).await.ok()?.ok()?
}

/// The name of a user, likewise.
async fn name_of(uid: u32) -> Option<String> {
    let asked = tokio::task::spawn_blocking(move || user_database::name_of(uid));
    tokio::time::timeout(NAME_SERVICE, asked).await.ok()?.ok()?
}

/// The one user beside root to whom all processes in a cgroup and below it belong.
fn owner_of_processes(proc: &Path, cgroup: &Path) -> Option<u32> {
    let mut owners = BTreeSet::new();
    let mut directories = vec![cgroup.to_owned()];
    let mut looked_at = 0;
    while let Some(directory) = directories.pop() {
        looked_at += 1;
        if looked_at > DIRECTORIES {
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

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Whose process it is: its directory's owner, proc(5).
fn owner_of(proc: &Path, process: u32) -> Option<u32> {
    fs::metadata(proc.join(process.to_string())).ok().map(|metadata| metadata.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_beside_root_and_no_guess_among_several() {
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
