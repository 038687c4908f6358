//! Modules of JavaScript: their imports, and their parts without `import` and `export`, for a script that is
//! one text. Pure.
//!
//! Modules have one form of import, `import NAMES from "./FILE.js";` on one line, so that the imports are
//! known without a parser.

/// Returns the paths as the module writes them.
pub(crate) fn imports(module: &str) -> impl Iterator<Item = &str> {
    module
        .lines()
        .filter_map(|line| line.strip_prefix("import ")?.strip_suffix("\";")?.rsplit_once('"'))
        .map(|(_, path)| path)
}

/// Returns the module as a part of a script that contains those that it imports.
pub(crate) fn inlined(module: &str) -> String {
    let lines = module.lines().filter(|line| !line.starts_with("import "));
    lines.map(|line| format!("{}\n", line.strip_prefix("export ").unwrap_or(line))).collect()
}

/// Both paths and the result are relative to the same directory.
pub(crate) fn resolve(importer: &str, import: &str) -> String {
    let mut parts: Vec<&str> = importer.split('/').collect();
    parts.pop();
    for part in import.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "// A module.\nimport { a, b } from \"./x.js\";\nimport c from \"../y/z.js\";\nexport const d = 1;\nlet e;\n";

    #[test]
    fn imports_are_found_and_taken_out() {
        assert_eq!(imports(MODULE).collect::<Vec<_>>(), ["./x.js", "../y/z.js"]);
        assert_eq!(inlined(MODULE), "// A module.\nconst d = 1;\nlet e;\n");
        assert_eq!(resolve("site/job.js", "./x.js"), "site/x.js");
        assert_eq!(resolve("site/job.js", "../y/z.js"), "y/z.js");
    }
}
