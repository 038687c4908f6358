//! The output of an export: a file that appears when it is complete, or the standard output.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use polymeter_samples_file::Format;

use crate::failure::Failure;
use crate::output::file_name::file_name_of;
use crate::output::new_file::NewFile;
use crate::output::printable::printable;

/// The output of an export.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    /// The path; none for the standard output.
    path: Option<PathBuf>,
    incomplete: Option<NewFile>,
    file: Option<File>,
}

impl Output {
    /// Opens the output `given`, or the default one for a job.
    ///
    /// # Errors
    /// Returns an error if the file exists and is not to be replaced, if it cannot be created, or if Parquet
    /// would be written to a terminal.
    pub(super) fn open(
        given: Option<&Path>,
        format: Option<Format>,
        job_id: &str,
        is_replaced: bool,
    ) -> Result<Self, Failure> {
        let extension = given.and_then(Path::extension).and_then(|extension| extension.to_str());
        let format = format.or_else(|| Format::with_extension(extension?)).unwrap_or(Format::Parquet);
        if given.is_some_and(|path| path == Path::new("-")) {
            if format == Format::Parquet && io::stdout().is_terminal() {
                return Err(Failure::Usage(
                    "cannot write Parquet to a terminal: name a file, or another --format".to_owned(),
                ));
            }
            return Ok(Self { format, path: None, incomplete: None, file: None });
        }
        let default = || PathBuf::from(format!("job-{}.{}", file_name_of(job_id), format.extension()));
        let path = given.map_or_else(default, Path::to_owned);
        let remedy = "name another with --output, or replace it with --force";
        let (incomplete, file) = NewFile::create(path.clone(), is_replaced, remedy)?;
        Ok(Self { format, path: Some(path), incomplete: Some(incomplete), file: Some(file) })
    }

    pub(super) const fn format(&self) -> Format {
        self.format
    }

    pub(super) const fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Returns the name for messages.
    pub(super) fn name(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        path.map_or_else(|| "to the standard output".to_owned(), |path| printable(&path).into_owned())
    }

    /// Returns the open file, once.
    pub(super) fn take_file(&mut self) -> Result<Box<dyn Write + Send>, Failure> {
        Ok(match self.file.take() {
            Some(file) => Box::new(file),
            None => Box::new(io::stdout()),
        })
    }

    /// Gives the complete file its name.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        self.incomplete.take().map_or(Ok(()), NewFile::keep)
    }
}
