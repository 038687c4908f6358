//! A TOML document from which values are taken one by one. All faults are collected, each with its file and
//! line.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use polymeter_proto::suggest::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use crate::faults::{Fault, Faults};

/// Largest configuration file that is read.
pub const DOCUMENT_BYTES_MAX: u64 = 1024 * 1024;

/// Fails if the file cannot be read, is not UTF-8, or has more than [`DOCUMENT_BYTES_MAX`] bytes.
pub fn read_text(path: &Path) -> Result<String, Faults> {
    read_bounded(path).map_err(|error| {
        let mut faults = Faults::default();
        faults.add(path.display().to_string(), format_args!("cannot read the configuration: {error}"));
        faults
    })
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let bytes = File::open(path)?.take(DOCUMENT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if bytes as u64 > DOCUMENT_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {DOCUMENT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Position of a key or value in a document, in bytes.
pub type Span = Range<usize>;

/// Collects the faults of one file, and converts positions to lines.
#[derive(Debug)]
pub struct Reporter<'a> {
    file: &'a Path,
    text: &'a str,
    faults: Vec<(usize, Fault)>,
}

impl<'a> Reporter<'a> {
    /// `text` was read from `file`.
    pub const fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, faults: Vec::new() }
    }

    fn line(&self, span: &Span) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    pub fn place(&self, span: &Span) -> String {
        format!("{}:{}", self.file.display(), self.line(span))
    }

    pub fn fault(&mut self, span: &Span, message: impl fmt::Display) {
        let (line, place) = (self.line(span), self.place(span));
        self.faults.push((line, Fault::new(place, message)));
    }

    /// Syntax errors become faults; the valid part is returned.
    pub fn root(&mut self) -> Section<'a> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            self.fault(&error.span().unwrap_or_default(), error.message());
        }
        Section::new("", table.into_inner())
    }

    /// Returns all faults, sorted by line.
    pub fn into_faults(mut self) -> Faults {
        self.faults.sort_by_key(|(line, _)| *line);
        Faults(self.faults.into_iter().map(|(_, fault)| fault).collect())
    }
}

/// A table from which known keys are taken. The keys that remain are faults.
#[derive(Debug)]
pub struct Section<'i> {
    name: String,
    table: DeTable<'i>,
    /// Keys that a message can suggest.
    pub(crate) known: Vec<&'static str>,
}

impl<'i> Section<'i> {
    fn new(name: &str, table: DeTable<'i>) -> Self {
        Self { name: name.to_owned(), table, known: Vec::new() }
    }

    /// Takes a value of any type.
    pub fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        self.known.push(key);
        let found = self.table.keys().find(|name| name.get_ref() == key)?.clone();
        self.table.remove(&found)
    }

    /// Returns the position of a key that was not taken yet.
    pub fn span(&self, key: &str) -> Option<Span> {
        self.table.keys().find(|name| name.get_ref() == key).map(Spanned::span)
    }

    pub fn parse<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.take(key)?;
        let parsed = match value.get_ref().as_str() {
            Some(text) => parse(text).map_err(|error| error.to_string()),
            None => Err(format!("expected a string in quotes, found {}", type_name(value.get_ref()))),
        };
        parsed.map_err(|error| reporter.fault(&value.span(), format_args!("`{key}`: {error}"))).ok()
    }

    pub fn integer(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
        bounds: RangeInclusive<u64>,
    ) -> Option<u64> {
        let value = self.take(key)?;
        let integer = value.get_ref().as_integer();
        let number = integer.and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
        let within = number.filter(|number| bounds.contains(number));
        if within.is_none() {
            let (from, to) = bounds.into_inner();
            reporter
                .fault(&value.span(), format_args!("`{key}`: expected a whole number from {from} to {to}"));
        }
        within
    }

    pub fn boolean(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<bool> {
        let value = self.take(key)?;
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            reporter.fault(&value.span(), format_args!("`{key}`: expected true or false"));
        }
        boolean
    }

    pub fn section(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<Section<'i>> {
        Self::of_value(key, self.take(key)?, reporter)
    }

    pub fn of_value(key: &str, value: Spanned<DeValue<'i>>, reporter: &mut Reporter<'_>) -> Option<Self> {
        let span = value.span();
        let value = value.into_inner();
        let found = type_name(&value);
        if let DeValue::Table(table) = value {
            return Some(Self::new(key, table));
        }
        reporter.fault(&span, format_args!("`{key}`: expected a section [{key}], found {found}"));
        None
    }

    /// Takes a list of strings, each with its position.
    /// Takes an array of tables, each with its position.
    pub fn tables(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<Vec<(Self, Span)>> {
        let value = self.take(key)?;
        let span = value.span();
        let DeValue::Array(array) = value.into_inner() else {
            reporter.fault(&span, format_args!("`{key}`: expected tables, each below its head [[{key}]]"));
            return None;
        };
        let mut tables = Vec::new();
        for value in array {
            let span = value.span();
            tables.extend(Self::of_value(key, value, reporter).map(|table| (table, span)));
        }
        Some(tables)
    }

    pub fn strings(&mut self, key: &'static str, reporter: &mut Reporter<'_>) -> Option<Vec<(String, Span)>> {
        let value = self.take(key)?;
        let Some(array) = value.get_ref().as_array() else {
            reporter.fault(&value.span(), format_args!("`{key}`: expected a list of strings"));
            return None;
        };
        let mut strings = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_str() {
                Some(text) => strings.push((text.to_owned(), item.span())),
                None => reporter.fault(&item.span(), format_args!("`{key}`: expected a list of strings")),
            }
        }
        Some(strings)
    }

    /// Takes a string, or a list of at least one, and parses each with `parse`.
    pub fn one_or_more<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        reporter: &mut Reporter<'_>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        if !self
            .table
            .iter()
            .any(|(name, value)| name.get_ref() == key && value.get_ref().as_array().is_some())
        {
            return self.parse(key, reporter, parse).map(|one| vec![one]);
        }
        let list = self.span(key);
        let strings = self.strings(key, reporter)?;
        if let Some(list) = list.filter(|_| strings.is_empty()) {
            reporter.fault(&list, format_args!("`{key}`: the list is empty"));
            return None;
        }
        strings
            .into_iter()
            .map(|(text, span)| {
                parse(&text).map_err(|error| reporter.fault(&span, format_args!("`{key}`: {error}"))).ok()
            })
            .collect()
    }

    /// Returns the remaining entries in the order of the file, for tables with arbitrary keys.
    pub fn into_entries(mut self) -> Vec<(Spanned<String>, Spanned<DeValue<'i>>)> {
        let mut entries: Vec<_> = std::mem::take(&mut self.table)
            .into_iter()
            .map(|(key, value)| (Spanned::new(key.span(), key.into_inner().into_owned()), value))
            .collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }

    pub fn finish(self, reporter: &mut Reporter<'_>) {
        let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
        for key in self.table.keys() {
            let (span, key) = (key.span(), key.get_ref().as_ref());
            let hint = nearest(key, self.known.iter().copied()).map_or_else(
                || format!("known keys are {}", self.known.join(", ")),
                |known| format!("did you mean `{known}`?"),
            );
            reporter.fault(&span, format_args!("unknown key `{key}`{place}; {hint}"));
        }
    }
}

