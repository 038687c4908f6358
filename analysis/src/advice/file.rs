//! Rules in TOML: those that are built in, and the files of a site. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use polymeter_proto::suggest::nearest;
use polymeter_service::document::{Reporter, Section, Span};
use toml::Spanned;
use toml::de::DeValue;

use super::facts::definition;
use super::rule::{Rule, RuleScope};
use super::template::Template;
use crate::expression::{Expression, ExpressionError, InvalidQuantity, Type, quantity};
use crate::model::{Resource, Scheduler, Severity};

const RULES_MAX: usize = 1000;

const ID_BYTES_MAX: usize = 64;

/// Rule as it is written, with the values of all files so far.
#[derive(Debug, Clone, Default)]
struct RawRule {
    resource: Option<Resource>,
    severity: Option<Severity>,
    when: Option<String>,
    thresholds: BTreeMap<String, f64>,
    elapsed_min_s: Option<f64>,
    except_states: Vec<String>,
    suppressed_by: Vec<String>,
    sentence: Option<String>,
    evidence: Option<String>,
    remedies: BTreeMap<Scheduler, String>,
    is_disabled: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RuleSet {
    raw: Vec<(String, RawRule)>,
    compiled: BTreeMap<String, Rule>,
    pub(super) scheduler: Option<Scheduler>,
}

impl RuleSet {
    /// Rules that are not disabled, in the order of the files.
    pub(super) fn rules(&self) -> Vec<Rule> {
        let enabled = self.raw.iter().filter(|(_, raw)| !raw.is_disabled);
        enabled.filter_map(|(id, _)| self.compiled.get(id).cloned()).collect()
    }

    /// Adds the rules of a file, which may change those of earlier files. Faults go to the reporter; if there
    /// are any, the set must not be used.
    pub(super) fn add(&mut self, text: &str, reporter: &mut Reporter<'_>) {
        let mut root = reporter.root();
        let scheduler =
            root.parse("scheduler", reporter, |name| named(name, &Scheduler::ALL, |one| one.name()));
        self.scheduler = scheduler.or(self.scheduler);
        for (key, value) in root.into_entries() {
            let (span, id) = (key.span(), key.into_inner());
            if !is_id(&id) {
                reporter.fault(
                    &span,
                    format_args!("invalid id `{id}` of a rule: expected lower-case letters, digits and `-`"),
                );
                continue;
            }
            let Some(section) = Section::of_value(&id, value, reporter) else { continue };
            self.add_rule(&id, section, &Source { text, span }, reporter);
        }
        self.check_references(reporter);
    }

    fn add_rule(&mut self, id: &str, section: Section<'_>, source: &Source<'_>, reporter: &mut Reporter<'_>) {
        let position = self.raw.iter().position(|(known, _)| known == id);
        let mut raw = position
            .and_then(|position| self.raw.get(position))
            .map(|(_, raw)| raw.clone())
            .unwrap_or_default();
        let mut spans = Spans::default();
        raw.read(section, position.is_some(), &mut spans, reporter);
        if let Some(rule) = raw.compile(id, source, &spans, reporter) {
            self.compiled.insert(id.to_owned(), rule);
        }
        let count = self.raw.len();
        match position.and_then(|position| self.raw.get_mut(position)) {
            Some((_, known)) => *known = raw,
            None if count >= RULES_MAX => {
                reporter.fault(&source.span, format_args!("more than {RULES_MAX} rules"));
            }
            None => self.raw.push((id.to_owned(), raw)),
        }
    }

    /// Reports unknown ids in `suppressed_by`.
    fn check_references(&self, reporter: &mut Reporter<'_>) {
        for (id, raw) in &self.raw {
            for other in &raw.suppressed_by {
                if !self.raw.iter().any(|(known, _)| known == other) {
                    let hint = nearest(other, self.raw.iter().map(|(known, _)| known.as_str()))
                        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                    reporter.fault(
                        &(0..0),
                        format_args!("`suppressed_by` of `{id}`: unknown rule `{other}`{hint}"),
                    );
                }
            }
        }
    }
}

struct Source<'a> {
    text: &'a str,
    span: Span,
}

