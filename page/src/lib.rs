//! Style and scripts of pages: the pages of a report and of a flame graph, which are one file each (`report`,
//! `flame`), and the pages that the collector serves (`site`).
//!
//! The library for charts, the colours and the code that draws are shared by all pages (`assets/uplot`,
//! `assets/shared`). There is no build step: modules are served as they are, and concatenated for the page of
//! a report. Pure.

mod bundle;
pub mod flame;
mod modules;
pub mod report;
pub mod site;

use sha2::{Digest, Sha256};

/// Charts: assets/uplot/README.md.
const UPLOT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("../assets/uplot/LICENSE");

const SHARED_STYLE: &str = include_str!("../assets/shared/page.css");

/// Parts that all scripts share, each after those on which it depends.
const SHARED_SCRIPT: [&str; 6] = [
    include_str!("../assets/shared/text.js"),
    include_str!("../assets/shared/theme.js"),
    include_str!("../assets/shared/axis.js"),
    include_str!("../assets/shared/controls.js"),
    include_str!("../assets/shared/course.js"),
    include_str!("../assets/shared/heat_map.js"),
];

fn licensed_uplot() -> String {
    // The first line is a comment with an address; the licence replaces it.
    let uplot = UPLOT.split_once('\n').map_or(UPLOT, |(_, rest)| rest);
    format!("/* uPlot 1.6.32\n{UPLOT_LICENSE}*/\n{uplot}\n")
}

/// Joins the library, the shared parts and the parts of one page to a script.
fn script_of(parts: &[&str]) -> String {
    let shared: String = SHARED_SCRIPT.into_iter().map(modules::inlined).collect();
    format!("{}(() => {{\n\"use strict\";\n{shared}{}}})();\n", licensed_uplot(), parts.concat())
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_has_the_checksums_of_its_description() {
        let readme = include_str!("../assets/uplot/README.md");
        for file in [UPLOT, UPLOT_STYLE] {
            let digest: String = digest(file).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(readme.contains(&digest), "{digest}");
        }
        assert!(UPLOT.starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.32) */\n"));
        assert!(UPLOT_LICENSE.starts_with("The MIT License") && !UPLOT_LICENSE.contains("*/"));
    }

    #[test]
    fn scripts_and_styles_do_not_end_their_elements_and_load_nothing() {
        for script in [report::script(), flame::script()] {
            assert!(!script.contains("</script") && !script.contains("<!--"));
            assert!(!script.contains("http:"));
        }
        for style in [report::style(), flame::style()] {
            assert!(!style.contains("</style") && !style.contains("http:"));
            assert!(!style.contains("url(") && !style.contains("@import"));
        }
    }

    /// Names of jobs, nodes, metrics and labels come from users: no part interprets text as markup or as a
    /// program.
    #[test]
    fn scripts_never_interpret_text() {
        for script in [report::script(), flame::script()] {
            let own = script.split_once("\"use strict\";\n").unwrap().1;
            assert!(!own.contains("\nimport ") && !own.contains("\nexport "));
            interprets_no_text("the script of a page", own);
        }
    }

    pub(crate) fn interprets_no_text(name: &str, own: &str) {
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "createContextualFragment",
            "DOMParser",
            "srcdoc",
            "eval(",
            "new Function",
            "setTimeout(\"",
            "javascript:",
        ] {
            assert!(!own.contains(sink), "{name}: {sink}");
        }
    }
}
