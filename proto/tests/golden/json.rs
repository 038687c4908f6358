//! Subset of JSON that the golden files need: integers, texts, lists, objects and null. The crate itself
//! needs no JSON library for it.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    Null,
    Number(i128),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<T: Into<i128>> From<T> for Json {
    fn from(number: T) -> Self {
        Self::Number(number.into())
    }
}

/// Formats a value. Lists of numbers share a line: one number per line makes long files, one line per file
/// unreadable diffs.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, depth| write!(f, "\n{:1$}", "", depth);
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(items) => {
                let numbers = items.iter().all(|item| matches!(item, Self::Number(_)));
                f.write_str("[")?;
                for (position, item) in items.iter().enumerate() {
                    f.write_str(match (position, numbers) {
                        (0, _) => "",
                        (_, true) => ", ",
                        (_, false) => ",",
                    })?;
                    if !numbers {
                        line(f, depth + 1)?;
                    }
                    item.write(f, depth + 1)?;
                }
                if !numbers {
                    line(f, depth)?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (position, (key, value)) in members.iter().enumerate() {
                    f.write_str(if position == 0 { "" } else { "," })?;
                    line(f, depth + 1)?;
                    write!(f, "{key:?}: ")?;
                    value.write(f, depth + 1)?;
                }
                line(f, depth)?;
                f.write_str("}")
            }
        }
    }

    /// Parses a value; none if the text is not JSON of this subset.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (value, rest) = parse(text.trim_start())?;
        rest.trim().is_empty().then_some(value)
    }

    /// Describes the first difference of two values; none if they are equal. The order of an object's members
    /// is ignored.
    pub(crate) fn difference(&self, other: &Self, path: &str) -> Option<String> {
        match (self, other) {
            (Self::List(these), Self::List(those)) if these.len() == those.len() => {
                these.iter().zip(those).enumerate().find_map(|(position, (this, that))| {
                    this.difference(that, &format!("{path}[{position}]"))
                })
            }
            (Self::Object(these), Self::Object(those)) if these.len() == those.len() => {
                these.iter().find_map(|(key, this)| match those.iter().find(|(other, _)| other == key) {
                    None => Some(format!("{path}.{key} is missing")),
                    Some((_, that)) => this.difference(that, &format!("{path}.{key}")),
                })
            }
            _ if self == other => None,
            _ => Some(format!("{path}: {self} against {other}")),
        }
    }
}

fn parse(text: &str) -> Option<(Json, &str)> {
    if let Some(rest) = text.strip_prefix("null") {
        return Some((Json::Null, rest));
    }
    if text.starts_with('"') {
        let (text, rest) = parse_text(text)?;
        return Some((Json::Text(text), rest));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (items, rest) = parse_items(rest, ']', parse)?;
        return Some((Json::List(items), rest));
    }
    if let Some(rest) = text.strip_prefix('{') {
        let (members, rest) = parse_items(rest, '}', parse_member)?;
        return Some((Json::Object(members), rest));
    }
    let end = text.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((Json::Number(number.parse().ok()?), rest))
}

/// Parses the items between brackets. `rest` begins after the opening one.
fn parse_items<T>(rest: &str, end: char, item: fn(&str) -> Option<(T, &str)>) -> Option<(Vec<T>, &str)> {
    let mut items = Vec::new();
    let mut rest = rest.trim_start();
    if let Some(behind) = rest.strip_prefix(end) {
        return Some((items, behind));
    }
    loop {
        let (value, behind) = item(rest)?;
        items.push(value);
        let behind = behind.trim_start();
        if let Some(behind) = behind.strip_prefix(end) {
            return Some((items, behind));
        }
        rest = behind.strip_prefix(',')?.trim_start();
    }
}

fn parse_member(text: &str) -> Option<((String, Json), &str)> {
    let (key, rest) = parse_text(text)?;
    let (value, rest) = parse(rest.trim_start().strip_prefix(':')?.trim_start())?;
    Some(((key, value), rest))
}

/// Parses a text without escapes: neither names nor the golden reasons contain quotes or backslashes.
fn parse_text(text: &str) -> Option<(String, &str)> {
    let (text, rest) = text.strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then(|| (text.to_owned(), rest))
}
