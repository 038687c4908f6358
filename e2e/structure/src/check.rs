//! Compares a workspace with the rules of its structure. Each check returns its findings, one line for each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Workspace;
use crate::cycles;
use crate::draw;
use crate::rules::{Allowed, Forbidden, Stages};

/// Finds modules that import each other in a cycle.
#[must_use]
pub fn cycles(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for target in workspace.targets() {
        for (directory, names) in cycles::by_directory(target) {
            for cycle in cycles::find(&names) {
                let names = Vec::from_iter(cycle.iter().map(String::as_str)).join(" ");
                found.push(format!("{} has a cycle: {names}", workspace.shown(&directory)));
                for (file, imported) in &target.imports {
                    for other in imported {
                        let Some((common, from, to)) = cycles::edge(target, file, other) else { continue };
                        if common == directory && cycle.contains(&from) && cycle.contains(&to) {
                            let (file, other) = (workspace.shown(file), workspace.shown(other));
                            found.push(format!("    {file} imports {other}"));
                        }
                    }
                }
            }
        }
    }
    found
}

/// Finds forbidden dependencies between crates, and differences between the rules and the members.
#[must_use]
pub fn dependencies(workspace: &Workspace, rules: &[Allowed]) -> Vec<String> {
    let members: BTreeSet<&str> = workspace.members.iter().map(|member| member.directory.as_str()).collect();
    let named = rules.iter().flat_map(|rule| rule.dependencies.iter().chain([&rule.directory]));
    let named: BTreeSet<&str> = named.copied().collect();
    let mut found: Vec<String> =
        named.difference(&members).map(|name| format!("a rule names {name}, which is no crate")).collect();
    for member in &workspace.members {
        let Some(rule) = rules.iter().find(|rule| rule.directory == member.directory) else {
            found.push(format!("no rule says what {} may depend on", member.directory));
            continue;
        };
        for other in member.dependencies.iter().filter_map(|package| workspace.package(package)) {
            if !rule.dependencies.contains(&other.directory.as_str()) {
                found.push(format!("{} must not depend on {}", member.directory, other.directory));
            }
        }
    }
    found
}

/// Finds imports of a later stage, modules in rules that do not exist, and crates without stages.
#[must_use]
pub fn directions(workspace: &Workspace, rules: &[Stages]) -> Vec<String> {
    let mut found = Vec::new();
    for rule in rules {
        let directory = workspace.root.join(rule.directory);
        for module in rule.stages.iter().copied().flatten() {
            found.extend(missing(workspace, &format!("{}/{module}", rule.directory)));
        }
        for target in workspace.targets() {
            for (file, imported) in &target.imports {
                let Some(stage) = stage_of(rule, &directory, file) else { continue };
                for other in imported
                    .iter()
                    .filter(|other| stage_of(rule, &directory, other).is_some_and(|later| later > stage))
                {
                    let (file, other) = (workspace.shown(file), workspace.shown(other));
                    found.push(format!("{file} must not import {other}, which is downstream"));
                }
            }
        }
    }
    for member in &workspace.members {
        let modules = member.targets.iter().map(|target| target.imports.len()).max().unwrap_or(0);
        let is_covered = rules.iter().any(|rule| Path::new(rule.directory).starts_with(&member.directory));
        if modules > 2 && !is_covered {
            found.push(format!("no rule orders the modules of {}", member.directory));
        }
    }
    found
}

fn stage_of(rule: &Stages, directory: &Path, file: &Path) -> Option<usize> {
    rule.stages.iter().position(|stage| stage.iter().any(|module| is_in(file, &directory.join(module))))
}

/// Finds uses of forbidden paths, and modules and paths in rules that do not exist.
#[must_use]
pub fn forbidden(workspace: &Workspace, rules: &[Forbidden]) -> Vec<String> {
    let mut found = Vec::new();
    for rule in rules {
        found.extend(rule.modules.iter().filter_map(|module| missing(workspace, module)));
        found.extend(
            rule.paths
                .iter()
                .filter(|path| !exists(workspace, path))
                .map(|path| format!("a rule forbids {path}, which does not exist")),
        );
        for (file, used) in workspace.targets().flat_map(|target| &target.external) {
            if !rule.modules.iter().any(|module| is_in(file, &workspace.root.join(module))) {
                continue;
            }
            for path in used.iter().map(|path| path.join("::")) {
                if rule
                    .paths
                    .iter()
                    .any(|prefix| path == **prefix || path.starts_with(&format!("{prefix}::")))
                {
                    found.push(format!("{} must not use {path}", workspace.shown(file)));
                }
            }
        }
    }
    found
}

