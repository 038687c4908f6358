//! A segment that is read from its file record by record, since a spool may be larger than memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{HEAD_BYTES, Head, is_beginning};

#[derive(Debug)]
pub struct SegmentReader(pub(super) File);

impl SegmentReader {
    /// None if there is no complete record at `offset`.
    pub fn head(&self, offset: u64) -> io::Result<Option<Head>> {
        let len = self.0.metadata()?.len();
        if offset.saturating_add(HEAD_BYTES as u64) > len {
            return Ok(None);
        }
        let mut bytes = [0; HEAD_BYTES];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(Head::decode(&bytes).filter(|head| offset.saturating_add(head.record_bytes()) <= len))
    }

    /// None if the contents are damaged.
    pub fn contents(&self, offset: u64, head: &Head) -> io::Result<Option<Vec<u8>>> {
        let mut contents = vec![0; head.len];
        self.0.read_exact_at(&mut contents, offset + HEAD_BYTES as u64)?;
        Ok(head.is_of(&contents).then_some(contents))
    }

    /// Reads the first bytes of the contents, without a check of the others; none if there are fewer.
    pub fn prefix<const N: usize>(&self, offset: u64, head: &Head) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        if head.len < N {
            return Ok(None);
        }
        self.0.read_exact_at(&mut bytes, offset + HEAD_BYTES as u64)?;
        Ok(Some(bytes))
    }

    /// Tells whether the bytes from `offset` on, where no complete record begins, may be an unfinished write.
    /// Otherwise they are damaged.
    pub fn is_unfinished(&self, offset: u64) -> io::Result<bool> {
        let mut bytes = [0; HEAD_BYTES];
        let len = self.0.read_at(&mut bytes, offset)?;
        Ok(is_beginning(bytes.get(..len).unwrap_or_default()))
    }
}
