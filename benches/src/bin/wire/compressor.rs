//! Compressors on top of the codec: the bytes that they would save, and their cost.

use std::error::Error;

use polymeter_benches::table::to_f64;

/// The result of compressing or decompressing.
type Bytes = Result<Vec<u8>, Box<dyn Error>>;

/// A compressor: its name, and the functions that compress and decompress.
pub(crate) struct Compressor {
    name: &'static str,
    compress: fn(&[u8]) -> Bytes,
    decompress: fn(&[u8], usize) -> Bytes,
}

/// The compressors that this program was built with.
#[cfg(not(feature = "compressors"))]
pub(crate) const ALL: [Compressor; 0] = [];

/// The compressors that this program was built with.
#[cfg(feature = "compressors")]
pub(crate) const ALL: [Compressor; 3] = [
    Compressor {
        name: "LZ4",
        compress: |frame| Ok(lz4_flex::block::compress(frame)),
        decompress: |bytes, len| Ok(lz4_flex::block::decompress(bytes, len)?),
    },
    Compressor {
        name: "zstd 1",
        compress: |frame| Ok(zstd::bulk::compress(frame, 1)?),
        decompress: |bytes, len| Ok(zstd::bulk::decompress(bytes, len)?),
    },
    Compressor {
        name: "zstd 3",
        compress: |frame| Ok(zstd::bulk::compress(frame, 3)?),
        decompress: |bytes, len| Ok(zstd::bulk::decompress(bytes, len)?),
    },
];

/// The header of a table of [`Compressor::row`].
pub(crate) const HEAD: [&str; 6] =
    ["ticks per frame", "compressor", "bytes per value", "of the frames", "ns per value", "and back"];

impl Compressor {
    /// Compresses these frames and returns the table row; `values` is the number of values in them.
    pub(crate) fn row(
        &self,
        ticks: i64,
        frames: &[Vec<u8>],
        values: usize,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        let mut compressed = Vec::new();
        for frame in frames {
            let bytes = (self.compress)(frame)?;
            if (self.decompress)(&bytes, frame.len())? != *frame {
                return Err(format!("{} does not give back what it was given", self.name).into());
            }
            compressed.push((bytes, frame.len()));
        }
        let there_s = crate::timing::cpu_s(|| {
            // An error would have occurred above already.
            frames.iter().for_each(|frame| drop(std::hint::black_box((self.compress)(frame))));
        });
        let back_s = crate::timing::cpu_s(|| {
            for (bytes, len) in &compressed {
                drop(std::hint::black_box((self.decompress)(bytes, *len)));
            }
        });
        let sum = |lens: &mut dyn Iterator<Item = usize>| to_f64(lens.map(|len| len as u64).sum());
        let before = sum(&mut frames.iter().map(Vec::len));
        let after = sum(&mut compressed.iter().map(|(bytes, _)| bytes.len()));
        let values = to_f64(values as u64);
        Ok(vec![
            ticks.to_string(),
            self.name.to_owned(),
            format!("{:.3}", after / values),
            format!("{:.0} %", 100.0 * after / before),
            format!("{:.2}", there_s * 1e9 / values),
            format!("{:.2}", back_s * 1e9 / values),
        ])
    }
}
