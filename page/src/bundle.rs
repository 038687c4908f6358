//! One script of a page, which contains the modules that it imports: a browser asks for it once, not for each
//! module. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules;

/// Modules in this directory stay files of their own: several pages import them.
const SHARED_LIBRARY: &str = "uplot/";

/// Each document loads this module by itself, before all others.
pub(crate) const FIRST: &str = "site/first_requests.js";

fn is_own_file(path: &str) -> bool {
    path.starts_with(SHARED_LIBRARY) || path == FIRST
}

/// Modules by path, and the paths that they import.
type Modules = BTreeMap<String, String>;

/// Returns the modules of a page's script, each after those that it imports, and last the page's own. Modules
/// must not import themselves through others.
fn order(entry: &str, modules: &Modules) -> Vec<String> {
    fn visit(path: &str, modules: &Modules, seen: &mut BTreeSet<String>, order: &mut Vec<String>) {
        let Some(text) = modules.get(path) else { return };
        if !seen.insert(path.to_owned()) {
            return;
        }
        for import in modules::imports(text) {
            visit(&modules::resolve(path, import), modules, seen, order);
        }
        order.push(path.to_owned());
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    visit(entry, modules, &mut seen, &mut order);
    order
}

/// Returns the libraries that a page's script imports.
pub(crate) fn libraries(entry: &str, modules: &Modules) -> Vec<String> {
    order(entry, modules).into_iter().filter(|path| path.starts_with(SHARED_LIBRARY)).collect()
}

/// Returns the script of the page whose module is `entry`.
pub(crate) fn bundle(entry: &str, modules: &Modules) -> String {
    let root = "../".repeat(entry.matches('/').count());
    let mut bundle = String::new();
    for path in order(entry, modules) {
        let Some(text) = modules.get(&path) else { continue };
        if is_own_file(&path) {
            bundle.push_str(&format!("import * as {} from \"{root}{path}\";\n", variable(&path)));
        } else {
            bundle.push_str(&scoped(&path, text));
        }
    }
    bundle
}

fn variable(path: &str) -> String {
    format!("m_{}", path.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_"))
}

/// Returns a module as a constant with its exports. The modules that it imports must precede it.
fn scoped(path: &str, module: &str) -> String {
    let mut exports: Vec<String> = Vec::new();
    let mut body = String::new();
    for line in module.lines() {
        if let Some(import) = line.strip_prefix("import ") {
            body.push_str(&constants(path, import));
        } else if let Some(rest) = line.strip_prefix("export ") {
            exports.extend(exported(rest).map(str::to_owned));
            body.push_str(rest);
        } else {
            body.push_str(line);
        }
        body.push('\n');
    }
    let name = variable(path);
    format!("// {path}\nconst {name} = (() => {{\n{body}return {{ {} }};\n}})();\n", exports.join(", "))
}

/// Returns the constants that replace an import, `NAMES from "PATH";`.
fn constants(importer: &str, import: &str) -> String {
    let Some((names, from)) = import.trim_end_matches("\";").rsplit_once(" from \"") else {
        return String::new();
    };
    let from = variable(&modules::resolve(importer, from));
    if names.starts_with('{') {
        format!("const {names} = {from};")
    } else {
        format!("const {names} = {from}.default;")
    }
}

fn exported(declaration: &str) -> Option<&str> {
    let declaration = declaration.strip_prefix("async ").unwrap_or(declaration);
    let rest = ["function ", "const ", "class "].iter().find_map(|word| declaration.strip_prefix(word))?;
    rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        BTreeMap::from([
            text(
                "site/page.js",
                "// A page.\nimport { g } from \"./first_requests.js\";\nimport { a, f } from \"../shared/a.js\";\nimport P from \"../uplot/m.js\";\nf(a, P);\n",
            ),
            text(
                "shared/a.js",
                "import { b } from \"./b.js\";\nexport const a = b;\nexport async function f() {}\n",
            ),
            text("shared/b.js", "export const b = 1;\nconst c = 2;\n"),
            text("site/first_requests.js", "export const g = 1;\n"),
            text("uplot/m.js", "export default 1;\n"),
            text("site/other.js", ""),
        ])
    }

    #[test]
    fn modules_precede_those_that_import_them_and_keep_their_own_names() {
        let expected = "import * as m_site_first_requests_js from \"../site/first_requests.js\";\n\
            // shared/b.js\nconst m_shared_b_js = (() => {\nconst b = 1;\nconst c = 2;\nreturn { b };\n})();\n\
            // shared/a.js\nconst m_shared_a_js = (() => {\nconst { b } = m_shared_b_js;\nconst a = b;\nasync function f() {}\nreturn { a, f };\n})();\n\
            import * as m_uplot_m_js from \"../uplot/m.js\";\n\
            // site/page.js\nconst m_site_page_js = (() => {\n// A page.\nconst { g } = m_site_first_requests_js;\nconst { a, f } = m_shared_a_js;\nconst P = m_uplot_m_js.default;\nf(a, P);\nreturn {  };\n})();\n";
        assert_eq!(bundle("site/page.js", &modules()), expected);
        assert_eq!(libraries("site/page.js", &modules()), ["uplot/m.js"]);
    }
}
