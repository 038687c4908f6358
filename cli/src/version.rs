//! Which program this is: `polymeter --version --json`, and what a bundle says of its making.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use polymeter_proto::wire;
use polymeter_store::SCHEMA_VERSION;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::terminal;

/// Where a build by Nix says what it is of, from the directory of the program.
const BUILD: &str = "../share/polymeter/build.json";

/// More than a build has to say.
const BUILD_BYTES: u64 = 4096;

/// Where Nix keeps what it builds.
const NIX_STORE: &str = "/nix/store";

/// A program, and what it was made of.
#[derive(Debug, Serialize)]
pub(crate) struct Version {
    pub(crate) program: &'static str,
    pub(crate) version: &'static str,
    /// The processor and system that it was compiled for.
    pub(crate) target: String,
    /// The version of what agents and collectors speak.
    pub(crate) protocol: u8,
    /// The version of the store's schema.
    pub(crate) schema: i32,
    /// The version of libzmq, and whether it has CURVE.
    pub(crate) zeromq: String,
    pub(crate) curve: bool,
    /// What Nix says of the build. Absent where another built it.
    #[serde(flatten)]
    pub(crate) build: Build,
    /// The path of the closure in the store of Nix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closure: Option<PathBuf>,
}

/// What a build by Nix says of itself.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    /// The revision of the sources; none where they had changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    /// The SHA-256 of `flake.lock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_sha256: Option<String>,
}

impl Version {
    /// That of this process.
    pub(crate) fn own() -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        let (major, minor, patch) = zmq::version();
        Self {
            program: env!("CARGO_BIN_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            protocol: wire::VERSION,
            schema: SCHEMA_VERSION,
            zeromq: format!("{major}.{minor}.{patch}"),
            curve: zmq::has("curve") == Some(true),
            build: program.parent().and_then(|place| build(&place.join(BUILD))).unwrap_or_default(),
            closure: closure(&program),
        }
    }
}

/// Prints the version, as `--version` does or as JSON.
pub(crate) fn run(json: bool) -> Result<(), Failure> {
    let version = Version::own();
    if !json {
        return terminal::print(&format!("{} {}\n", version.program, version.version));
    }
    let text = serde_json::to_string_pretty(&version)
        .map_err(|error| Failure::refused("cannot write the version", &error))?;
    terminal::print_json(&(text + "\n"))
}

fn build(path: &Path) -> Option<Build> {
    let mut text = String::new();
    File::open(path).ok()?.take(BUILD_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The directory of the store in which `program` lies.
fn closure(program: &Path) -> Option<PathBuf> {
    let name = program.strip_prefix(NIX_STORE).ok()?.components().next()?;
    Some(Path::new(NIX_STORE).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_store_knows_its_closure() {
        let closure = |path: &str| closure(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(closure("/nix/store/abc-polymeter/bin/polymeter").unwrap(), "/nix/store/abc-polymeter");
        assert_eq!(closure("/usr/bin/polymeter"), None);
        assert_eq!(closure("/nix/store"), None);
    }

    #[test]
    fn what_nix_wrote_beside_the_program_is_believed_if_it_makes_sense() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("build.json");
        assert_eq!(build(&path), None);
        std::fs::write(&path, r#"{"revision":null,"lock_sha256":"00ff"}"#).unwrap();
        assert_eq!(build(&path), Some(Build { revision: None, lock_sha256: Some("00ff".to_owned()) }));
        std::fs::write(&path, "no JSON").unwrap();
        assert_eq!(build(&path), None);
    }
}
