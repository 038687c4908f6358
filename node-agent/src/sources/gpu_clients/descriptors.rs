//! Descriptors of GPUs that the processes of a job have open: links in `/proc/PID/fd` to devices below
//! `/dev/dri`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Bound of the entries of `/proc/PID/fd` that one search reads over all processes, at about a microsecond
/// each. The next one continues with the other processes.
const ENTRIES_MAX: usize = 4096;

const DESCRIPTORS_MAX: usize = 1024;

const SEARCH_EVERY_NS: u64 = 1_000_000_000;

const DEVICES: &str = "/dev/dri/";

#[derive(Debug, Default)]
pub(super) struct Descriptors {
    known: BTreeMap<u32, Vec<u32>>,
    /// Process with which the next search begins.
    turn: u32,
    searched_ns: Option<u64>,
    /// Error of the last search, if it was refused for all processes.
    refusal: Option<Errno>,
}

impl Descriptors {
    /// Searches the processes `pids` for descriptors, unless that was done just before. Fails if no process
    /// may be searched.
    pub(super) fn search(&mut self, proc: &Path, pids: &BTreeSet<u32>, now_ns: u64) -> Result<(), Errno> {
        self.known.retain(|pid, _| pids.contains(pid));
        if self.searched_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) < SEARCH_EVERY_NS) {
            return self.refusal.map_or(Ok(()), Err);
        }
        self.searched_ns = Some(now_ns);
        let mut room = ENTRIES_MAX;
        let (mut refusal, mut is_any) = (None, false);
        let in_turn: Vec<u32> = pids.range(self.turn..).chain(pids.range(..self.turn)).copied().collect();
        for pid in in_turn {
            if room == 0 {
                self.turn = pid;
                break;
            }
            let is_first = room == ENTRIES_MAX;
            match open_devices(&proc.join(format!("{pid}/fd")), &mut room) {
                // The rest of its descriptors did not fit: it begins the next search.
                Ok(_) if room == 0 && !is_first => {
                    self.turn = pid;
                    break;
                }
                Ok(found) => {
                    is_any = true;
                    self.known.remove(&pid);
                    if !found.is_empty() {
                        self.known.insert(pid, found);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    refusal = Some(Errno::ACCESS)
                }
                // It has ended.
                Err(_) => drop(self.known.remove(&pid)),
            }
        }
        self.refusal = refusal.filter(|_| !is_any);
        self.refusal.map_or(Ok(()), Err)
    }

    pub(super) fn texts(&self, proc: &Path) -> Vec<PathBuf> {
        let all = self.known.iter().flat_map(|(pid, found)| found.iter().map(move |number| (pid, number)));
        all.map(|(pid, number)| proc.join(format!("{pid}/fdinfo/{number}"))).take(DESCRIPTORS_MAX).collect()
    }
}

/// Finds the descriptors of devices in a directory `fd`, and takes the entries that it reads from `room`.
/// Reading the directory and its links needs different rights.
fn open_devices(directory: &Path, room: &mut usize) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let Some(left) = room.checked_sub(1) else { break };
        *room = left;
        let Ok(entry) = entry else { continue };
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_link(entry.path()) {
            Ok(device) if device.starts_with(DEVICES) => found.push(number),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // Another file, or one that was closed meanwhile.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    fn open(proc: &Path, pid: u32, number: usize, target: &str) {
        let directory = proc.join(format!("{pid}/fd"));
        fs::create_dir_all(&directory).unwrap();
        symlink(target, directory.join(number.to_string())).unwrap();
    }

    fn texts(descriptors: &Descriptors) -> Vec<String> {
        descriptors.texts(Path::new("")).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn devices_are_found_among_other_descriptors() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        open(proc, 7, 0, "/dev/null");
        open(proc, 7, 3, "/dev/dri/renderD128");
        open(proc, 7, 12, "/dev/dri/card0");
        open(proc, 7, 13, "/dev/drivers");
        open(proc, 8, 1, "socket:[17]");
        let mut descriptors = Descriptors::default();
        let both = [7, 8, 9].into();
        descriptors.search(proc, &both, 1).unwrap();
        let mut found = texts(&descriptors);
        found.sort();
        assert_eq!(found, ["7/fdinfo/12", "7/fdinfo/3"]);
        open(proc, 8, 5, "/dev/dri/renderD129");
        descriptors.search(proc, &both, 2).unwrap();
        assert_eq!(texts(&descriptors).len(), 2, "the next search is later");
        descriptors.search(proc, &both, 1 + SEARCH_EVERY_NS).unwrap();
        assert_eq!(texts(&descriptors).len(), 3);
        descriptors.search(proc, &[8].into(), 2 + SEARCH_EVERY_NS).unwrap();
        assert_eq!(texts(&descriptors), ["8/fdinfo/5"], "7 has ended");
        fs::remove_dir_all(proc.join("8")).unwrap();
        descriptors.search(proc, &[8].into(), 3 * SEARCH_EVERY_NS).unwrap();
        assert_eq!(texts(&descriptors), [""; 0]);
    }

    fn search_without(lacking: CapabilitySet, pid: u32) -> Result<(), Errno> {
        std::thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= lacking;
            set_capabilities(None, sets).unwrap();
            Descriptors::default().search(Path::new("/proc"), &[pid].into(), 1)
        })
        .join()
        .unwrap()
    }

    /// The directory belongs to the user of the process; those that may trace the process may follow its
    /// links.
    #[test]
    fn processes_of_other_users_need_two_rights() {
        let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE;
        let has_all = capabilities(None).is_ok_and(|sets| sets.effective.contains(all));
        if !rustix::process::geteuid().is_root() || !has_all {
            return;
        }
        let mut other = Command::new("sleep").arg("600").uid(65_534).gid(65_534).spawn().unwrap();
        let pid = other.id();
        assert_eq!(search_without(CapabilitySet::empty(), pid), Ok(()));
        assert_eq!(search_without(CapabilitySet::DAC_OVERRIDE, pid), Ok(()));
        assert_eq!(search_without(CapabilitySet::SYS_PTRACE, pid), Err(Errno::ACCESS));
        let directories = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        assert_eq!(search_without(directories, pid), Err(Errno::ACCESS));
        assert_eq!(search_without(all, pid), Err(Errno::ACCESS));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(search_without(all, pid), Ok(()), "a process that has ended refuses nothing");
    }

    #[test]
    fn processes_with_many_descriptors_take_turns() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        let pids: BTreeSet<u32> = (1..=4).collect();
        for pid in &pids {
            (0..ENTRIES_MAX / 3).for_each(|number| open(proc, *pid, number, "/dev/null"));
            open(proc, *pid, ENTRIES_MAX, "/dev/dri/renderD128");
        }
        let mut descriptors = Descriptors::default();
        let found = [1, 2, 3].map(|turn| {
            descriptors.search(proc, &pids, turn * SEARCH_EVERY_NS).unwrap();
            (descriptors.known.len(), descriptors.turn)
        });
        // Two fit into a search; the third begins the next one.
        assert_eq!(found, [(2, 3), (4, 1), (4, 3)]);
    }
}
