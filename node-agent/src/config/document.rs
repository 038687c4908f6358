//! A TOML document from which values are taken one by one, and every fault is kept with its line.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Something that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    file: PathBuf,
    line: usize,
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// All faults of a configuration together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}

/// Where a value stands in the document, in bytes.
pub(super) type Span = std::ops::Range<usize>;

/// Collects the faults of one file.
#[derive(Debug)]
pub(super) struct Reporter<'a> {
    file: &'a Path,
    text: &'a str,
    faults: Vec<Fault>,
}

impl<'a> Reporter<'a> {
    pub(super) const fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, faults: Vec::new() }
    }

    pub(super) fn fault(&mut self, span: &Span, message: impl Into<String>) {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        self.faults.push(Fault { file: self.file.to_owned(), line, message: message.into() });
    }

    /// The document's table, with what of it can be read.
    pub(super) fn parse(&mut self) -> DeTable<'a> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            self.fault(&error.span().unwrap_or(0..0), error.message());
        }
        table.into_inner()
    }

    pub(super) fn finish(mut self) -> Result<(), Faults> {
        self.faults.sort_by_key(|fault| fault.line);
        if self.faults.is_empty() { Ok(()) } else { Err(Faults(self.faults)) }
    }
}

/// A table whose known keys are taken out; what is left is unknown.
#[derive(Debug)]
pub(super) struct Section<'i> {
    name: String,
    table: DeTable<'i>,
    known: Vec<&'static str>,
}

impl<'i> Section<'i> {
    pub(super) fn new(name: &str, table: DeTable<'i>) -> Self {
        Self { name: name.to_owned(), table, known: Vec::new() }
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        self.known.push(key);
        let found = self.table.keys().find(|name| name.get_ref() == key)?.clone();
        self.table.remove(&found)
    }

    /// Where a key stands that was not taken yet, if it is there.
    pub(super) fn place(&self, key: &str) -> Option<Span> {
        self.table.keys().find(|name| name.get_ref() == key).map(Spanned::span)
    }

    /// Takes a string and makes something of it; a value of another type or with another meaning is a fault.
    pub(super) fn parse<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.take(key)?;
        let span = value.span();
        let parsed = match value.get_ref().as_str() {
            Some(text) => parse(text).map_err(|error| error.to_string()),
            None => Err(format!(
                "it must be a string in quotes, and is {} {}",
                article(value.get_ref()),
                value.get_ref().type_str()
            )),
        };
        parsed.map_err(|error| reporter.fault(&span, format!("`{key}`: {error}"))).ok()
    }

    /// Takes a whole number within bounds.
    pub(super) fn integer(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let value = self.take(key)?;
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
        let fitting = number.filter(|number| bounds.contains(number));
        if fitting.is_none() {
            reporter.fault(
                &value.span(),
                format!("`{key}`: it must be a whole number from {} to {}", bounds.start(), bounds.end()),
            );
        }
        fitting
    }

    /// Takes `true` or `false`.
    pub(super) fn boolean(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<bool> {
        let value = self.take(key)?;
        let truth = value.get_ref().as_bool();
        if truth.is_none() {
            reporter.fault(&value.span(), format!("`{key}`: it must be true or false"));
        }
        truth
    }

    /// Takes a table.
    pub(super) fn section(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<Section<'i>> {
        let value = self.take(key)?;
        let span = value.span();
        let value = value.into_inner();
        let (article, kind) = (article(&value), value.type_str());
        if let DeValue::Table(table) = value {
            return Some(Self::new(key, table));
        }
        reporter.fault(&span, format!("`{key}`: it must be a table, and is {article} {kind}"));
        None
    }

    /// Takes a list of strings, each with its place.
    pub(super) fn strings(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
    ) -> Option<Vec<(String, Span)>> {
        let value = self.take(key)?;
        let Some(array) = value.get_ref().as_array() else {
            reporter.fault(&value.span(), format!("`{key}`: it must be a list of strings"));
            return None;
        };
        let mut strings = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_str() {
                Some(text) => strings.push((text.to_owned(), item.span())),
                None => reporter.fault(&item.span(), format!("`{key}`: it must be a list of strings")),
            }
        }
        Some(strings)
    }

    /// All keys and values that are left, in the order of the file.
    pub(super) fn drain(mut self) -> Vec<(Spanned<String>, Spanned<DeValue<'i>>)> {
        let mut entries: Vec<_> = std::mem::take(&mut self.table)
            .into_iter()
            .map(|(key, value)| (Spanned::new(key.span(), key.into_inner().into_owned()), value))
            .collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }

    /// What is left is unknown.
    pub(super) fn finish(self, reporter: &mut Reporter<'_>) {
        for key in self.table.keys() {
            let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
            reporter.fault(
                &key.span(),
                format!("unknown key `{}`{place}; known are: {}", key.get_ref(), self.known.join(", ")),
            );
        }
    }
}

fn article(value: &DeValue<'_>) -> &'static str {
    if value.type_str().starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
