//! Tests of the documents: links and anchors resolve, the book's summary is complete, and one concept has one
//! term.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_structure::{members, root};

/// Directories that contain no documents of this project.
const LEFT_OUT: [&str; 5] = ["target", ".git", "results", "fixtures", "corpus"];

const WORDS_MAX: [(&str, usize); 3] =
    [("README.md", 400), ("ARCHITECTURE.md", 1_500), ("CONTRIBUTING.md", 1_200)];

/// Makes a path relative to the workspace, for messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !LEFT_OUT.contains(&name) {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), "md", &mut found);
    found.sort();
    found
}

fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            // Text between single backquotes is code, too.
            prose.extend(line.split('`').step_by(2));
        }
        prose.push('\n');
    }
    prose
}

/// Links of a document: the line number and the target in parentheses.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        for part in line.split("](").skip(1).filter(|_| !is_code) {
            if let Some((link, _)) = part.split_once(')') {
                links.push((number, link.to_owned()));
            }
        }
    }
    links
}

/// Anchors that GitHub and mdBook derive from a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

#[test]
fn links_and_anchors_resolve() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (line, link) in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let is_wrong = !target.exists()
                || (!anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if is_wrong {
                wrong.push(format!("{}:{line}: {link}", shown(&document)));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// Documents for developers. The paths in their code spans must exist in the tree.
const MAPS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/explanation/decisions.md"];

#[test]
fn named_files_exist() {
    let members = members(&root());
    let mut maps: Vec<PathBuf> = MAPS.iter().map(|document| root().join(document)).collect();
    files(&root().join("docs/extend"), "md", &mut maps);
    let mut wrong = Vec::new();
    for document in maps {
        let text = fs::read_to_string(&document).unwrap();
        let document = shown(&document);
        for (number, line) in (1..).zip(text.lines()) {
            for span in line.split('`').skip(1).step_by(2) {
                let is_path = !span.contains([' ', '*', '=', ':', '…'])
                    && !span.contains(|c: char| c.is_ascii_uppercase())
                    && members.iter().any(|member| span.starts_with(&format!("{member}/")));
                if is_path && !root().join(span).exists() {
                    wrong.push(format!("{document}:{number}: {span}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "files that are not there:\n{}", wrong.join("\n"));
}

#[test]
fn summary_lists_every_page_of_the_book() {
    let book = root().join("docs");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|(_, link)| book.join(link)).collect();
    let mut pages = Vec::new();
    files(&book, "md", &mut pages);
    let pages: BTreeSet<PathBuf> = pages.into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md and the files of docs/ differ");
}

#[test]
fn first_pages_are_short() {
    for (name, words_max) in WORDS_MAX {
        let text = fs::read_to_string(root().join(name)).unwrap();
        // Every second part is an example.
        let words: usize = text.split("```").step_by(2).map(|part| part.split_whitespace().count()).sum();
        assert!(words <= words_max, "{name} has {words} words, not at most {words_max}");
    }
}

/// Words that were replaced, and the terms that replace them.
const REPLACED: &[(&str, &str)] = &[
    ("allowance", "token bucket"),
    ("because of whom", "origin, or reason"),
    ("doorbell", "event fd"),
    ("ends with it", "name what ends"),
    ("goes well", "name the state"),
    ("her job", "the owner's job"),
    ("hers", "the owner's"),
    ("knock", "handshake failure"),
    ("lookout", "exit watcher"),
    ("nobody", "name the component or the user"),
    ("she", "the user, or the owner"),
    ("somebody", "name the component or the user"),
    ("whoever", "name the component or the user"),
    ("wish", "sampling request"),
    ("wishes", "sampling request"),
];

fn replaced(line: &str) -> Vec<String> {
    let line = line.to_lowercase();
    let found = REPLACED.iter().filter(|(word, _)| has_word(&line, word));
    found.map(|(word, instead)| format!("`{word}`: {instead}")).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next())
    })
}

#[test]
fn documents_use_one_word_for_one_concept() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (number, line) in (1..).zip(prose(&text).lines()) {
            wrong.extend(replaced(line).iter().map(|word| format!("{}:{number}: {word}", shown(&document))));
        }
    }
    assert!(wrong.is_empty(), "words that were replaced:\n{}", wrong.join("\n"));
}

/// String literals of a file outside its tests. `POLYMETER_COMMENTS=1` adds the doc comments.
fn literals(file: &Path) -> Vec<String> {
    struct Literals(Vec<String>);
    impl<'ast> syn::visit::Visit<'ast> for Literals {
        fn visit_item(&mut self, item: &'ast syn::Item) {
            if !polymeter_structure::modules::is_test_item(item) {
                syn::visit::visit_item(self, item);
            }
        }
        fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
            if !attribute.path().is_ident("doc") || std::env::var_os("POLYMETER_COMMENTS").is_some() {
                syn::visit::visit_attribute(self, attribute);
            }
        }
        fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
            self.0.push(literal.value());
        }
        fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
            let tokens = invocation.tokens.to_string();
            self.0.extend(tokens.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let parsed = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
    let mut literals = Literals(Vec::new());
    syn::visit::Visit::visit_file(&mut literals, &parsed);
    literals.0
}

#[test]
fn messages_use_one_word_for_one_concept() {
    let mut wrong = Vec::new();
    for member in members(&root()) {
        let mut sources = Vec::new();
        files(&root().join(member).join("src"), "rs", &mut sources);
        for file in sources.iter().filter(|file| !file.ends_with("tests.rs")) {
            for literal in literals(file) {
                wrong.extend(
                    replaced(&literal).iter().map(|word| format!("{}: {word}: {literal:.80}", shown(file))),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "words that were replaced:\n{}", wrong.join("\n"));
}
