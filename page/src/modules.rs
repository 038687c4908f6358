//! Modules of JavaScript: their imports, and their parts without `import` and `export`, for a script that is
//! one text. Pure.
//!
//! Modules have one form of import, `import NAMES from "./FILE.js";` on one line, and load what few pages need
//! later with `import("./FILE.js")`, so that the imports are known without a parser.

/// Returns the paths as the module writes them.
pub(crate) fn imports(module: &str) -> impl Iterator<Item = &str> {
    module
        .lines()
        .filter_map(|line| line.strip_prefix("import ")?.strip_suffix("\";")?.rsplit_once('"'))
        .map(|(_, path)| path)
}

/// What precedes and follows the path of a module that is loaded later, in the same directory.
pub(crate) const LATER: (&str, &str) = ("import(\"./", "\")");

/// Returns the paths of the modules that a module loads later, without their directory.
pub(crate) fn later_imports(module: &str) -> impl Iterator<Item = &str> {
    let (before, after) = LATER;
    module.split(before).skip(1).filter_map(move |rest| rest.split_once(after)).map(|(path, _)| path)
}

/// Returns a script or a style without its comments and indentation. Comments have lines of their own, and no
/// text has several lines.
pub(crate) fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let mut is_comment = false;
    for line in text.lines().map(str::trim) {
        is_comment |= line.starts_with("/*");
        if !is_comment && !line.is_empty() && !line.starts_with("//") {
            compact.push_str(line);
            compact.push('\n');
        }
        is_comment &= !line.ends_with("*/");
    }
    compact
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
        let later = "const { a } = await import(\"./a.js\");\nconst b = import(\"./b.js\");\n";
        assert_eq!(later_imports(later).collect::<Vec<_>>(), ["a.js", "b.js"]);
        assert_eq!(resolve("site/job.js", "./x.js"), "site/x.js");
        assert_eq!(resolve("site/job.js", "../y/z.js"), "y/z.js");
    }

    #[test]
    fn comments_and_indentation_are_left_out() {
        let text = "// A comment.\n\n/** Of\n * several lines. */\nfunction f() {\n    // Inner.\n    return \"/* no */ // comment\";\n}\n/* Of one. */\nf();\n";
        assert_eq!(compact(text), "function f() {\nreturn \"/* no */ // comment\";\n}\nf();\n");
    }
}
