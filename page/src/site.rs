//! Pages that a server sends: documents, modules and a style, all in the binary.
//!
//! The documents have no data. Their scripts ask the HTTP API of the same server for it; each contains the
//! modules of its page without their comments. The modules are served one by one, too. The path of everything
//! else contains a digest of all of it, so that a browser keeps it until the program changes. All links are
//! relative: the pages work below any path of a proxy.

use std::collections::BTreeMap;

use crate::bundle;

/// File that a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path without the first slash; empty for the overview.
    pub path: String,
    pub media_type: &'static str,
    pub body: String,
    /// Value of the header `ETag`.
    pub etag: String,
    /// True if the contents of this path never change.
    pub is_immutable: bool,
}

/// Policy of the documents: only modules and styles of the same server apply, data comes only from there, and
/// no text can become markup or a program.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Path, title, and the module that fills the document.
const DOCUMENTS: [(&str, &str, &str); 6] = [
    ("", "Jobs", "site/overview.js"),
    ("job", "Job", "site/job.js"),
    ("node", "Node", "site/node.js"),
    ("compare", "Compare", "site/compare.js"),
    ("trend", "Trend", "site/trend.js"),
    ("status", "Measurement", "site/status.js"),
];

const DOCUMENT: &str = include_str!("../assets/site/document.html");
const ICON: &str = include_str!("../assets/site/icon.svg");
const STYLE: &str = include_str!("../assets/site/site.css");

macro_rules! modules {
    ($($path:literal)*) => { &[$(($path, include_str!(concat!("../assets/", $path)))),*] };
}

/// Path and text of each module.
const MODULES: &[(&str, &str)] = modules![
    "flame/graph.js"
    "flame/table.js"
    "flame/view.js"
    "shared/axis.js"
    "shared/controls.js"
    "shared/course.js"
    "shared/heat_map.js"
    "shared/text.js"
    "shared/theme.js"
    "site/agent_health.js"
    "site/agent_table.js"
    "site/api.js"
    "site/arrays.js"
    "site/chart_menu.js"
    "site/charts.js"
    "site/columns.js"
    "site/compare.js"
    "site/compared_charts.js"
    "site/compared_facts.js"
    "site/compared_functions.js"
    "site/comparison_table.js"
    "site/completeness.js"
    "site/course_loader.js"
    "site/event_stream.js"
    "site/figure_tables.js"
    "site/filters.js"
    "site/findings.js"
    "site/firings.js"
    "site/first_requests.js"
    "site/folded_charts.js"
    "site/folded_rows.js"
    "site/follow_values.js"
    "site/frame.js"
    "site/functions.js"
    "site/heat_rows.js"
    "site/job.js"
    "site/job_cores.js"
    "site/job_course.js"
    "site/job_head.js"
    "site/job_quantities.js"
    "site/job_rows.js"
    "site/job_text.js"
    "site/live.js"
    "site/live_course.js"
    "site/live_values.js"
    "site/marks.js"
    "site/meters.js"
    "site/metric_quantities.js"
    "site/metric_table.js"
    "site/node.js"
    "site/node_charts.js"
    "site/node_ends.js"
    "site/node_map.js"
    "site/node_quantities.js"
    "site/node_values.js"
    "site/overview.js"
    "site/part_panels.js"
    "site/periods.js"
    "site/plan_rows.js"
    "site/queue.js"
    "site/rate_control.js"
    "site/reasons.js"
    "site/region_table.js"
    "site/repeat.js"
    "site/roofline.js"
    "site/run_panel.js"
    "site/sampling.js"
    "site/session.js"
    "site/sign_in.js"
    "site/sparkline.js"
    "site/status.js"
    "site/summaries.js"
    "site/summed.js"
    "site/tabs.js"
    "site/tiles.js"
    "site/trend.js"
    "site/trend_charts.js"
];

