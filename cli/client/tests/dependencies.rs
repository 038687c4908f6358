//! Tests that the client depends on no agent, no collector, no store and none of their C libraries.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Command;

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

fn dependencies(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_client_contains_no_daemon_and_no_store() {
    let client = dependencies("polymeter-client");
    let found: Vec<&String> = client.iter().filter(|name| EXCLUDED.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(client.iter().any(|name| name == "polymeter-proto"), "{client:?}");
    // This proves that the names are correct: the full program contains all of them.
    let full = dependencies("polymeter-cli");
    let unknown: Vec<&&str> =
        EXCLUDED.iter().filter(|name| !full.iter().any(|found| found == **name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
