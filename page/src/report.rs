//! Page of a report: its script and style, and the policy that permits only them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Parts after those that pages share, each after those on which it depends.
const SCRIPT: [&str; 3] = [
    include_str!("../assets/report/data.js"),
    include_str!("../assets/report/distribution.js"),
    include_str!("../assets/report/main.js"),
];

pub fn style() -> String {
    format!("{}\n{}", crate::UPLOT_STYLE, crate::SHARED_STYLE)
}

pub fn script() -> String {
    crate::script_of(&SCRIPT)
}

/// Loads nothing, and applies only this style and this script.
pub fn policy(style: &str, script: &str) -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    )
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(crate::digest(text)))
}
