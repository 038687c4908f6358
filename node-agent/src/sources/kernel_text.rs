//! Texts of the kernel that are read when sources are opened, or anew at each reading.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The largest text, in bytes: `/proc/stat` of a machine with 4096 CPUs has 1 MiB.
pub(super) const TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The error for a file that cannot be opened or read, with its path.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(super) struct FileError {
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

impl FileError {
    /// Returns the conversion of an error about `path`.
    pub(super) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { path: path.to_owned(), error }
    }
}

/// Opens a file of the kernel for reading. It does not wait, whatever is in the file's place, as a FIFO
/// would.
///
/// # Errors
/// Returns the error of open(2).
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Returns the bytes of a file, which has the size 0 as most of the kernel's.
///
/// # Errors
/// Returns an error if the file cannot be read, or if it is larger than [`TEXT_BYTES`].
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > TEXT_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Returns the text of a file. Names in it are those that users gave to files, processes and cgroups, and may
/// be of any bytes: those that are no UTF-8 are replaced.
///
/// # Errors
/// Returns the errors of [`bytes`].
pub(super) fn text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

/// Returns the whole lines of a text, without their ends. The kernel ends every line, so that the last one
/// was cut off if it has no end.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

/// Returns the error of a text that is larger than [`TEXT_BYTES`].
pub(super) fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the text is larger than 4 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mountinfo");
        std::fs::write(&path, b"a \xff b\n").unwrap();
        assert_eq!(text(&path).unwrap(), "a \u{fffd} b\n");
        File::create(&path).unwrap().set_len(TEXT_BYTES as u64).unwrap();
        assert_eq!(bytes(&path).unwrap().len(), TEXT_BYTES);
        File::create(&path).unwrap().set_len(TEXT_BYTES as u64 + 1).unwrap();
        assert_eq!(text(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_line_that_is_cut_off_is_left_out() {
        assert_eq!(lines("4242\n\n42").collect::<Vec<_>>(), ["4242", ""]);
        assert_eq!(lines("42").count(), 0);
    }

    #[test]
    fn a_fifo_without_a_writer_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(bytes(&path).unwrap(), b"");
    }
}
