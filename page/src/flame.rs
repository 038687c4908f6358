//! The page of a flame graph: its script and style.

use crate::modules;

/// The parts of the script, in the order in which they depend on each other.
const SCRIPT: [&str; 6] = [
    include_str!("../assets/shared/text.js"),
    include_str!("../assets/shared/theme.js"),
    include_str!("../assets/flame/graph.js"),
    include_str!("../assets/flame/table.js"),
    include_str!("../assets/flame/view.js"),
    include_str!("../assets/flame/main.js"),
];

/// The style of a flame graph with its table.
pub(crate) const STYLE: &str = include_str!("../assets/flame/flame.css");

pub fn style() -> String {
    format!("{}\n{STYLE}", crate::SHARED_STYLE)
}

/// Returns the script, which draws the data in the element `flame-data` into the element `flame`.
pub fn script() -> String {
    let parts: String = SCRIPT.into_iter().map(modules::inlined).collect();
    format!("(() => {{\n\"use strict\";\n{parts}}})();\n")
}
