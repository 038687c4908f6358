//! Snapshot tests: a text is compared with a file in `tests/snapshots` of the tested crate. With
//! `POLYMETER_BLESS=1` the file is written instead.

use std::fs;
use std::path::Path;

/// Compares `text` with the snapshot `name` of the crate whose manifest is in `crate_directory`.
///
/// # Errors
/// Returns the first line that differs, or an error if the snapshot does not exist.
pub fn compare(crate_directory: &str, name: &str, text: &str) -> Result<(), String> {
    let path = Path::new(crate_directory).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("POLYMETER_BLESS").is_some_and(|value| value == "1") {
        return fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    let expected = fs::read_to_string(&path).map_err(|error| {
        format!("cannot read {}: {error}; create it with POLYMETER_BLESS=1", path.display())
    })?;
    if expected == text {
        return Ok(());
    }
    let line = expected.lines().zip(text.lines()).take_while(|(expected, line)| expected == line).count() + 1;
    Err(format!(
        "the text differs from {}:{line}; if it is right, run the test again with POLYMETER_BLESS=1:\n{text}",
        path.display()
    ))
}
