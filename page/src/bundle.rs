//! One script of a page, which contains the modules that it imports: a browser asks for it once, not for each
//! module. What few visits need is in scripts of their own, which the page loads later. Pure.

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
    let order = order(entry, modules);
    let mut bundle = joined(entry, &order, modules);
    let mut contained: Vec<String> = Vec::new();
    for path in order.iter().filter(|path| !is_own_file(path)) {
        contained.push(variable(path));
    }
    if !later(entry, modules).is_empty() {
        bundle.push_str(&format!("export {{ {} }};\n", contained.join(", ")));
    }
    let (before, _) = modules::LATER;
    bundle.replace(before, &format!("{before}{}.", stem(entry)))
}

/// Returns the paths and texts of the scripts that a page loads later. They use the page's own modules, so that
/// there is one of each.
pub(crate) fn later(entry: &str, modules: &Modules) -> Vec<(String, String)> {
    let of_page = order(entry, modules);
    let mut scripts = Vec::new();
    for importer in &of_page {
        let Some(text) = modules.get(importer) else { continue };
        for name in modules::later_imports(text) {
            let path = modules::resolve(importer, &format!("./{name}"));
            let script = later_script(entry, &path, &of_page, modules);
            scripts.push((format!("site/{}.{name}", stem(entry)), script));
        }
    }
    scripts
}

fn later_script(entry: &str, path: &str, of_page: &[String], modules: &Modules) -> String {
    let (of_both, own): (Vec<String>, Vec<String>) =
        order(path, modules).into_iter().partition(|path| of_page.contains(path) && !is_own_file(path));
    let names: Vec<String> = of_both.iter().map(|path| variable(path)).collect();
    let exports: Vec<&str> = modules.get(path).map(|text| exports(text).collect()).unwrap_or_default();
    format!(
        "import {{ {} }} from \"./{}.js\";\n{}export const {{ {} }} = {};\n",
        names.join(", "),
        stem(entry),
        joined(path, &own, modules),
        exports.join(", "),
        variable(path),
    )
}

/// Name of a page's module without its directory and ending.
fn stem(entry: &str) -> &str {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    name.strip_suffix(".js").unwrap_or(name)
}

/// Joins modules, each of which follows those that it imports.
fn joined(entry: &str, order: &[String], modules: &Modules) -> String {
    let root = "../".repeat(entry.matches('/').count());
    let mut joined = String::new();
    for path in order {
        let Some(text) = modules.get(path) else { continue };
        if is_own_file(path) {
            joined.push_str(&format!("import * as {} from \"{root}{path}\";\n", variable(path)));
        } else {
            joined.push_str(&scoped(path, &modules::compact(text)));
        }
    }
    joined
}

fn variable(path: &str) -> String {
    format!("m_{}", path.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_"))
}

/// Returns a module as a constant with its exports. The modules that it imports must precede it.
fn scoped(path: &str, module: &str) -> String {
    let exports: Vec<&str> = exports(module).collect();
    let mut body = String::new();
    for line in module.lines() {
        match line.strip_prefix("import ") {
            Some(import) => body.push_str(&constants(path, import)),
            None => body.push_str(line.strip_prefix("export ").unwrap_or(line)),
        }
        body.push('\n');
    }
    let name = variable(path);
    format!("const {name} = (() => {{\n{body}return {{ {} }};\n}})();\n", exports.join(", "))
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

/// Returns the names that a module exports.
fn exports(module: &str) -> impl Iterator<Item = &str> {
    module.lines().filter_map(|line| line.strip_prefix("export ")).filter_map(exported)
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
            const m_shared_b_js = (() => {\nconst b = 1;\nconst c = 2;\nreturn { b };\n})();\n\
            const m_shared_a_js = (() => {\nconst { b } = m_shared_b_js;\nconst a = b;\nasync function f() {}\nreturn { a, f };\n})();\n\
            import * as m_uplot_m_js from \"../uplot/m.js\";\n\
            const m_site_page_js = (() => {\nconst { g } = m_site_first_requests_js;\nconst { a, f } = m_shared_a_js;\nconst P = m_uplot_m_js.default;\nf(a, P);\nreturn {  };\n})();\n";
        assert_eq!(bundle("site/page.js", &modules()), expected);
        assert_eq!(libraries("site/page.js", &modules()), ["uplot/m.js"]);
    }

    #[test]
    fn what_a_page_loads_later_uses_the_modules_of_the_page() {
        let mut modules = modules();
        modules.insert(
            "site/page.js".into(),
            "import { b } from \"../shared/b.js\";\nimport(\"./later.js\");\n".into(),
        );
        modules.insert(
            "site/later.js".into(),
            "import { a } from \"../shared/a.js\";\nexport function h() { return a; }\n".into(),
        );
        let page = bundle("site/page.js", &modules);
        assert!(page.contains("import(\"./page.later.js\")") && !page.contains("m_shared_a_js"), "{page}");
        assert!(page.ends_with("export { m_shared_b_js, m_site_page_js };\n"), "{page}");
        let [(path, script)] = later("site/page.js", &modules).try_into().unwrap();
        assert_eq!(path, "site/page.later.js");
        assert_eq!(
            script,
            "import { m_shared_b_js } from \"./page.js\";\n\
            const m_shared_a_js = (() => {\nconst { b } = m_shared_b_js;\nconst a = b;\nasync function f() {}\nreturn { a, f };\n})();\n\
            const m_site_later_js = (() => {\nconst { a } = m_shared_a_js;\nfunction h() { return a; }\nreturn { h };\n})();\n\
            export const { h } = m_site_later_js;\n"
        );
    }
}
