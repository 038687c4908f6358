//! Snapshot tests: texts are compared with files in `cli/tests/snapshots`. With POLYMETER_BLESS=1 the files are written instead.

use std::fs;
use std::path::Path;

/// Compares a text with the snapshot `name`.
///
/// # Panics
/// Panics if they differ, or the snapshot does not exist.
pub(crate) fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("POLYMETER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("cannot read {}: {error}; create it with POLYMETER_BLESS=1", path.display())
    });
    let difference = expected.lines().zip(text.lines()).position(|(expected, line)| expected != line);
    let line = difference.unwrap_or_else(|| expected.lines().count().min(text.lines().count())) + 1;
    assert!(
        expected == text,
        "the text differs from {}:{line}; if it is right, run the test again with POLYMETER_BLESS=1:\n{text}",
        path.display()
    );
}
