//! Compression of files and answers, as gzip, for clients that accept it.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Shorter answers fit a packet as they are.
const SHORT_BYTES: usize = 1000;

/// Tells whether a header `Accept-Encoding` permits gzip.
pub(crate) fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|part| {
        let (coding, quality) = part.split_once(';').unwrap_or((part, ""));
        let quality = quality.trim().strip_prefix("q=").and_then(|quality| quality.parse::<f64>().ok());
        coding.trim().eq_ignore_ascii_case("gzip") && quality != Some(0.0)
    })
}

/// Compresses a file once for all who ask for it.
pub(crate) fn compressed_file(body: &[u8]) -> Bytes {
    gzip(body, Compression::best())
}

/// Compresses a whole answer; none if it is short.
pub(crate) fn compressed_answer(text: &str) -> Option<Bytes> {
    (text.len() >= SHORT_BYTES).then(|| gzip(text.as_bytes(), ANSWER_LEVEL))
}

/// A higher level takes twice the time, and saves a tenth.
const ANSWER_LEVEL: Compression = Compression::new(4);

/// Compresses the chunks of an answer.
#[derive(Debug)]
pub(crate) struct ChunkEncoder(GzEncoder<Vec<u8>>);

impl ChunkEncoder {
    pub(crate) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), ANSWER_LEVEL))
    }

    /// Returns what is ready to be sent, which may be nothing.
    pub(crate) fn encode(&mut self, chunk: &[u8]) -> Vec<u8> {
        // Writing to memory does not fail.
        self.0.write_all(chunk).ok();
        std::mem::take(self.0.get_mut())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.finish().unwrap_or_default()
    }
}

fn gzip(body: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    // Writing to memory does not fail.
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    Bytes::from(written.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn plain(compressed: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn answers_and_chunks_are_decoded_to_what_they_were() {
        let text = "0.7236,0.7237,".repeat(10_000);
        let compressed = compressed_answer(&text).unwrap();
        assert!(compressed.len() < text.len() / 20);
        assert_eq!(plain(&compressed), text);
        assert_eq!(compressed_answer("{}"), None);
        let mut encoder = ChunkEncoder::new();
        let mut sent: Vec<u8> = Vec::new();
        for chunk in text.as_bytes().chunks(50_000) {
            sent.extend(encoder.encode(chunk));
        }
        sent.extend(encoder.finish());
        assert_eq!(plain(&sent), text);
        assert_eq!(plain(&ChunkEncoder::new().finish()), "");
    }
}
