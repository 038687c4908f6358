//! Servers and their programs that `make` extracts from Debian's packages, without installing them.

use std::path::PathBuf;

/// Root of their files: `POLYMETER_SERVERS`, or else the system's.
#[must_use]
pub fn root() -> PathBuf {
    std::env::var_os("POLYMETER_SERVERS").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

#[must_use]
pub fn libraries() -> PathBuf {
    root().join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}
