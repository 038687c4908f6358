//! The imports between the files of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{self, Module, ModulePath};

/// Files of a crate, and the files that each of them imports.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Re-exports that are followed for one path. A longer chain is a cycle.
const REEXPORTS_MAX: usize = 16;

/// One program or library of a crate.
#[derive(Debug)]
pub struct Target {
    pub directory: PathBuf,
    pub imports: Imports,
    /// Paths to items of other crates, including the standard library, by file.
    pub external: BTreeMap<PathBuf, BTreeSet<Vec<String>>>,
    modules: BTreeMap<ModulePath, Module>,
}

#[must_use]
pub fn targets(directory: &Path) -> Vec<Target> {
    let source = directory.join("src");
    let mut roots: Vec<PathBuf> =
        ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).filter(|root| root.exists()).collect();
    for entry in std::fs::read_dir(source.join("bin")).into_iter().flatten().flatten() {
        let path = entry.path();
        roots.push(if path.is_dir() { path.join("main.rs") } else { path });
    }
    roots.iter().map(|root| Target::read(root)).collect()
}

impl Target {
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let modules = modules::read(root);
        let mut imports = Imports::new();
        let mut external: BTreeMap<PathBuf, BTreeSet<Vec<String>>> = BTreeMap::new();
        for (path, module) in &modules {
            let own = imports.entry(module.file.clone()).or_default();
            for mentioned in &module.paths {
                match resolve(&modules, path, mentioned, REEXPORTS_MAX) {
                    Some(Resolved::Here(file)) if file != module.file => drop(own.insert(file)),
                    Some(Resolved::Elsewhere(path)) => {
                        external.entry(module.file.clone()).or_default().insert(path);
                    }
                    _ => {}
                }
            }
        }
        Self { directory: root.parent().unwrap().to_owned(), imports, external, modules }
    }

    /// True if a path from the root of the crate leads to a module or an item.
    #[must_use]
    pub fn has(&self, path: &[String]) -> bool {
        let Some(name) = path.last() else { return true };
        let from_root = [&["crate".to_owned()], path].concat();
        self.modules.contains_key(path)
            || match resolve(&self.modules, &ModulePath::new(), &from_root, REEXPORTS_MAX) {
                Some(Resolved::Here(file)) => defines(&self.modules, &file, name),
                Some(Resolved::Elsewhere(_)) => true,
                None => false,
            }
    }
}

enum Resolved {
    /// A file of the same crate.
    Here(PathBuf),
    /// An item of another crate.
    Elsewhere(Vec<String>),
}

/// Follows a path, as written in a module, to the file that defines the item. `None` for a name of the module
/// itself, of the language or of the prelude.
fn resolve(
    modules: &BTreeMap<ModulePath, Module>,
    module: &ModulePath,
    path: &[String],
    reexports_left: usize,
) -> Option<Resolved> {
    let (first, rest) = path.split_first()?;
    let mut at = module.clone();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => drop(at.pop()),
        name => {
            let mut child = at.clone();
            child.push(name.to_owned());
            if modules.contains_key(&child) {
                at = child;
            } else if let Some(bound) = modules[module].bindings.get(name) {
                let full = [bound.as_slice(), rest].concat();
                let is_own_name = bound.first().is_some_and(|bound| bound == name);
                if reexports_left == 0 || is_own_name {
                    return Some(Resolved::Elsewhere(full));
                }
                return resolve(modules, module, &full, reexports_left - 1);
            } else if rest.is_empty() {
                return None;
            } else {
                return Some(Resolved::Elsewhere(path.to_vec()));
            }
        }
    }
    descend(modules, at, rest, reexports_left)
}

/// Follows the rest of a path downwards from a module.
fn descend(
    modules: &BTreeMap<ModulePath, Module>,
    mut at: ModulePath,
    rest: &[String],
    reexports_left: usize,
) -> Option<Resolved> {
    let mut rest = rest;
    while let Some((name, below)) = rest.split_first() {
        if name == "super" {
            at.pop();
        } else {
            let mut child = at.clone();
            child.push(name.clone());
            if !modules.contains_key(&child) {
                break;
            }
            at = child;
        }
        rest = below;
    }
    let module = modules.get(&at)?;
    let Some((name, below)) = rest.split_first() else { return Some(Resolved::Here(module.file.clone())) };
    if reexports_left > 0 {
        if let Some(bound) = module.bindings.get(name) {
            let full = [bound.as_slice(), below].concat();
            return resolve(modules, &at, &full, reexports_left - 1);
        }
        // A name from a glob import belongs to the module that defines it, if that module is known.
        for glob in &module.globs {
            let full = [glob.as_slice(), rest].concat();
            if let Some(Resolved::Here(file)) = resolve(modules, &at, &full, reexports_left - 1)
                && file != module.file
                && defines(modules, &file, name)
            {
                return Some(Resolved::Here(file));
            }
        }
    }
    Some(Resolved::Here(module.file.clone()))
}

fn defines(modules: &BTreeMap<ModulePath, Module>, file: &Path, name: &str) -> bool {
    modules.values().any(|module| module.file == file && module.items.contains(name))
}
