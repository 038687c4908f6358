//! The structure that ARCHITECTURE.md describes: no import cycles, and imports in the permitted directions
//! only.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a fault of a test is a failed test")]

use std::sync::LazyLock;

use polymeter_structure::{Workspace, check, root, rules};

static WORKSPACE: LazyLock<Workspace> = LazyLock::new(|| Workspace::read(&root()));

fn assert_none(title: &str, found: &[String]) {
    assert!(found.is_empty(), "{title}:\n{}", found.join("\n"));
}

#[test]
fn modules_import_without_cycles() {
    assert_none("modules that import each other", &check::cycles(&WORKSPACE));
}

#[test]
fn crates_depend_in_one_direction() {
    assert_none("see CRATES in rules.rs", &check::dependencies(&WORKSPACE, rules::CRATES));
}

#[test]
fn modules_import_in_one_direction() {
    assert_none("see STAGES in rules.rs", &check::directions(&WORKSPACE, rules::STAGES));
}

#[test]
fn modules_use_nothing_that_is_forbidden_to_them() {
    assert_none("see FORBIDDEN in rules.rs", &check::forbidden(&WORKSPACE, rules::FORBIDDEN));
}

#[test]
fn import_graphs_are_those_of_the_code() {
    let explanation = root().join("docs/explanation");
    assert_none("`make import-graph` draws them", &check::drawings(&WORKSPACE, &explanation.join("imports")));
    let page = std::fs::read_to_string(explanation.join("imports.md")).unwrap();
    for name in polymeter_structure::draw::all(&WORKSPACE).keys() {
        assert!(
            page.contains(&format!("(imports/{name})")),
            "docs/explanation/imports.md does not show {name}"
        );
    }
}