/// Finds drawings in a directory that are not those of the code.
#[must_use]
pub fn drawings(workspace: &Workspace, directory: &Path) -> Vec<String> {
    let drawn = draw::all(workspace);
    let mut stored = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        stored.insert(name, std::fs::read_to_string(entry.path()).unwrap());
    }
    let names: BTreeSet<&String> = drawn.keys().chain(stored.keys()).collect();
    let differing = names.into_iter().filter(|name| drawn.get(*name) != stored.get(*name));
    differing.map(|name| format!("{name} is not the drawing of the code")).collect()
}

/// True for the file of a module and for the files below it.
fn is_in(file: &Path, module: &Path) -> bool {
    file.starts_with(module) || (file.extension().is_some() && file.with_extension("") == module)
}

fn missing(workspace: &Workspace, module: &str) -> Option<String> {
    let path = workspace.root.join(module);
    let has_files =
        workspace.targets().flat_map(|target| target.imports.keys()).any(|file| is_in(file, &path));
    (!has_files).then(|| format!("a rule names {module}, which is no module"))
}

/// True for a path to an item of this workspace, and for one into another library that the workspace uses.
fn exists(workspace: &Workspace, path: &str) -> bool {
    let path: Vec<String> = path.split("::").map(str::to_owned).collect();
    let Some((library, item)) = path.split_first() else { return false };
    match workspace.package(&library.replace('_', "-")) {
        Some(member) => member.targets.first().is_some_and(|target| target.has(item)),
        None => library == "std" || workspace.dependencies.contains(library),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two crates: `upper` depends on `lower` and has the modules `parse` and `serve`, of which the second
    /// imports the first.
    const FILES: [(&str, &str); 8] = [
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"lower\", \"upper\"]\n[workspace.dependencies]\ntokio = \"1\"\n",
        ),
        ("lower/Cargo.toml", "[package]\nname = \"small-lower\"\n"),
        ("lower/src/lib.rs", "mod store;\npub use store::Store;\n"),
        ("lower/src/store.rs", "pub struct Store;\n"),
        (
            "upper/Cargo.toml",
            "[package]\nname = \"small-upper\"\n[dependencies]\nsmall-lower.workspace = true\n",
        ),
        ("upper/src/lib.rs", "mod parse;\nmod serve;\n"),
        ("upper/src/parse/mod.rs", "pub fn parse() {}\n"),
        ("upper/src/serve.rs", "use crate::parse::parse;\nfn serve() { parse(); }\n"),
    ];
    const ALLOWED: &[Allowed] = &[
        Allowed { directory: "lower", dependencies: &[] },
        Allowed { directory: "upper", dependencies: &["lower"] },
    ];
    const STAGES: &[Stages] = &[
        Stages { directory: "lower/src", stages: &[&["store"]] },
        Stages { directory: "upper/src", stages: &[&["parse"], &["serve"]] },
    ];
    const PURE: &[Forbidden] =
        &[Forbidden { modules: &["upper/src/parse"], paths: &["std::fs", "tokio", "small_lower::Store"] }];

    /// Writes the workspace, with the given files in place of its own, and reads it.
    fn with(files: &[(&str, &str)]) -> Workspace {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in FILES.iter().chain(files) {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Workspace::read(root.path())
    }

    #[test]
    fn a_sound_workspace_has_no_findings() {
        let sound = with(&[]);
        let findings = [
            cycles(&sound),
            dependencies(&sound, ALLOWED),
            directions(&sound, STAGES),
            forbidden(&sound, PURE),
        ];
        assert_eq!(findings.concat(), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_found_with_its_imports() {
        let found =
            cycles(&with(&[("upper/src/parse/mod.rs", "pub fn parse() { crate::serve::stop(); }\n")]));
        let expected = [
            "upper/src has a cycle: parse serve",
            "    upper/src/parse/mod.rs imports upper/src/serve.rs",
            "    upper/src/serve.rs imports upper/src/parse/mod.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_dependency_against_the_rules_is_found() {
        let backwards = "[package]\nname = \"small-lower\"\n\
            [target.'cfg(unix)'.dependencies]\nsmall-upper.path = \"../upper\"\n";
        let found = dependencies(&with(&[("lower/Cargo.toml", backwards)]), ALLOWED);
        assert_eq!(found, ["lower must not depend on upper"]);
    }

    #[test]
    fn every_crate_needs_rules_and_every_rule_a_crate() {
        let other = Allowed { directory: "lost", dependencies: &[] };
        let found =
            dependencies(&with(&[]), &[other, Allowed { directory: "upper", dependencies: &["lower"] }]);
        assert_eq!(found, ["a rule names lost, which is no crate", "no rule says what lower may depend on"]);
        let found = directions(&with(&[]), &[Stages { directory: "upper/src", stages: &[&["parse"]] }]);
        assert_eq!(found, Vec::<String>::new(), "`lower` has one module beside its root");
        let found = directions(&with(&[]), &[]);
        assert_eq!(found, ["no rule orders the modules of upper"]);
    }

    #[test]
    fn an_import_of_a_later_stage_is_found() {
        let against = [
            ("upper/src/parse/mod.rs", "use crate::serve::stop;\npub fn parse() { stop(); }\n"),
            ("upper/src/serve.rs", "pub fn stop() {}\n"),
        ];
        let found = directions(&with(&against), STAGES);
        assert_eq!(found, ["upper/src/parse/mod.rs must not import upper/src/serve.rs, which is downstream"]);
    }

    #[test]
    fn a_module_of_a_rule_that_does_not_exist_is_found() {
        let stages = [
            Stages { directory: "lower/src", stages: &[] },
            Stages { directory: "upper/src", stages: &[&["gone"]] },
        ];
        assert_eq!(directions(&with(&[]), &stages), ["a rule names upper/src/gone, which is no module"]);
        // A folder is not the file of the same name, and a file that no module declares is no module.
        let modules = &["upper/src/parse.rs", "upper/src/loose"];
        let found =
            forbidden(&with(&[("upper/src/loose.rs", "")]), &[Forbidden { modules, paths: &["std::fs"] }]);
        let expected = modules.map(|module| format!("a rule names {module}, which is no module"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_use_of_a_forbidden_path_is_found() {
        let impure = "use std::fs;\nuse small_lower::Store;\n\
            pub fn parse(_: Store) { fs::read(\"x\"); tokio::spawn(f()); }\n";
        let found = forbidden(&with(&[("upper/src/parse/mod.rs", impure)]), PURE);
        let uses = ["small_lower::Store", "std::fs", "std::fs::read", "tokio::spawn"];
        assert_eq!(found, uses.map(|path| format!("upper/src/parse/mod.rs must not use {path}")));
    }

    #[test]
    fn a_forbidden_path_that_does_not_exist_is_found() {
        let paths = &["std::fs", "mio", "small_lower::Store", "small_lower::Shop"];
        let found = forbidden(&with(&[]), &[Forbidden { modules: &["upper/src"], paths }]);
        let expected = ["mio", "small_lower::Shop"];
        assert_eq!(found, expected.map(|path| format!("a rule forbids {path}, which does not exist")));
    }

    #[test]
    fn a_drawing_that_is_not_of_the_code_is_found() {
        let workspace = with(&[]);
        let directory = tempfile::tempdir().unwrap();
        for (name, svg) in draw::all(&workspace) {
            std::fs::write(directory.path().join(name), svg).unwrap();
        }
        assert_eq!(drawings(&workspace, directory.path()), Vec::<String>::new());
        std::fs::write(directory.path().join("gone.svg"), "").unwrap();
        std::fs::write(directory.path().join("upper.svg"), "<svg/>").unwrap();
        std::fs::remove_file(directory.path().join("lower.svg")).unwrap();
        let expected = ["gone", "lower", "upper"];
        let expected = expected.map(|name| format!("{name}.svg is not the drawing of the code"));
        assert_eq!(drawings(&workspace, directory.path()), expected);
    }
}
