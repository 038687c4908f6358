//! Destinations of `polymeter run`: for the report and for the samples.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use polymeter_proto::run::shell_word;
use polymeter_proto::text::escape;
use polymeter_service::own_file;
use polymeter_store::StoreUrl;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::output::layout::width;
use crate::output::terminal;
use crate::report::render::LABEL;

/// Stdout belongs to the command.
pub(super) enum ReportDestination {
    Stderr,
    File(PathBuf, File),
}

impl ReportDestination {
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        let file = own_file::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self::File(path.to_owned(), file))
    }

    pub(super) fn width_limit(&self) -> Option<usize> {
        match self {
            Self::Stderr => terminal::width_limit(&std::io::stderr()),
            Self::File(..) => None,
        }
    }

    pub(super) fn write(self, report: &str, is_json: bool) -> Result<(), Failure> {
        match self {
            Self::Stderr if is_json => terminal::print_error_json(report),
            Self::Stderr => terminal::print_error(&format!("\n{report}")),
            Self::File(path, mut file) => {
                file.write_all(report.as_bytes()).map_err(|error| cannot_write(&path, &error))?;
            }
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::because(&format!("cannot write the report to {}", path.display()), error)
}

/// Other users cannot enter it, whatever the umask is.
pub(super) fn private_directory(parent: &Path) -> io::Result<TempDir> {
    let own = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("polymeter-").permissions(own).tempdir_in(parent)
}

pub(super) struct SampleFile {
    pub(super) path: PathBuf,
    /// Removed with its contents at the end.
    temporary: Option<TempDir>,
}

impl SampleFile {
    pub(super) fn new(path: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = path {
            own_file::check(path).map_err(|error| {
                Failure::because(&format!("cannot keep the samples in {}", path.display()), &error)
            })?;
            return Ok(Self { path: path.to_owned(), temporary: None });
        }
        let directory = private_directory(&std::env::temp_dir())
            .map_err(|error| Failure::because("cannot create a temporary directory", &error))?;
        Ok(Self { path: directory.path().join("run.db"), temporary: Some(directory) })
    }

    /// Says where the samples are, and has a command that shows them. In a terminal its words fit a line
    /// where they can; they are not cut.
    pub(super) fn note(&self, store: &StoreUrl, job_id: &str, limit: Option<usize>) -> String {
        if self.temporary.is_some() {
            return format!("  {:<LABEL$}not kept; keep them with -o FILE\n", "samples");
        }
        let path = escape(self.path.as_os_str().as_encoded_bytes());
        let store = shell_word(&escape(store.to_string().as_bytes()));
        let mut command = format!("polymeter report {job_id} --store {store}");
        let before = INDENT + LABEL;
        if limit.is_some_and(|limit| before + width(&command) > limit) {
            command = format!("polymeter report {job_id} \\\n{:before$}--store {store}", "");
        }
        format!("  {:<LABEL$}{path}\n  {:<LABEL$}{command}\n", "samples in", "show them with")
    }
}

/// Blanks before the labels.
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn note(path: &str, limit: Option<usize>) -> String {
        let file = SampleFile { path: PathBuf::from(path), temporary: None };
        file.note(&format!("sqlite:{path}").parse().unwrap(), "run-1234567-1795747710", limit)
    }

    #[test]
    fn the_command_that_shows_the_samples_is_whole() {
        assert_eq!(
            note("a.db", Some(80)),
            "  samples in        a.db\n  \
             show them with    polymeter report run-1234567-1795747710 --store sqlite:a.db\n"
        );
        let long = "/scratch/zoe/experiments/2026-11/run.db";
        assert_eq!(
            note(long, Some(80)),
            format!(
                "  samples in        {long}\n  \
                 show them with    polymeter report run-1234567-1795747710 \\\n{:20}--store sqlite:{long}\n",
                ""
            )
        );
        assert!(note(long, None).ends_with(&format!("1795747710 --store sqlite:{long}\n")));
    }
}
