//! Texts of the kernel that are read when sources are opened, or anew at each reading.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Largest text, in bytes: `/proc/stat` of a machine with 4096 CPUs has 1 MiB.
pub(super) const TEXT_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(super) struct FileError {
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

impl FileError {
    pub(super) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { path: path.to_owned(), error }
    }
}

/// Opens a kernel file for reading. Does not wait, even if a FIFO is in its place.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Reads a file up to [`TEXT_BYTES`]. Most kernel files state the size 0.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > TEXT_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Reads a file as text. Users name files, processes and cgroups, so any byte can occur: bytes that are no
/// UTF-8 are replaced.
pub(super) fn text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

/// Complete lines of a text, without their ends. The kernel ends every line: a last one without an end was
/// cut off.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

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
