//! File with the triggers that were added to running jobs, beside the control socket: after a restart of the
//! agent they are in force again. It belongs to one boot of the node, as jobs do.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::{Rule, RuleFault, RuleFields};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// All rules of all jobs are shorter.
const BYTES_MAX: u64 = 64 << 20;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Trigger of a job, with the rights of its requester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedTrigger {
    pub(crate) job: Identifier,
    /// Owner of the job: another user's job may have the same id later.
    pub(crate) owner: Option<u32>,
    pub(crate) uid: u32,
    pub(crate) administrator: bool,
    pub(crate) rule: RuleFields,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    boot: String,
    triggers: Vec<SavedTrigger>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TriggerFileError {
    #[error("cannot read the triggers of jobs in {}; they must be added again", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot use the triggers of jobs in {}: others than the agent's user can write it; they must be added again", .0.display())]
    Foreign(PathBuf),
    #[error("cannot use the triggers of jobs in {}; they must be added again", .0.display())]
    Contents(PathBuf, #[source] serde_json::Error),
    #[error("cannot use the triggers of jobs in {}: version {version} is unknown; they must be added again", .0.display(), version = .1)]
    Version(PathBuf, u32),
    #[error("cannot use the trigger `{name}` of job {job} in {}: {fault}; all must be added again", path.display())]
    Rule { path: PathBuf, name: String, job: Identifier, fault: RuleFault },
    #[error("cannot write the triggers of jobs to {}; they are lost with the next restart", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

#[derive(Debug)]
pub(crate) struct TriggerFile {
    path: PathBuf,
    boot: String,
}

impl TriggerFile {
    pub(crate) fn beside(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".triggers");
        // Without it the file serves until it is removed.
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        Self { path: path.into(), boot }
    }

    /// Reads the triggers of this boot, each with its checked rule. None of them counts if one is invalid.
    pub(crate) fn read(&self) -> Result<Vec<(SavedTrigger, Rule)>, TriggerFileError> {
        let Some(text) = self.text()? else { return Ok(Vec::new()) };
        let contents: Contents = serde_json::from_slice(&text)
            .map_err(|error| TriggerFileError::Contents(self.path.clone(), error))?;
        if contents.version != VERSION {
            return Err(TriggerFileError::Version(self.path.clone(), contents.version));
        }
        if contents.boot != self.boot {
            return Ok(Vec::new());
        }
        let mut triggers = Vec::with_capacity(contents.triggers.len());
        for saved in contents.triggers {
            let rule = Rule::parse(&saved.rule).map_err(|faults| self.refuse(&saved, faults))?;
            triggers.push((saved, rule));
        }
        Ok(triggers)
    }

    fn refuse(&self, saved: &SavedTrigger, faults: Vec<RuleFault>) -> TriggerFileError {
        let none = RuleFault { field: "rule", message: "it is invalid".to_owned() };
        let fault = faults.into_iter().next().unwrap_or(none);
        let name = saved.rule.name.chars().filter(|c| !c.is_control()).take(64).collect();
        TriggerFileError::Rule { path: self.path.clone(), name, job: saved.job.clone(), fault }
    }

    fn text(&self) -> Result<Option<Vec<u8>>, TriggerFileError> {
        let failed = |error| TriggerFileError::Read(self.path.clone(), error);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&self.path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let metadata = file.metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        let is_own = metadata.uid() == own && metadata.mode() & 0o022 == 0 && metadata.is_file();
        if !is_own {
            return Err(TriggerFileError::Foreign(self.path.clone()));
        }
        if metadata.len() > BYTES_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let mut text = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        Ok(Some(text))
    }

    /// Replaces the file as a whole, so that a kill of the agent leaves the former or the new one.
    pub(crate) fn write(&self, triggers: Vec<SavedTrigger>) -> Result<(), TriggerFileError> {
        let contents = Contents { version: VERSION, boot: self.boot.clone(), triggers };
        let written =
            serde_json::to_vec(&contents).map_err(io::Error::from).and_then(|text| self.replace(&text));
        written.map_err(|error| TriggerFileError::Write(self.path.clone(), error))
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("triggers.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        file.sync_data()?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn saved(job: &str, when: &str) -> SavedTrigger {
        let rule = RuleFields { name: "big".to_owned(), when: when.to_owned(), ..RuleFields::default() };
        let job = job.try_into().unwrap();
        SavedTrigger { job, owner: Some(1000), uid: 1000, administrator: false, rule }
    }

    #[test]
    fn what_was_written_is_read_until_the_next_boot() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = TriggerFile::beside(&directory.path().join("agent.sock"));
        assert_eq!(file.read().unwrap(), []);
        let all = vec![saved("1", "oom"), saved("2", "memory.current > 1GiB for 5s")];
        file.write(vec![saved("0", "oom")]).unwrap();
        file.write(all.clone()).unwrap();
        let read: Vec<SavedTrigger> = file.read().unwrap().into_iter().map(|(saved, _)| saved).collect();
        assert_eq!(read, all);
        let mode = fs::metadata(directory.path().join("agent.sock.triggers")).unwrap().mode();
        assert_eq!((mode & 0o777, fs::read_dir(directory.path()).unwrap().count()), (0o600, 1));
        file.boot = "another".to_owned();
        assert_eq!(file.read().unwrap(), []);
    }

    #[test]
    fn damaged_and_hostile_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock.triggers");
        let file = TriggerFile::beside(&directory.path().join("agent.sock"));
        file.write(vec![saved("1", "oom"), saved("2", "exit_status")]).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let text = file.read().unwrap_err().to_string();
            assert!(text.contains("agent.sock.triggers") && text.contains("added again"), "{text}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x80;
            fs::write(&path, damaged).unwrap();
            assert!(file.read().is_err(), "byte {place}");
        }
        let nested = [b"[".repeat(1 << 20), b"\xff\0".to_vec(), b"null".to_vec()];
        for hostile in nested {
            fs::write(&path, hostile).unwrap();
            assert!(matches!(file.read(), Err(TriggerFileError::Contents(..))));
        }
        file.write(vec![saved("1", "oom\u{1b}")]).unwrap();
        assert!(matches!(file.read(), Err(TriggerFileError::Rule { .. })));
        let other = String::from_utf8(whole.clone()).unwrap().replace("\"version\":1", "\"version\":2");
        fs::write(&path, other).unwrap();
        assert!(matches!(file.read(), Err(TriggerFileError::Version(_, 2))));
        fs::write(&path, &whole).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o622)).unwrap();
        assert!(matches!(file.read(), Err(TriggerFileError::Foreign(_))));
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(file.read(), Err(TriggerFileError::Read(..))));
        file.write(vec![saved("1", "oom")]).unwrap();
        assert_eq!(file.read().unwrap().len(), 1, "a link is replaced, and not followed");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(file.read(), Err(TriggerFileError::Foreign(_))));
        assert!(matches!(file.write(Vec::new()), Err(TriggerFileError::Write(..))));
    }
}
