//! Keys of a configuration, each declared once: its name, text and default, the parser of its value, and
//! whether a running program takes over another value.
//!
//! The example configurations, the reference and the options of the NixOS modules are written from the
//! declarations, by `e2e/tests/e2e/documents/configuration.rs`.

use std::fmt;

use crate::document::{Reporter, Section, Span};

/// Key of the table that fills a `C`, or keys that depend on each other. [`keys!`](crate::keys!) declares it.
#[derive(Debug)]
pub struct Setting<C> {
    pub doc: Doc,
    pub take: fn(&mut C, Value<'_, '_, '_>),
    pub differs: fn(&C, &C) -> bool,
    /// Copies the value from the second to the first.
    pub copy: fn(&mut C, &C),
}

/// What documents say about a setting.
#[derive(Debug)]
pub struct Doc {
    /// Lines of the comment in the example, each with a leading space; none if the text of the setting before
    /// covers this one, too.
    pub text: &'static [&'static str],
    /// Keys, at least one.
    pub keys: &'static [Key],
    /// True if a running program takes over another value when it reloads the configuration; a section does
    /// so as a whole.
    pub changes_at_once: bool,
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Value in the example.
    pub stated: Stated,
}

#[derive(Debug)]
pub enum Kind {
    /// A string of a form that `nix/modules/settings.nix` names; the parser has the last word.
    Text(&'static str),
    Texts,
    Flag,
    /// Whole number, with the least and the largest.
    Integer(u64, u64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Table with keys that are not declared, each with a period.
    Periods,
    /// Array of tables, whose keys are not declared.
    Tables,
    /// Table with keys of its own: a call of [`docs`].
    Table(fn() -> Vec<&'static Doc>),
}

/// Value in the example, as TOML, or a string without its quotes. For a table, the lines below its head.
#[derive(Debug)]
pub enum Stated {
    /// Default, behind a `#`.
    Usual(&'static str),
    /// Default, or what a packaged file has in its place.
    Set(&'static str),
    /// Other value than the default, behind a `#`.
    Example(&'static str),
}

impl Key {
    pub fn toml(&self) -> String {
        let (Stated::Usual(text) | Stated::Set(text) | Stated::Example(text)) = self.stated;
        match self.kind {
            Kind::Text(_) | Kind::OneOf(_) => format!("{text:?}"),
            Kind::Texts | Kind::Flag | Kind::Integer(..) | Kind::Periods | Kind::Tables | Kind::Table(_) => {
                text.to_owned()
            }
        }
    }
}

/// Declares the settings of one table. Each has the lines of its text, its keys with their kinds and values
/// in the example, `AT_ONCE` if a running program takes over another value, and the field that the
/// expression's value replaces unless it is none.
#[macro_export]
macro_rules! keys {
    (
        $(#[$attribute:meta])*
        $visibility:vis const $table:ident: $configuration:ty = |$target:ident, $value:ident|
        $(
            $(#[doc = $text:literal])*
            $($name:literal: $kind:expr, $stated:expr);+ $(, $at_once:ident)?
                => $($field:ident).+ = $take:expr;
        )*
    ) => {
        $(#[$attribute])*
        #[allow(unused_variables, reason = "few values depend on others")]
        $visibility const $table: &[$crate::keys::Setting<$configuration>] = &[$($crate::keys::Setting {
            doc: $crate::keys::Doc {
                text: &[$($text),*],
                keys: &[$($crate::keys::Key { name: $name, kind: $kind, stated: $stated }),+],
                changes_at_once: false $(|| $crate::keys::$at_once)?,
            },
            take: |$target, $value| {
                if let Some(taken) = $take {
                    $target.$($field).+ = taken;
                }
            },
            differs: |one, other| one.$($field).+ != other.$($field).+,
            copy: |to, from| to.$($field).+.clone_from(&from.$($field).+),
        }),*];
    };
}

/// Marks settings of which a running program takes over other values.
pub const AT_ONCE: bool = true;

pub fn docs<C: 'static>(settings: impl IntoIterator<Item = &'static Setting<C>>) -> Vec<&'static Doc> {
    settings.into_iter().map(|setting| &setting.doc).collect()
}

/// Takes all settings out of a table. Keys that remain are faults.
pub fn read<C: 'static>(
    settings: impl IntoIterator<Item = &'static Setting<C>> + Clone,
    target: &mut C,
    mut section: Section<'_>,
    reporter: &mut Reporter<'_>,
) {
    for setting in settings.clone() {
        if let Some(key) = setting.doc.keys.first() {
            (setting.take)(target, Value { section: &mut section, reporter, key });
        }
    }
    section.known = settings.into_iter().flat_map(|setting| setting.doc.keys).map(|key| key.name).collect();
    section.finish(reporter);
}

/// Names of changed keys. Keys that depend on each other are joined.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Values that a running program takes over.
    pub at_once: Vec<String>,
    /// Values that stay until the program is restarted.
    pub at_restart: Vec<String>,
}

/// Takes over the values of `wanted` that can change in a running program. Returns the keys with other
/// values.
pub fn update<C>(settings: &'static [Setting<C>], running: &mut C, wanted: &C) -> Changes {
    let mut changes = Changes::default();
    for Setting { doc, differs, copy, .. } in settings {
        if !differs(running, wanted) {
            continue;
        }
        let names: Vec<&str> = doc.keys.iter().map(|key| key.name).collect();
        if doc.changes_at_once {
            copy(running, wanted);
            changes.at_once.push(names.join(", "));
        } else {
            changes.at_restart.push(names.join(", "));
        }
    }
    changes
}

/// Value of a setting that is still in the document. Taking it returns none if the document has none, or
/// after a fault.
#[derive(Debug)]
pub struct Value<'a, 'i, 'r> {
    /// Table, for keys that depend on each other.
    pub section: &'a mut Section<'i>,
    pub reporter: &'a mut Reporter<'r>,
    /// First key of the setting.
    pub key: &'static Key,
}

impl<'i> Value<'_, 'i, '_> {
    pub fn parse<T, E: fmt::Display>(self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        self.section.parse(self.key.name, self.reporter, parse)
    }

    /// Takes an integer within the declared bounds.
    pub fn integer<T: TryFrom<u64>>(self) -> Option<T> {
        let Kind::Integer(from, to) = self.key.kind else { return None };
        self.section
            .integer(self.key.name, self.reporter, from..=to)
            .and_then(|number| number.try_into().ok())
    }

    pub fn boolean(self) -> Option<bool> {
        self.section.boolean(self.key.name, self.reporter)
    }

    /// Takes a list of strings, each with its position.
    pub fn strings(&mut self) -> Option<Vec<(String, Span)>> {
        self.section.strings(self.key.name, self.reporter)
    }

    pub fn list<T, E: fmt::Display>(mut self, parse: impl Fn(&str) -> Result<T, E>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        for (text, span) in self.strings()? {
            match parse(&text) {
                Ok(item) => items.push(item),
                Err(error) => self.reporter.fault(&span, format_args!("`{}`: {error}", self.key.name)),
            }
        }
        Some(items)
    }

    /// Takes a string, or a list of at least one, and parses each.
    pub fn one_or_more<T, E: fmt::Display>(self, parse: impl Fn(&str) -> Result<T, E>) -> Option<Vec<T>> {
        self.section.one_or_more(self.key.name, self.reporter, parse)
    }

    pub fn span(&self) -> Option<Span> {
        self.section.span(self.key.name)
    }

    /// Takes a table with keys that are not declared.
    pub fn table(&mut self) -> Option<Section<'i>> {
        self.section.section(self.key.name, self.reporter)
    }

    /// Takes a table, whose `settings` replace those of `target`.
    pub fn section<C: 'static>(mut self, settings: &'static [Setting<C>], mut target: C) -> Option<C> {
        let section = self.table()?;
        read(settings, &mut target, section, self.reporter);
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Kind::{Integer, Table, Text};
    use super::Stated::{Example, Usual};
    use super::*;

    #[derive(Debug, Default, Clone, PartialEq)]
    struct Config {
        node: Option<String>,
        pair: Option<(String, String)>,
        inner: Inner,
    }

    #[derive(Debug, Default, Clone, PartialEq)]
    struct Inner {
        count: u8,
    }

    keys! {
        const KEYS: Config = |config, value|

        /// The node.
        "node": Text("string"), Example("n1"), AT_ONCE
            => node = value.parse(str::parse).map(Some);
        /// Two keys.
        "a": Text("string"), Example("x"); "b": Text("string"), Example("y") => pair = Some(pair(value));
        "inner": Table(|| docs(INNER)), Usual("") => inner = value.section(INNER, config.inner.clone());
    }

    keys! {
        const INNER: Inner = |inner, value|

        "count": Integer(0, 300), Usual("7 # of few") => count = value.integer();
    }

    fn pair(Value { section, reporter, .. }: Value<'_, '_, '_>) -> Option<(String, String)> {
        let (a, b) = (section.parse("a", reporter, str::parse), section.parse("b", reporter, str::parse));
        Some((a?, b?))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut reporter = Reporter::new(Path::new("c.toml"), text);
        let (root, mut config) = (reporter.root(), Config::default());
        read(KEYS, &mut config, root, &mut reporter);
        reporter.into_faults().into_result(config).map_err(|faults| faults.to_string())
    }

    #[test]
    fn keys_fill_their_fields() {
        let config = parse("node = 'n'\na = '1'\nb = '2'\n[inner]\ncount = 3\n").unwrap();
        assert_eq!((config.node.as_deref(), config.inner.count), (Some("n"), 3));
        assert_eq!(config.pair, Some(("1".to_owned(), "2".to_owned())));
        let faults = parse("unrelated = 1\n[inner]\ncount = 301\ncont = 1\n").unwrap_err();
        assert_eq!(
            faults,
            "c.toml:1: unknown key `unrelated`; known keys are node, a, b, inner\n\
             c.toml:3: `count`: expected a whole number from 0 to 300\n\
             c.toml:4: unknown key `cont` in [inner]; did you mean `count`?"
        );
    }

    #[test]
    fn changes_are_taken_over_or_need_a_restart() {
        let mut running = Config::default();
        let wanted = parse("node = 'n'\na = '1'\nb = '2'\n[inner]\ncount = 3\n").unwrap();
        let changes = update(KEYS, &mut running, &wanted);
        assert_eq!(
            (changes.at_once, changes.at_restart),
            (vec!["node".to_owned()], vec!["a, b".to_owned(), "inner".to_owned()])
        );
        assert_eq!(running, Config { node: wanted.node, ..Config::default() });
    }

    #[test]
    fn declarations_are_data() {
        let docs = docs(KEYS);
        assert_eq!((docs[0].text, docs[0].keys[0].toml().as_str()), (&[" The node."][..], "\"n1\""));
        let Table(inner) = docs[2].keys[0].kind else { panic!("{docs:?}") };
        assert_eq!(inner()[0].keys[0].toml(), "7 # of few");
    }
}
