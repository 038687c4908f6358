//! The buffer for the text of kernel files.

/// Memory for the text of one file at a time. One serves all files that a thread reads, so that it stays in the nearest
/// cache however many there are.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
}

impl ReadBuffer {
    /// Returns the first `len` bytes. Allocates only when more are wanted than ever before.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.bytes.get_mut(..len).unwrap_or_default()
    }
}
