//! Output of an export: a file that appears when it is complete, or the standard output.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use polymeter_samples_file::Format;

use crate::failure::Failure;
use crate::output::file_name::file_name_of;
use crate::output::new_file::NewFile;
use crate::output::printable::printable;

#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    /// None for the standard output.
    path: Option<PathBuf>,
    incomplete: Option<NewFile>,
    file: Option<File>,
}

impl Output {
    /// Opens the output `given`, or the default one for a job. Fails if the file exists and is not to be
    /// replaced, if no format has its extension, or if Parquet would be written to a terminal.
    pub(super) fn open(
        given: Option<&Path>,
        format: Option<Format>,
        job_id: &str,
        is_replaced: bool,
    ) -> Result<Self, Failure> {
        let format = format.map_or_else(|| format_of(given), Ok)?;
        if given.is_some_and(|path| path == Path::new("-")) {
            if format == Format::Parquet && io::stdout().is_terminal() {
                return Err(Failure::Usage(
                    "cannot write Parquet to a terminal: name a file, or another --format".to_owned(),
                ));
            }
            return Ok(Self { format, path: None, incomplete: None, file: None });
        }
        let path = given.map_or_else(
            || PathBuf::from(format!("job-{}.{}", file_name_of(job_id), format.extension())),
            Path::to_owned,
        );
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

    pub(super) fn name(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        path.map_or_else(|| "to the standard output".to_owned(), |path| printable(&path).into_owned())
    }

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

/// According to the extension; Parquet without one.
fn format_of(path: Option<&Path>) -> Result<Format, Failure> {
    let Some((path, extension)) = path.and_then(|path| Some((path, path.extension()?))) else {
        return Ok(Format::Parquet);
    };
    let format = extension.to_str().and_then(|extension| Format::with_extension(&extension.to_lowercase()));
    format.ok_or_else(|| {
        let (path, extension) = (path.display().to_string(), extension.to_string_lossy());
        Failure::Usage(format!(
            "cannot write {}: no format has the extension `{}`; end the name in .parquet, .csv or .jsonl, or choose \
             with --format",
            printable(&path),
            printable(&extension)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_determines_the_format() {
        let format = |path: &str| format_of(Some(path.as_ref()));
        for (path, expected) in [
            ("job.csv", Format::Csv),
            ("a.b/JOB.JSONL", Format::Jsonl),
            ("job.parquet", Format::Parquet),
            ("job", Format::Parquet),
            ("-", Format::Parquet),
        ] {
            assert_eq!(format(path).ok(), Some(expected), "{path}");
        }
        assert_eq!(format_of(None).ok(), Some(Format::Parquet));
        for path in ["job.xlsx", "job.csv.gz", "job.42", "job.json", "job.\u{202e}csv"] {
            let error = format(path).unwrap_err().to_string();
            assert!(error.contains("--format") && !error.contains('\u{202e}'), "{error}");
        }
    }
}
