//! The modules of one crate, each with the names that it binds and the paths that its code uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// Path of a module from the root of its crate.
pub type ModulePath = Vec<String>;

#[derive(Debug)]
pub struct Module {
    pub file: PathBuf,
    /// Names that its `use` items bind, and the paths that they stand for.
    pub bindings: BTreeMap<String, Vec<String>>,
    pub globs: Vec<Vec<String>>,
    /// Paths that its code uses, without those of `pub use`.
    pub paths: BTreeSet<Vec<String>>,
    pub items: BTreeSet<String>,
}

/// Reads the modules of a crate: the root file, and all files that its `mod` declarations lead to.
#[must_use]
pub fn read(root: &Path) -> BTreeMap<ModulePath, Module> {
    let mut modules = BTreeMap::new();
    let directory = root.parent().unwrap().to_owned();
    read_file(root, Vec::new(), &directory, &mut modules);
    modules
}

fn read_file(file: &Path, path: ModulePath, children: &Path, modules: &mut BTreeMap<ModulePath, Module>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    read_items(&parsed.items, file, path, children, modules);
}

fn read_items(
    items: &[Item],
    file: &Path,
    path: ModulePath,
    children: &Path,
    modules: &mut BTreeMap<ModulePath, Module>,
) {
    let mut collector = Collector::default();
    let code = || items.iter().filter(|item| !is_test(attributes(item)));
    for item in code() {
        if let Item::Mod(module) = item {
            let name = module.ident.to_string();
            let mut child = path.clone();
            child.push(name.clone());
            let below = children.join(&name);
            match &module.content {
                Some((_, items)) => read_items(items, file, child, &below, modules),
                None => {
                    let own_file = children.join(format!("{name}.rs"));
                    let file = path_attribute(&module.attrs)
                        .map(|given| file.parent().unwrap().join(given))
                        .unwrap_or_else(|| if own_file.exists() { own_file } else { below.join("mod.rs") });
                    read_file(&file, child, &below, modules);
                }
            }
        } else {
            collector.visit_item(item);
        }
    }
    let Collector { bindings, globs, mut paths, reexports } = collector;
    // A name that is only re-exported is not an import. A name that the module also uses is one.
    for name in reexports {
        if paths.iter().any(|path| path.first() == Some(&name)) {
            paths.insert(bindings[&name].clone());
        }
    }
    let items = code().filter_map(name).collect();
    modules.insert(path, Module { file: file.to_owned(), bindings, globs, paths, items });
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let value = &attribute.meta.require_name_value().ok()?.value;
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else { return None };
        Some(text.value())
    })
}

/// True if attributes exclude an item from the programs.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string();
                condition == "test" || condition.starts_with("all (test ,")
            })
    })
}

#[must_use]
pub fn is_test_item(item: &Item) -> bool {
    is_test(attributes(item))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest has no name, or is no item that a path leads to"
)]
fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the rest has no attributes, or declares nothing here")]
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[derive(Default)]
struct Collector {
    bindings: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: BTreeSet<Vec<String>>,
    reexports: Vec<String>,
}

impl Collector {
    fn add(&mut self, tree: &UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &dyn ToString| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add(&path.tree, &with(&path.ident), is_public),
            UseTree::Name(name) if name.ident == "self" => {
                self.bind(prefix.last().cloned().unwrap_or_default(), prefix.to_vec(), is_public);
            }
            UseTree::Name(name) => self.bind(name.ident.to_string(), with(&name.ident), is_public),
            UseTree::Rename(rename) => {
                self.bind(rename.rename.to_string(), with(&rename.ident), is_public);
            }
            UseTree::Glob(_) => {
                self.globs.push(prefix.to_vec());
                if !is_public {
                    self.paths.insert(prefix.to_vec());
                }
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add(tree, prefix, is_public));
            }
        }
    }

    fn bind(&mut self, name: String, path: Vec<String>, is_public: bool) {
        if is_public {
            self.reexports.push(name.clone());
        } else {
            self.paths.insert(path.clone());
        }
        self.bindings.insert(name, path);
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.add(&item.tree, &[], is_public);
    }

    /// A module in `pub(crate)` or `pub(super)` is not an import.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// Arguments of a macro are tokens; paths among them are recognised by `::`.
    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        let tokens = invocation.tokens.to_string().replace("::", " :: ");
        let is_name = |word: &&str| word.starts_with(|first: char| first.is_alphabetic() || first == '_');
        let spaced: String = tokens
            .chars()
            .flat_map(|c| if c.is_alphanumeric() || "_: ".contains(c) { vec![c] } else { vec![' ', c, ' '] })
            .collect();
        let mut words = spaced.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if !is_name(&word) {
                continue;
            }
            let mut path = vec![word.to_owned()];
            while words.next_if_eq(&"::").is_some() {
                match words.next_if(is_name) {
                    Some(name) => path.push(name.to_owned()),
                    None => break,
                }
            }
            self.paths.insert(path);
        }
        visit::visit_macro(self, invocation);
    }
}
