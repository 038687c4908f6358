//! Draws the imports between modules, or lists the imports that form cycles.
//!
//! `import-graph DIRECTORY` writes one SVG for each crate and one for the workspace. `import-graph` without
//! an argument prints each cycle with the imports that form it.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::path::Path;
use std::process::ExitCode;

use polymeter_structure::{Workspace, check, draw, root};

fn main() -> ExitCode {
    let workspace = Workspace::read(&root());
    let Some(directory) = std::env::args().nth(1) else {
        check::cycles(&workspace).iter().for_each(|cycle| println!("{cycle}"));
        return ExitCode::SUCCESS;
    };
    match write(&draw::all(&workspace), Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cannot write the drawings: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the drawings and removes those of crates that are no longer there.
fn write(drawings: &draw::Drawings, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            std::fs::remove_file(path)?;
        }
    }
    drawings.iter().try_for_each(|(name, svg)| std::fs::write(directory.join(name), svg))
}