/// `quantities` is the JSON form of the important quantities of a job.
pub fn files(quantities: &str) -> Vec<File> {
    let modules = all_modules(quantities);
    let style = format!("{}\n{}\n{}\n{STYLE}", crate::UPLOT_STYLE, crate::SHARED_STYLE, crate::flame::STYLE);
    let style = crate::modules::compact(&style);
    let mut everything: Vec<(String, &'static str, String)> = modules
        .iter()
        .map(|(path, text)| {
            let is_page = DOCUMENTS.iter().any(|(_, _, entry)| *entry == path);
            let script = if is_page { bundle::bundle(path, &modules) } else { text.clone() };
            (path.clone(), "text/javascript; charset=utf-8", script)
        })
        .collect();
    for (_, _, entry) in DOCUMENTS {
        let later = bundle::later(entry, &modules);
        everything
            .extend(later.into_iter().map(|(path, script)| (path, "text/javascript; charset=utf-8", script)));
    }
    everything.push(("style.css".to_owned(), "text/css; charset=utf-8", style));
    everything.push(("icon.svg".to_owned(), "image/svg+xml", ICON.to_owned()));
    let all: String = everything.iter().map(|(path, _, text)| format!("{path}\0{text}\0")).collect();
    let directory = format!("assets/{}", short(&all));
    let documents = DOCUMENTS.iter().map(|(path, title, entry)| {
        let body = document(&directory, title, entry, &modules);
        File {
            path: (*path).to_owned(),
            media_type: "text/html; charset=utf-8",
            etag: etag(&body),
            body,
            is_immutable: false,
        }
    });
    let assets = everything.into_iter().map(|(path, media_type, body)| File {
        path: format!("{directory}/{path}"),
        media_type,
        etag: etag(&body),
        body,
        is_immutable: true,
    });
    documents.chain(assets).collect()
}

/// Modules by path: those of the source tree, and those that are made of other files.
fn all_modules(quantities: &str) -> BTreeMap<String, String> {
    let mut modules: BTreeMap<String, String> =
        MODULES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    modules
        .insert("uplot/module.js".to_owned(), format!("{}export default uPlot;\n", crate::licensed_uplot()));
    let quantities =
        format!("// The important quantities of a job.\n\nexport const QUANTITIES = {quantities};\n");
    modules.insert("site/quantities.js".to_owned(), quantities);
    modules
}

/// Writes a document. It lists the libraries that its script imports, so that they are loaded at once, and
/// the module with the first requests.
fn document(directory: &str, title: &str, entry: &str, modules: &BTreeMap<String, String>) -> String {
    let preloads: String = bundle::libraries(entry, modules)
        .iter()
        .map(|path| format!("<link rel=\"modulepreload\" href=\"{directory}/{path}\">\n"))
        .collect();
    DOCUMENT
        .replace("{title}", title)
        .replace("{assets}", directory)
        .replace("{entry}", entry)
        .replace("{first}", bundle::FIRST)
        .replace("{preloads}", preloads.trim_end())
}

fn short(text: &str) -> String {
    crate::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn etag(text: &str) -> String {
    format!("\"{}\"", short(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::modules;

    fn names() -> BTreeSet<String> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let of = |directory: &'static str| {
            let entries = std::fs::read_dir(root.join(directory)).unwrap();
            let names =
                entries.map(move |entry| format!("{directory}/{}", entry.unwrap().file_name().display()));
            names.filter(|name| name.ends_with(".js"))
        };
        of("shared").chain(of("site")).collect()
    }

    /// Returns all modules that a module imports, directly or not.
    fn closure(entry: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![entry.to_owned()];
        while let Some(path) = open.pop() {
            let Some(text) = modules.get(&path) else { continue };
            let imports = modules::imports(text).map(|import| modules::resolve(&path, import));
            open.extend(imports.filter(|import| found.insert(import.clone())));
        }
        found
    }

    #[test]
    fn each_module_is_served_imports_what_exists_and_is_used() {
        let modules = all_modules("[]");
        let mut used: BTreeSet<String> = DOCUMENTS.iter().map(|(_, _, entry)| (*entry).to_owned()).collect();
        for (path, text) in &modules {
            for import in modules::imports(text).map(|import| modules::resolve(path, import)) {
                assert!(modules.contains_key(&import), "{path} imports {import}");
                assert_ne!(&import, path);
                used.insert(import);
            }
            for name in modules::later_imports(text) {
                let later = modules::resolve(path, &format!("./{name}"));
                assert!(modules.contains_key(&later), "{path} loads {later}");
                used.insert(later);
            }
        }
        assert_eq!(used, modules.keys().cloned().collect());
        assert!(names().is_subset(&used), "{:?}", names().difference(&used));
    }

    #[test]
    fn names_that_are_imported_are_exported() {
        let modules = all_modules("[]");
        for (path, text) in &modules {
            for line in text.lines().filter(|line| line.starts_with("import {")) {
                let names = line.split(['{', '}']).nth(1).unwrap().split(',').map(str::trim);
                let from = modules::resolve(path, modules::imports(line).next().unwrap());
                for name in names {
                    let is_export = |line: &str| {
                        let declared =
                            line.strip_prefix("export ").unwrap_or("").trim_start_matches("async ");
                        let rest = ["function ", "const ", "let ", "class "]
                            .iter()
                            .find_map(|word| declared.strip_prefix(word));
                        rest.is_some_and(|rest| {
                            rest.strip_prefix(name)
                                .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                        })
                    };
                    assert!(modules[&from].lines().any(is_export), "{path}: {from} exports no {name}");
                }
            }
        }
    }

    #[test]
    fn no_module_depends_on_itself() {
        let modules = all_modules("[]");
        for path in modules.keys() {
            assert!(!closure(path, &modules).contains(path), "{path}");
        }
    }

    /// Comments are left out line by line.
    #[test]
    fn no_text_of_a_module_has_several_lines() {
        for (path, text) in all_modules("[]").iter().filter(|(path, _)| !path.starts_with("uplot/")) {
            for line in text.lines().filter(|line| !line.contains("\"`\"")) {
                assert!(line.matches('`').count() % 2 == 0, "{path}: {line}");
            }
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup() {
        for file in files("[]").iter().filter(|file| !file.path.contains("/uplot/")) {
            // The namespace of SVG is a name, not an address.
            let body = file.body.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "url(", "@import", "style=\"", "onclick"] {
                assert!(!body.contains(word), "{}: {word}", file.path);
            }
            crate::tests::interprets_no_text(&file.path, &file.body);
        }
    }

    #[test]
    fn documents_refer_to_files() {
        let files = files("[]");
        let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths.len(), files.len());
        for document in files.iter().filter(|file| !file.is_immutable) {
            let references = document.body.split("assets/").skip(1).filter_map(|rest| rest.split('"').next());
            let mut count = 0;
            for reference in references {
                assert!(paths.contains(format!("assets/{reference}").as_str()), "{reference}");
                count += 1;
            }
            assert!(count > 3 && !document.body.contains('{'), "{}", document.body);
        }
    }
}
