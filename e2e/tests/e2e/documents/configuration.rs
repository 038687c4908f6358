//! The files that follow from the declarations of configuration keys: the examples, and the keys that the
//! NixOS modules read.

use std::fmt::Write;

use polymeter_service::keys::{Doc, Kind, Stated, docs};
use serde_json::{Map, Value, json};

/// Greatest length of a line in the head of an example, in characters.
const COLUMNS: usize = 104;

pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) head: &'static str,
    pub(super) docs: Vec<&'static Doc>,
    pub(super) faults: fn(&str) -> String,
}

pub(super) fn programs() -> [Program; 2] {
    use polymeter_agent::config::{AgentConfig, HEAD, KEYS};
    use polymeter_collector::config as collector;

    [
        Program {
            name: "agent",
            head: HEAD,
            docs: docs(KEYS),
            faults: |text| {
                AgentConfig::parse("a".as_ref(), text).map_or_else(|all| all.to_string(), |_| String::new())
            },
        },
        Program {
            name: "collector",
            head: collector::HEAD,
            docs: docs(collector::KEYS),
            faults: |text| collector::check("c".as_ref(), text).to_string(),
        },
    ]
}

pub(super) fn example(program: &Program) -> String {
    let mut text = String::new();
    let at_once = program.docs.iter().filter(|doc| doc.changes_at_once).flat_map(|doc| doc.keys);
    let mut at_once: Vec<String> = at_once
        .map(|key| match key.kind {
            Kind::Table(_) | Kind::Periods => format!("[{}]", key.name),
            Kind::Tables => format!("[[{}]]", key.name),
            Kind::Text(_) | Kind::Texts | Kind::Flag | Kind::Integer(..) | Kind::OneOf(_) => {
                key.name.to_owned()
            }
        })
        .collect();
    let last = at_once.pop().unwrap();
    let head = format!(
        "{} SIGHUP reloads it: {} and {last} change at once. Changes of other keys require a restart; the log \
         names them.",
        program.head,
        at_once.join(", ")
    );
    for paragraph in head.split("\n\n") {
        let mut line = "#".to_owned();
        for word in paragraph.split(' ') {
            if line.len() + 1 + word.len() > COLUMNS {
                writeln!(text, "{line}").unwrap();
                "#".clone_into(&mut line);
            }
            write!(line, " {word}").unwrap();
        }
        write!(text, "{line}\n#\n").unwrap();
    }
    text.truncate(text.len() - "#\n".len());
    add_table(&mut text, "", &program.docs);
    text
}

fn add_table(text: &mut String, path: &str, docs: &[&Doc]) {
    for doc in docs {
        if !doc.text.is_empty() {
            text.push('\n');
        }
        for line in doc.text {
            writeln!(text, "#{line}").unwrap();
        }
        for key in doc.keys {
            let path = format!("{path}{}", key.name);
            let comment = if matches!(key.stated, Stated::Set(_)) { "" } else { "# " };
            if let Kind::Table(inner) = key.kind {
                writeln!(text, "{comment}[{path}]").unwrap();
                add_table(text, &format!("{path}."), &inner());
            } else if matches!(key.kind, Kind::Tables) {
                writeln!(text, "{comment}[[{path}]]\n{}", key.toml().trim_end()).unwrap();
            } else if matches!(key.kind, Kind::Periods) {
                writeln!(text, "{comment}[{path}]\n{}", key.toml().trim_end()).unwrap();
            } else {
                writeln!(text, "{comment}{} = {}", key.name, key.toml()).unwrap();
            }
        }
    }
}

/// Keys of a table for `nix/modules/settings.nix`: the type, the description, and an example as TOML. `about`
/// describes those without a text.
pub(super) fn nix_options(docs: &[&Doc], about: &str) -> Value {
    let mut options = Map::new();
    let mut description = about.to_owned();
    for doc in docs {
        if !doc.text.is_empty() {
            description = doc.text.concat().trim().to_owned();
        }
        for key in doc.keys {
            let kind = match key.kind {
                Kind::Text(name) => json!(name),
                Kind::Texts => json!("strings"),
                Kind::Flag => json!("flag"),
                Kind::Integer(from, to) => json!({"from": from, "to": to}),
                Kind::OneOf(words) => json!({"words": words}),
                Kind::Periods => json!("periods"),
                Kind::Tables => json!("tables"),
                Kind::Table(inner) => {
                    options.insert(key.name.to_owned(), nix_options(&inner(), &description));
                    continue;
                }
            };
            let mut option = json!({"type": kind, "description": description});
            if !matches!(key.kind, Kind::Periods | Kind::Tables) {
                option["example"] = json!(key.toml());
            }
            options.insert(key.name.to_owned(), option);
        }
    }
    Value::Object(options)
}

/// Adds each word that a key can have, as a line of a file, with the key and the head of its table.
pub(super) fn add_words(lines: &mut Vec<(&'static str, String)>, head: &str, docs: &[&'static Doc]) {
    for key in docs.iter().flat_map(|doc| doc.keys) {
        if let Kind::OneOf(words) = key.kind {
            lines.extend(words.iter().map(|word| (key.name, format!("{head}{} = {word:?}\n", key.name))));
        } else if let Kind::Table(inner) = key.kind {
            add_words(lines, &format!("[{}]\n", key.name), &inner());
        }
    }
}
