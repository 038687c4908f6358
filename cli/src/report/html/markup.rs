//! Output of a page: a file that appears when it is complete, or the standard output.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::new_file::{NewFile, cannot_write};
use crate::output::terminal;

#[derive(Debug)]
pub(crate) struct Output {
    /// None for the standard output.
    file: Option<(PathBuf, NewFile, File)>,
}

impl Output {
    /// Fails if the file exists and is not to be replaced.
    pub(crate) fn open(path: &Path, is_replaced: bool) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self { file: None });
        }
        let remedy = "name another, or replace it with --force";
        let (incomplete, file) = NewFile::create(path.to_owned(), is_replaced, remedy)?;
        Ok(Self { file: Some((path.to_owned(), incomplete, file)) })
    }

    /// Writes the page, and gives the file its name.
    pub(crate) fn write(self, page: &str) -> Result<(), Failure> {
        let Some((path, incomplete, mut file)) = self.file else {
            return terminal::print_raw(page.as_bytes());
        };
        file.write_all(page.as_bytes()).map_err(|error| cannot_write(&path, &error))?;
        incomplete.keep()
    }
}
