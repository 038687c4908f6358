//! The GPUs of a laid-out node: the stand-in library of the agent's tests, which answers from a text file.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source of the library, for the C compiler.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node-agent/tests/nvml/stand_in.c");

const DIRECTORY: &str = "usr/lib64";

/// Answers of one GPU, after its number.
const ANSWERS: [(&str, &str); 22] = [
    ("energy", "123456789"),
    ("power", "250500"),
    ("power_limit", "700000"),
    ("utilization", "97"),
    ("memory_utilization", "41"),
    ("memory_used", "2147483648"),
    ("memory_total", "85899345920"),
    ("clock.1", "1980"),
    ("clock.2", "2619"),
    ("temperature", "64"),
    ("throttle", "68"),
    ("violation.0", "1500000000"),
    ("violation.1", "0"),
    ("ecc.0.0", "3"),
    ("ecc.0.1", "30"),
    ("ecc.1.0", "0"),
    ("ecc.1.1", "2"),
    ("pcie_replays", "7"),
    ("field.197.0", "1000000"),
    ("field.198.0", "2000000"),
    ("events", "1"),
    ("processes", ""),
];

#[derive(Debug)]
pub(super) struct Gpus {
    directory: PathBuf,
    count: usize,
}

impl Gpus {
    /// Builds the library below `root`; none if there are no GPUs.
    pub(super) fn install(root: &Path, count: usize) -> Result<Self, Box<dyn Error>> {
        let gpus = Self { directory: root.join(DIRECTORY), count };
        fs::create_dir_all(&gpus.directory)?;
        if count > 0 {
            gpus.answer(false)?;
            let library = gpus.directory.join("libnvidia-ml.so.1");
            let built = Command::new("cc")
                .args(["-O1", "-shared", "-fPIC", "-o"])
                .arg(library)
                .arg(SOURCE)
                .status()?;
            if !built.success() {
                return Err("cc cannot build the stand-in library of the GPUs".into());
            }
        }
        Ok(gpus)
    }

    /// Writes the answers. If `hangs` is true, calls for the power of the first GPU wait until this changes.
    pub(super) fn answer(&self, hangs: bool) -> io::Result<()> {
        let mut text = format!("gpus {}\n", self.count);
        for gpu in 0..self.count {
            text.push_str(&format!("{gpu}.uuid GPU-{gpu}\n"));
            for (key, value) in ANSWERS {
                let value = if hangs && (gpu, key) == (0, "power") { "hang" } else { value };
                text.push_str(&format!("{gpu}.{key} {value}\n"));
            }
        }
        let new = self.directory.join("new");
        fs::write(&new, text)?;
        fs::rename(new, self.directory.join("nvml.txt"))
    }

    pub(super) fn has_hung(&self) -> bool {
        self.directory.join("hangs").exists()
    }
}
