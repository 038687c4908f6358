//! A Python with pandas, polars and DuckDB, which `make test-frames` installs.

use std::path::PathBuf;
use std::process::Command;

/// Python interpreter: `POLYMETER_FRAMES_PYTHON`, or else the system's.
pub fn python() -> PathBuf {
    std::env::var_os("POLYMETER_FRAMES_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

pub(crate) fn missing() -> Option<String> {
    let import = Command::new(python()).args(["-c", "import pandas, pyarrow, polars, duckdb"]).output();
    let is_there = import.is_ok_and(|output| output.status.success());
    (!is_there)
        .then(|| "pandas, pyarrow, polars or duckdb is missing; `make test-frames` installs them".to_owned())
}
