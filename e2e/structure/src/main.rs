//! Draws the imports between modules, or lists the imports that form cycles.
//!
//! `import-graph DIRECTORY` writes one SVG for each crate and one for the workspace. `import-graph` without an argument
//! prints each cycle with the imports that form it.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use polymeter_structure::cycles::{self, Names};
use polymeter_structure::{crates, draw, graph, manifest, shown};

fn main() -> ExitCode {
    let result = match std::env::args().nth(1) {
        None => {
            print_cycles();
            Ok(())
        }
        Some(directory) => draw_all(Path::new(&directory)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cannot write the drawings: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_cycles() {
    for target in crates().iter().flat_map(|directory| graph::targets(directory)) {
        for (directory, names) in cycles::by_directory(&target) {
            for cycle in cycles::find(&names) {
                println!("{}: {}", shown(&directory), Vec::from_iter(cycle.clone()).join(" "));
                for (file, imported) in &target.imports {
                    for other in imported {
                        let Some((common, from, to)) = cycles::edge(&target, file, other) else { continue };
                        if common == directory && cycle.contains(&from) && cycle.contains(&to) {
                            println!("    {} imports {}", shown(file), shown(other));
                        }
                    }
                }
            }
        }
    }
}

fn draw_all(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let names: BTreeMap<String, String> = crates()
        .iter()
        .filter_map(|path| {
            let manifest = manifest(path);
            let name = manifest.get("package")?.get("name")?.as_str()?;
            Some((name.to_owned(), shown(path)))
        })
        .collect();
    let mut workspace = Names::new();
    for path in crates() {
        let manifest = manifest(&path);
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let local: BTreeSet<String> =
            dependencies.into_iter().flatten().filter_map(|(name, _)| names.get(name).cloned()).collect();
        workspace.insert(shown(&path), local);
        let Some(target) = graph::targets(&path).into_iter().next() else { continue };
        let modules = cycles::by_directory(&target).remove(&target.directory).unwrap_or_default();
        if modules.len() > 1 {
            let file = format!("{}.svg", shown(&path).replace('/', "-"));
            std::fs::write(directory.join(file), draw::svg(&format!("{}/src", shown(&path)), &modules))?;
        }
    }
    std::fs::write(directory.join("crates.svg"), draw::svg("crates of the workspace", &workspace))
}
