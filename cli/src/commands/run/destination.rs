//! The destinations of `polymeter run`: for the report and for the samples.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use polymeter_service::own_file;

use crate::failure::Failure;
use crate::output::terminal;
use crate::report::render::LABEL;

/// The destination of the report. Stdout belongs to the command.
pub(super) enum ReportDestination {
    Stderr,
    File(PathBuf, File),
}

impl ReportDestination {
    /// Opens the file at `path`, if there is one.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        let file = own_file::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self::File(path.to_owned(), file))
    }

    /// Returns the width to which the report is fitted.
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

pub(super) struct SampleFile {
    pub(super) path: PathBuf,
    /// The directory of a temporary file; removed with its contents at the end.
    temporary: Option<tempfile::TempDir>,
}

impl SampleFile {
    /// Uses the file at `path`, or a temporary one.
    pub(super) fn new(path: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = path {
            own_file::check(path).map_err(|error| {
                Failure::because(&format!("cannot keep the samples in {}", path.display()), &error)
            })?;
            return Ok(Self { path: path.to_owned(), temporary: None });
        }
        let directory = tempfile::Builder::new()
            .prefix("polymeter-")
            .tempdir()
            .map_err(|error| Failure::because("cannot create a temporary directory", &error))?;
        Ok(Self { path: directory.path().join("run.db"), temporary: Some(directory) })
    }

    /// Returns the line of the report on the samples of a job.
    pub(super) fn note(&self, job_id: &str) -> String {
        if self.temporary.is_some() {
            return format!("  {:<LABEL$}not kept; keep them with -o FILE\n", "samples");
        }
        let path = self.path.display();
        format!(
            "  {:<LABEL$}{path}; show them with `polymeter report --store sqlite:{path} {job_id}`\n",
            "samples in"
        )
    }
}
