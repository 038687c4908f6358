//! Version of this program and the origin of its build.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use polymeter_proto::wire;
use serde::{Deserialize, Serialize};

/// Describes a build by Nix; relative to the directory of the program.
const BUILD: &str = "../share/polymeter/build.json";

const BUILD_BYTES: u64 = 4096;

const NIX_STORE: &str = "/nix/store";

#[derive(Debug, Serialize)]
pub struct Version {
    pub(crate) program: &'static str,
    pub(crate) version: &'static str,
    /// Processor and operating system for which it was compiled.
    target: String,
    protocol: u8,
    #[serde(flatten)]
    local: Option<LocalVersion>,
    #[serde(flatten)]
    pub build: Build,
    /// Path of the closure in the Nix store.
    #[serde(skip_serializing_if = "Option::is_none")]
    closure: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub struct LocalVersion {
    pub schema: i32,
    pub zeromq: String,
    pub curve: bool,
}

/// Origin of a build by Nix; all absent for other builds.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Revision of the sources; none if they had uncommitted changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_sha256: Option<String>,
}

impl Version {
    #[must_use]
    pub fn of_this_program(local: Option<LocalVersion>) -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        Self {
            program: "polymeter",
            version: env!("CARGO_PKG_VERSION"),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            protocol: wire::VERSION,
            local,
            build: program.parent().and_then(|directory| build(&directory.join(BUILD))).unwrap_or_default(),
            closure: closure(&program),
        }
    }
}

/// None if the description is missing or invalid.
fn build(path: &Path) -> Option<Build> {
    let mut text = String::new();
    File::open(path).ok()?.take(BUILD_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Finds the closure in the Nix store that contains `program`.
fn closure(program: &Path) -> Option<PathBuf> {
    let name = program.strip_prefix(NIX_STORE).ok()?.components().next()?;
    Some(Path::new(NIX_STORE).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closure_of_a_program_in_the_nix_store_is_known() {
        let closure = |path: &str| closure(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(closure("/nix/store/abc-polymeter/bin/polymeter").unwrap(), "/nix/store/abc-polymeter");
        assert_eq!(closure("/usr/bin/polymeter"), None);
        assert_eq!(closure("/nix/store"), None);
    }

    #[test]
    fn a_valid_description_of_the_build_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("build.json");
        assert_eq!(build(&path), None);
        std::fs::write(&path, r#"{"revision":null,"lock_sha256":"00ff"}"#).unwrap();
        assert_eq!(build(&path), Some(Build { revision: None, lock_sha256: Some("00ff".to_owned()) }));
        std::fs::write(&path, "no JSON").unwrap();
        assert_eq!(build(&path), None);
    }
}
