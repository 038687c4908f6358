//! Schemathesis, which `make test-api` installs: it generates requests from the document of an API.

use std::path::PathBuf;
use std::process::Command;

/// `POLYMETER_SCHEMATHESIS`, or else the system's program.
pub fn schemathesis() -> PathBuf {
    std::env::var_os("POLYMETER_SCHEMATHESIS").map_or_else(|| PathBuf::from("schemathesis"), PathBuf::from)
}

pub(crate) fn missing() -> Option<String> {
    let version = Command::new(schemathesis()).arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "schemathesis is missing; `make test-api` installs it".to_owned())
}
