//! Positions in a spool, and the files that keep them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Position of a record, or of the end of the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) file: u64,
    /// Bytes from the begin of the file.
    pub(crate) offset: u64,
}

const POSITION_BYTES: usize = 20;

impl Position {
    fn encode(self) -> [u8; POSITION_BYTES] {
        let mut bytes = [0; POSITION_BYTES];
        let numbers: Vec<u8> = [self.file.to_le_bytes(), self.offset.to_le_bytes()].concat();
        let sum = crc32fast::hash(&numbers).to_le_bytes();
        bytes.iter_mut().zip(numbers.into_iter().chain(sum)).for_each(|(to, from)| *to = from);
        bytes
    }

    /// None if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; POSITION_BYTES] = bytes.first_chunk()?;
        let (numbers, sum) = bytes.split_last_chunk::<4>()?;
        let (file, offset) = numbers.split_first_chunk::<8>()?;
        let position =
            Self { file: u64::from_le_bytes(*file), offset: u64::from_le_bytes(*offset.first_chunk()?) };
        (crc32fast::hash(numbers) == u32::from_le_bytes(*sum)).then_some(position)
    }
}

#[derive(Debug)]
pub(super) struct PositionFile {
    file: File,
    /// Writes alternate, so that a torn one leaves the other.
    is_second_slot: bool,
}

impl PositionFile {
    /// Opens or creates a file. Returns it with its position; none if it has no valid one.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<Position>)> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut bytes = [0; 2 * POSITION_BYTES];
        let len = file.read_at(&mut bytes, 0)?;
        let slots = bytes.get(..len).unwrap_or_default().chunks(POSITION_BYTES);
        // Positions rarely decrease, and then samples may be sent again.
        let position = slots.filter_map(Position::decode).max();
        Ok((Self { file, is_second_slot: false }, position))
    }

    pub(super) fn write(&mut self, position: Position) -> io::Result<()> {
        let offset = if self.is_second_slot { POSITION_BYTES as u64 } else { 0 };
        self.is_second_slot = !self.is_second_slot;
        self.file.write_all_at(&position.encode(), offset)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_a_checksum() {
        let position = Position { file: 3, offset: 1 << 40 };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Position::decode(&damaged), None, "{at}");
        }
        assert_eq!(Position::decode(&bytes[1..]), None);
    }

    #[test]
    fn a_torn_write_leaves_the_position_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        let (mut file, found) = PositionFile::open(&path).unwrap();
        assert_eq!(found, None);
        let at = |offset| Position { file: 1, offset };
        (1..=4).for_each(|offset| file.write(at(offset)).unwrap());
        assert_eq!(PositionFile::open(&path).unwrap().1, Some(at(4)));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[POSITION_BYTES + 3] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(PositionFile::open(&path).unwrap().1, Some(at(3)));
    }
}