fn type_name(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str, take: impl FnOnce(&mut Section<'_>, &mut Reporter<'_>)) -> Vec<String> {
        let mut reporter = Reporter::new(Path::new("a.toml"), text);
        let mut root = reporter.root();
        take(&mut root, &mut reporter);
        root.finish(&mut reporter);
        reporter.into_faults().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reports_all_faults_by_line() {
        let text = "flush = 1\nnode = 'n1'\nwriters = 0\nkeep = 'x'\nclock = 1\njobs = ['a', 2]\n";
        let found = faults(text, |root, reporter| {
            assert_eq!(root.parse("node", reporter, str::parse::<String>), Some("n1".to_owned()));
            assert_eq!(root.strings("jobs", reporter).map(|jobs| jobs.len()), Some(1));
            assert!(root.section("clock", reporter).is_none());
            assert_eq!(root.boolean("keep", reporter), None);
            assert_eq!(root.integer("writers", reporter, 1..=9), None);
            assert_eq!(root.parse("flush", reporter, str::parse::<String>), None);
        });
        assert_eq!(
            found,
            [
                "a.toml:1: `flush`: expected a string in quotes, found an integer",
                "a.toml:3: `writers`: expected a whole number from 1 to 9",
                "a.toml:4: `keep`: expected true or false",
                "a.toml:5: `clock`: expected a section [clock], found an integer",
                "a.toml:6: `jobs`: expected a list of strings",
            ]
        );
    }

    #[test]
    fn unknown_keys_get_a_suggestion() {
        let found = faults("colector = 1\n\"x\\u0007y\" = 1\n", |root, _| {
            root.take("collector");
            root.take("job_visibility");
        });
        assert_eq!(
            found,
            [
                "a.toml:1: unknown key `colector`; did you mean `collector`?",
                "a.toml:2: unknown key `x?y`; known keys are collector, job_visibility",
            ]
        );
    }

    #[test]
    fn syntax_errors_are_reported_with_the_rest() {
        let found = faults("a = = 2\nb = 1\n", |_, _| {});
        assert!(found.len() >= 2 && found[0].starts_with("a.toml:1: "), "{found:?}");
    }

    #[test]
    fn unreadable_files_are_faults() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        assert!(read_text(&path).unwrap_err().to_string().contains("a.toml: cannot read"));
        std::fs::write(&path, vec![b' '; 1 + usize::try_from(DOCUMENT_BYTES_MAX).unwrap()]).unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("more than 1048576 bytes"));
        std::fs::write(&path, "a = 1").unwrap();
        assert_eq!(read_text(&path).unwrap(), "a = 1");
    }
}
