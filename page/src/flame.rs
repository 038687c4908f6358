//! Page of a flame graph: its script and style.

use crate::modules;

/// Parts of the script, each after those on which it depends.
const SCRIPT: [&str; 6] = [
    include_str!("../assets/shared/text.js"),
    include_str!("../assets/shared/theme.js"),
    include_str!("../assets/flame/graph.js"),
    include_str!("../assets/flame/table.js"),
    include_str!("../assets/flame/view.js"),
    include_str!("../assets/flame/main.js"),
];

pub(crate) const STYLE: &str = include_str!("../assets/flame/flame.css");

pub fn style() -> String {
    format!("{}\n{STYLE}", crate::SHARED_STYLE)
}

/// Draws the data in the element `flame-data` into the element `flame`.
pub fn script() -> String {
    let parts: String = SCRIPT.into_iter().map(modules::inlined).collect();
    format!("(() => {{\n\"use strict\";\n{parts}}})();\n")
}
