//! Buffer for the text of kernel files.

/// Memory for the text of one file at a time. All files of a thread share it, so that it stays in the nearest
/// cache.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
}

impl ReadBuffer {
    /// Gives the first `len` bytes. Allocates only if `len` is larger than ever before.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.bytes.get_mut(..len).unwrap_or_default()
    }
}
