//! Snapshot tests: a text is compared with a file in `tests/snapshots` of the tested crate. With
//! `POLYMETER_BLESS=1` the file is written instead.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Compares `text` with the snapshot `name` of the crate whose manifest is in `crate_directory`. Panics if
/// they differ or the snapshot does not exist.
pub fn check(crate_directory: &str, name: &str, text: &str) {
    let path = Path::new(crate_directory).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("POLYMETER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("cannot read {}: {error}; create it with POLYMETER_BLESS=1", path.display())
    });
    let line = expected.lines().zip(text.lines()).take_while(|(expected, line)| expected == line).count() + 1;
    assert!(
        expected == text,
        "the text differs from {}:{line}; if it is right, run the test again with POLYMETER_BLESS=1:\n{text}",
        path.display()
    );
}

#[derive(Debug, Clone, Copy)]
pub struct Daemon {
    pub program: &'static str,
    /// Directory of the crate's manifest.
    pub crate_directory: &'static str,
}

impl Daemon {
    /// Builds the command that starts it, with an environment that does not affect its texts.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.env_remove("JOURNAL_STREAM").env_remove("POLYMETER_LOG").env("COLUMNS", "100");
        command
    }

    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command().args(arguments).output();
        output.unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program))
    }

    /// Compares an output with the snapshot `name`, like [`check`].
    pub fn check(&self, name: &str, output: &[u8]) {
        let text = std::str::from_utf8(output);
        check(self.crate_directory, name, text.unwrap_or_else(|error| panic!("{name} is not text: {error}")));
    }

    pub fn check_help(&self) {
        let output = self.run(&["--help"]);
        assert_eq!(output.status.code(), Some(0));
        self.check("help", &output.stdout);
    }
}
