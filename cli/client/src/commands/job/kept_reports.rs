//! Reports of jobs that no collector took, kept as files until one does.
//!
//! Each file is a request, and its name `TIME-PROCESS.REFUSALS`: the time orders them. A collector that runs
//! again may not have the jobs yet, whose agents connect a minute later, so that a refusal is repeated some
//! times. No time decides: a clock may be wrong.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use polymeter_service::clock;
use polymeter_service::log::Severity;

use super::problem::report;
use crate::connection::collector::Collector;
use crate::failure::Failure;

/// Reports that are kept: those of a night on a large cluster. Further ones are lost.
const REPORTS_MAX: usize = 20_000;

/// Refusals of a report, one for each delivery, after which it is lost.
const REFUSALS_MAX: u32 = 30;

const REPORT_BYTES: u64 = 64 * 1024;

/// Directory of reports, which belongs to this user alone.
#[derive(Debug)]
pub(super) struct KeptReports {
    directory: PathBuf,
}

struct Kept {
    path: PathBuf,
    /// Name without the number of refusals.
    name: String,
    refusals: u32,
}

fn cannot_keep(directory: &Path, cause: &dyn std::fmt::Display) -> Failure {
    let shown = directory.display();
    Failure::Failed(format!(
        "cannot keep reports in {shown}: {cause}; name a directory of this user with --keep"
    ))
}

impl KeptReports {
    /// Creates the directory if it is missing.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_keep(directory, &error));
            }
            Ok(()) | Err(_) => {}
        }
        let metadata = fs::symlink_metadata(directory).map_err(|error| cannot_keep(directory, &error))?;
        if !is_own(&metadata) {
            return Err(cannot_keep(directory, &"it is no directory that only this user can change"));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    pub(super) fn keep(&self, line: &str) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::Failed(format!("cannot keep a report in {}: {error}", self.directory.display()))
        };
        let kept = self.list().map_err(failed)?.len();
        if kept >= REPORTS_MAX {
            return Err(failed(io::Error::other(format!("there are {kept} already"))));
        }
        let name = format!("{:020}-{}.0", clock::realtime_ns(), std::process::id());
        self.write(&name, line).map_err(failed)
    }

    /// No half of the file is ever read.
    fn write(&self, name: &str, line: &str) -> io::Result<()> {
        let unfinished = self.directory.join(format!(".{name}"));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, self.directory.join(name))
    }

    /// Sends the reports to a collector, the oldest first, until it cannot be reached. Returns the number of
    /// those that are left.
    pub(super) fn deliver(&self, collector: &Collector) -> Result<usize, Failure> {
        let failed = |error: io::Error| {
            Failure::Failed(format!("cannot deliver the reports in {}: {error}", self.directory.display()))
        };
        let mut kept = self.list().map_err(failed)?;
        kept.sort_by(|one, other| one.name.cmp(&other.name));
        for one in kept {
            let mut line = String::new();
            let read =
                File::open(&one.path).and_then(|file| file.take(REPORT_BYTES).read_to_string(&mut line));
            let sent = match read {
                // Another process delivered it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(Failure::Failed(error.to_string())),
                Ok(_) => collector.send(&line),
            };
            match sent {
                Ok(()) => fs::remove_file(&one.path).map_err(failed)?,
                Err(Failure::Unreachable(_) | Failure::NotRunning(_)) => break,
                Err(refused) if one.refusals >= REFUSALS_MAX => {
                    report(Severity::Warning, &format!("a report of a job is lost: {refused}"));
                    fs::remove_file(&one.path).map_err(failed)?;
                }
                Err(_) => {
                    let next = format!("{}.{}", one.name, one.refusals + 1);
                    fs::rename(&one.path, self.directory.join(next)).map_err(failed)?;
                }
            }
        }
        Ok(self.list().map_err(failed)?.len())
    }

    /// Leaves other files alone, such as one that locks the directory.
    fn list(&self) -> io::Result<Vec<Kept>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((name, refusals)) = name.rsplit_once('.') else { continue };
            let Ok(refusals) = refusals.parse() else { continue };
            if name.starts_with(|first: char| first.is_ascii_digit()) {
                all.push(Kept { name: name.to_owned(), refusals, path });
            }
        }
        Ok(all)
    }
}

/// True for a directory that only this user can change.
fn is_own(metadata: &Metadata) -> bool {
    let is_closed = metadata.mode() & 0o022 == 0;
    metadata.is_dir() && is_closed && metadata.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_directory_of_this_user_is_used() {
        let place = std::env::temp_dir().join(format!("polymeter-kept-{}", std::process::id()));
        let kept = KeptReports::open(&place).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
        kept.keep("{\"verb\":\"state\"}").unwrap();
        fs::write(place.join("lock"), "").unwrap();
        let names: Vec<String> = kept.list().unwrap().into_iter().map(|kept| kept.name).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(KeptReports::open(&place).unwrap_err().to_string().contains("--keep"));
        fs::remove_dir_all(&place).unwrap();
        std::os::unix::fs::symlink("/tmp", &place).unwrap();
        assert!(KeptReports::open(&place).is_err(), "a link");
        fs::remove_file(&place).unwrap();
    }
}
