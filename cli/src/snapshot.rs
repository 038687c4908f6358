//! Snapshot tests: texts are compared with files in `cli/tests/snapshots`. With POLYMETER_BLESS=1 the files
//! are written instead.

/// Compares a text with the snapshot `name`; panics if they differ, or the snapshot does not exist.
pub(crate) fn check(name: &str, text: &str) {
    polymeter_test_harness::snapshot::check(env!("CARGO_MANIFEST_DIR"), name, text);
}