/// Positions of the keys of a rule that stand in the current file.
type Spans = BTreeMap<&'static str, Span>;

impl RawRule {
    /// Reads the keys of a section over the values of earlier files.
    fn read(
        &mut self,
        mut section: Section<'_>,
        is_known: bool,
        spans: &mut Spans,
        reporter: &mut Reporter<'_>,
    ) {
        let severity =
            section.parse("severity", reporter, |name| named(name, &Severity::ALL, |one| one.name()));
        self.severity = severity.or(self.severity);
        let resource =
            section.parse("resource", reporter, |name| named(name, &Resource::ALL, |one| one.name()));
        self.resource = resource.or(self.resource);
        let mut take_text = |key: &'static str, slot: &mut Option<String>, reporter: &mut Reporter<'_>| {
            if let Some(value) = section.take(key) {
                match value.get_ref().as_str() {
                    Some(found) => {
                        spans.insert(key, value.span());
                        *slot = Some(found.to_owned());
                    }
                    None => {
                        reporter.fault(&value.span(), format_args!("`{key}`: expected a string in quotes"))
                    }
                }
            }
        };
        take_text("when", &mut self.when, reporter);
        take_text("sentence", &mut self.sentence, reporter);
        take_text("evidence", &mut self.evidence, reporter);
        let elapsed_min = section.parse("elapsed_min", reporter, quantity);
        self.elapsed_min_s = elapsed_min.or(self.elapsed_min_s);
        let mut names = |key: &'static str, slot: &mut Vec<String>, reporter: &mut Reporter<'_>| {
            if let Some(names) = section.strings(key, reporter) {
                *slot = names.into_iter().map(|(name, _)| name).collect();
            }
        };
        names("except_states", &mut self.except_states, reporter);
        names("suppressed_by", &mut self.suppressed_by, reporter);
        self.is_disabled = section.boolean("disabled", reporter).unwrap_or(self.is_disabled);
        // A condition of its own has thresholds of its own.
        let may_add = !is_known || spans.contains_key("when");
        if let Some(thresholds) = section.section("thresholds", reporter) {
            self.read_thresholds(thresholds, may_add, reporter);
        }
        if let Some(mut remedies) = section.section("remedy", reporter) {
            for scheduler in Scheduler::ALL {
                if let Some(remedy) = remedies.parse(scheduler.name(), reporter, str::parse) {
                    self.remedies.insert(scheduler, remedy);
                }
            }
            remedies.finish(reporter);
        }
        section.finish(reporter);
    }

    fn read_thresholds(&mut self, section: Section<'_>, may_add: bool, reporter: &mut Reporter<'_>) {
        for (key, value) in section.into_entries() {
            let (span, name) = (key.span(), key.into_inner());
            if definition(&name).is_some() || !is_threshold(&name) {
                reporter.fault(&span, format_args!("invalid name `{name}` of a threshold: expected lower-case letters, digits and `_`, and not the name of a fact"));
                continue;
            }
            if !may_add && !self.thresholds.contains_key(&name) {
                let known: Vec<&str> = self.thresholds.keys().map(String::as_str).collect();
                reporter.fault(
                    &span,
                    format_args!("unknown threshold `{name}`: the rule has {}", known.join(", ")),
                );
                continue;
            }
            match number(&value) {
                Ok(number) => drop(self.thresholds.insert(name, number)),
                Err(error) => reporter.fault(&value.span(), format_args!("`{name}`: {error}")),
            }
        }
    }

