//! Tests that the build without the feature `local` is a small client: it depends on no agent, no collector,
//! no store and none of their C libraries.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Command;

/// The crates that the small client must not contain.
const EXCLUDED: [&str; 9] = [
    "polymeter-agent",
    "polymeter-collector",
    "polymeter-store",
    "zmq",
    "zmq-sys",
    "rusqlite",
    "libsqlite3-sys",
    "tokio-postgres",
    "parquet",
];

/// Returns the names of the crates that the command depends on.
fn dependencies(features: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "-p",
            "polymeter-cli",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_small_client_contains_no_daemon_and_no_store() {
    let small = dependencies(&["--no-default-features"]);
    let found: Vec<&String> = small.iter().filter(|name| EXCLUDED.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(small.iter().any(|name| name == "polymeter-proto"), "{small:?}");
    // This proves that the names are correct: the full build contains all of them.
    let full = dependencies(&[]);
    let unknown: Vec<&&str> =
        EXCLUDED.iter().filter(|name| !full.iter().any(|found| found == **name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
