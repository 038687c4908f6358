//! A kernel text file that stays open: one `pread`, and its layout.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{Form, Row};
use rustix::io::pread;

use super::kernel_text::{self, TEXT_BYTES, too_large};
use super::layout::{Fit, Layout, ParseError};
use super::outcome::Outcome;
use super::read_buffer::ReadBuffer;
use super::reading::Reading;
use super::slot::{Slot, Wanted};
use super::unknown_lines::UnknownLines;

/// Errors of a file that is absent, switched off (`psi=0`) or not for this user.
const FOR_GOOD: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

/// Room for a file's text before its first read; enough for most.
const ROOM_BYTES: usize = 4096;

#[derive(Debug)]
pub struct TextFileSource {
    file: File,
    path: PathBuf,
    /// Room for its text. A text that fills it may be truncated.
    room: usize,
    /// Number of reads for the whole text: files made of records return a page at a time.
    reads: usize,
    layout: Layout,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    #[error("{}: {}", .0.display(), .1)]
    Parse(PathBuf, ParseError),
    /// None of the wanted values.
    #[error("{}: this kernel does not have it", .0.display())]
    Lacking(PathBuf),
    #[error("{}: the file is empty", .0.display())]
    Empty(PathBuf),
}

impl OpenError {
    /// True if a later attempt may succeed although the file exists now.
    pub(super) fn may_recover(&self) -> bool {
        match self {
            Self::Io(_, error) => !FOR_GOOD.contains(&error.kind()),
            Self::Parse(..) | Self::Empty(_) => true,
            Self::Lacking(_) => false,
        }
    }
}

impl TextFileSource {
    /// Opens `path`, reads it, and finds the `wanted` values, of which it must have one. A file with varying
    /// lines may have none yet: it is dormant, without slots, until a read reports a change.
    pub fn open(
        path: &Path,
        form: Form,
        wanted: &[Wanted],
        path_labels: &[(String, String)],
    ) -> Result<Self, OpenError> {
        let io_error = |error: io::Error| OpenError::Io(path.to_owned(), error);
        let file = kernel_text::open(path).map_err(io_error)?;
        let mut source =
            Self { file, path: path.to_owned(), room: ROOM_BYTES, reads: 0, layout: Layout::default() };
        let mut text = ReadBuffer::default();
        let len = source.read_whole(&mut text).map_err(io_error)?;
        let text = text.room(source.room).get(..len).unwrap_or_default();
        let layout = Layout::discover(form, text, wanted, path_labels);
        source.layout = layout.map_err(|error| OpenError::Parse(path.to_owned(), error))?;
        // In a file with one line per device, no line means that no device was used so far.
        let may_come = wanted.iter().any(|wanted| matches!(wanted.field.row, Row::Each { .. }));
        match source.layout.slots() {
            [] if !may_come && len == 0 => Err(OpenError::Empty(path.to_owned())),
            [] if !may_come => Err(OpenError::Lacking(path.to_owned())),
            _ => Ok(source),
        }
    }

    fn read_whole(&mut self, text: &mut ReadBuffer) -> io::Result<usize> {
        let mut len = 0;
        self.reads = 0;
        loop {
            if len == self.room {
                if len >= TEXT_BYTES {
                    return Err(too_large());
                }
                self.room *= 2;
            }
            let free = text.room(self.room).get_mut(len..).unwrap_or_default();
            match pread(self.file.as_fd(), free, len as u64)? {
                0 => {
                    // An empty file is read, too: its first line may follow.
                    self.reads = self.reads.max(1);
                    return Ok(len);
                }
                read => len += read,
            }
            self.reads += 1;
        }
    }

    pub(crate) fn reserve(&self, text: &mut ReadBuffer) {
        text.room(self.room);
    }

    /// Reads the file once more. Does not allocate once `text` has grown.
    pub fn read(&mut self, text: &mut ReadBuffer, reading: &mut Reading) -> Outcome {
        let room = text.room(self.room);
        let mut len = 0;
        for _ in 0..self.reads {
            let free = room.get_mut(len..).unwrap_or_default();
            match pread(self.file.as_fd(), free, len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(errno) => return Outcome::of_error(errno),
            }
        }
        match self.layout.read(room.get(..len).unwrap_or_default(), reading) {
            // A text that fills the room may be truncated.
            Fit::Same if len < self.room => Outcome::Read,
            Fit::Same | Fit::Changed => Outcome::Changed,
        }
    }

    pub fn slots(&self) -> &[Slot] {
        self.layout.slots()
    }

    pub const fn unknown_lines(&self) -> &UnknownLines {
        self.layout.unknown()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