    fn compile(
        &self,
        id: &str,
        source: &Source<'_>,
        spans: &Spans,
        reporter: &mut Reporter<'_>,
    ) -> Option<Rule> {
        let scope = RuleScope { thresholds: &self.thresholds };
        let mut missing = Vec::new();
        let required = [("when", &self.when), ("sentence", &self.sentence), ("evidence", &self.evidence)];
        missing.extend(required.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key));
        missing.extend(self.severity.is_none().then_some("severity"));
        if !missing.is_empty() {
            reporter.fault(&source.span, format_args!("rule `{id}` lacks {}", missing.join(", ")));
            return None;
        }
        let mut place = |key: &str, text: &str, error: &ExpressionError| {
            let span = spans
                .get(key)
                .map_or_else(|| source.span.clone(), |span| inner(source.text, span, text, error.position));
            let column = text.get(..error.position).unwrap_or(text).chars().count() + 1;
            reporter.fault(&span, format_args!("`{key}` of `{id}`, character {column}: {error}"));
        };
        let condition = self.when.clone()?;
        let when = Expression::parse(&condition, &scope).and_then(|when| match when.result() {
            Type::Truth => Ok(when),
            other @ (Type::Number | Type::Text) => {
                Err(ExpressionError { position: 0, message: format!("expected a condition, found {other}") })
            }
        });
        let when = when.map_err(|error| place("when", &condition, &error)).ok();
        let mut template = |key: &str, text: &str| {
            Template::parse(text, &scope).map_err(|error| place(key, text, &error)).ok()
        };
        let sentence = template("sentence", self.sentence.as_deref()?);
        let evidence = template("evidence", self.evidence.as_deref()?);
        let remedies = self.remedies.iter();
        let remedies: BTreeMap<_, _> =
            remedies.filter_map(|(scheduler, text)| Some((*scheduler, template("remedy", text)?))).collect();
        Some(Rule {
            id: id.to_owned(),
            resource: self.resource,
            severity: self.severity?,
            condition,
            when: when?,
            thresholds: self.thresholds.clone(),
            elapsed_min_s: self.elapsed_min_s.unwrap_or_default(),
            except_states: self.except_states.clone(),
            suppressed_by: self.suppressed_by.clone(),
            sentence: sentence?,
            evidence: evidence?,
            remedies,
        })
    }
}

/// Position of an error within a string, where the string is written in the file as it is.
fn inner(file: &str, span: &Span, text: &str, position: usize) -> Span {
    let written = file.get(span.clone()).unwrap_or_default();
    let Some(offset) = written.find(text) else { return span.clone() };
    let start = span.start + offset + position;
    start..start
}

#[derive(Debug, thiserror::Error)]
enum InvalidValue {
    #[error(transparent)]
    Quantity(#[from] InvalidQuantity),
    #[error("unknown value `{name}`: expected {}", known.join(", "))]
    Name { name: String, known: Vec<&'static str> },
    #[error("expected a number or a string such as \"64 KiB\", found a {0}")]
    Type(&'static str),
}

fn named<T: Copy>(name: &str, all: &[T], name_of: impl Fn(T) -> &'static str) -> Result<T, InvalidValue> {
    let found = all.iter().copied().find(|one| name_of(*one) == name);
    found.ok_or_else(|| InvalidValue::Name {
        name: name.to_owned(),
        known: all.iter().map(|one| name_of(*one)).collect(),
    })
}

/// A TOML number, or a string with a unit.
fn number(value: &Spanned<DeValue<'_>>) -> Result<f64, InvalidValue> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.as_ref().to_owned(),
        DeValue::Integer(integer) => integer.as_str().to_owned(),
        DeValue::Float(float) => float.as_str().to_owned(),
        other @ (DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_)) => {
            return Err(InvalidValue::Type(other.type_str()));
        }
    };
    Ok(quantity(&text)?)
}

fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_threshold(name: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

impl RuleSet {
    /// Adds a file. Returns the set with it; without it and with the faults if there are any.
    pub(super) fn with(self, path: &Path, text: &str) -> (Self, polymeter_service::document::Faults) {
        let mut reporter = Reporter::new(path, text);
        let mut set = self.clone();
        set.add(text, &mut reporter);
        let faults = reporter.into_faults();
        if faults.0.is_empty() { (set, faults) } else { (self, faults) }
    }
}
