//! The files of a spool directory: opened, read, cut, and moved aside.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::record::{self, HEAD_BYTES, Head, Kind};

/// The mode of files. They are private, since samples reveal the activities of users.
const MODE: u32 = 0o600;

/// The extension of spool files.
const EXTENSION: &str = "spool";

/// The extension of damaged files.
const DAMAGED: &str = "damaged";

/// The maximum number of damaged files that are kept for an examination.
const DAMAGED_MAX: usize = 4;

/// Returns the path of file `number`.
pub(super) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.{EXTENSION}"))
}

/// Returns the numbers of the files in `directory`, sorted.
pub(super) fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".spool")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens a file to read and write; creates it if it is missing.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path)
}

/// Creates a file with `contents`, complete or not at all.
pub(super) fn create(path: &Path, contents: &[u8]) -> io::Result<File> {
    let temporary = path.with_extension("new");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(MODE).open(&temporary)?;
    file.write_all_at(contents, 0)?;
    fs::rename(&temporary, path)?;
    Ok(file)
}

/// Creates file `number`, whose first record has the last times of series. Returns it with its length in
/// bytes.
pub(super) fn create_with_times(directory: &Path, number: u64, times: &[u8]) -> io::Result<(File, u64)> {
    let mut record = Vec::new();
    record::encode(&mut record, Kind::Series, times, 0, 0);
    Ok((create(&path_of(directory, number), &record)?, record.len() as u64))
}

/// The content of a file, as its heads state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The length of its complete records, in bytes.
    pub(super) valid_bytes: u64,
    /// The samples of requests from a given offset on.
    pub(super) samples: u64,
    /// True if `from` is the begin of a record or the end of the last one.
    pub(super) has_from: bool,
}

/// Follows the heads of a file without reading payloads. Counts the samples from the offset `from` on.
pub(super) fn extent(file: &File, from: u64) -> io::Result<Extent> {
    let len = file.metadata()?.len();
    let mut extent = Extent { has_from: from == 0, ..Extent::default() };
    let mut bytes = [0; HEAD_BYTES];
    while extent.valid_bytes + HEAD_BYTES as u64 <= len {
        file.read_exact_at(&mut bytes, extent.valid_bytes)?;
        let Some(head) = Head::decode(&bytes) else { break };
        if extent.valid_bytes + head.record_bytes() > len {
            break;
        }
        if head.kind == Kind::Request && extent.valid_bytes >= from {
            extent.samples += u64::from(head.samples);
        }
        extent.valid_bytes += head.record_bytes();
        extent.has_from |= extent.valid_bytes == from;
    }
    Ok(extent)
}

/// Moves a damaged file aside, and removes the oldest of such files beyond a few.
pub(super) fn move_aside(directory: &Path, number: u64) -> io::Result<()> {
    let path = path_of(directory, number);
    fs::rename(&path, path.with_extension(DAMAGED))?;
    let mut damaged: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == DAMAGED))
        .collect();
    damaged.sort();
    let excess = damaged.len().saturating_sub(DAMAGED_MAX);
    damaged.iter().take(excess).try_for_each(fs::remove_file)
}
