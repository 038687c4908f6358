//! Findings of checks.

use std::fmt;

use serde::Serialize;

use super::role::Role;

/// Most serious first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Problem,
    /// Something works worse than it could, or will not work for long.
    Warning,
    /// The check could not run.
    NotChecked,
    /// There is nothing to do.
    Ok,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Problem, Self::Warning, Self::NotChecked, Self::Ok];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::NotChecked => "not checked",
            Self::Ok => "ok",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) role: Role,
    pub(super) level: Level,
    /// One line.
    pub(super) text: String,
    /// One line, a command where possible; none if there is nothing to do.
    pub(super) remedy: Option<String>,
}

#[derive(Debug)]
pub(super) struct Findings {
    check: &'static str,
    role: Role,
    list: Vec<Finding>,
}

impl Findings {
    pub(super) const fn new(check: &'static str, role: Role) -> Self {
        Self { check, role, list: Vec::new() }
    }

    pub(super) fn ok(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text.into(), None);
    }

    pub(super) fn not_checked(&mut self, reason: impl fmt::Display) {
        self.add(Level::NotChecked, reason.to_string(), None);
    }

    pub(super) fn warning(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Warning, text.into(), Some(remedy.into()));
    }

    pub(super) fn problem(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Problem, text.into(), Some(remedy.into()));
    }

    /// `message` has the form `cannot VERB OBJECT: CAUSE; REMEDY`.
    pub(super) fn problem_of(&mut self, message: &str, otherwise: &str) {
        let (text, remedy) = split_remedy(message);
        self.problem(text, remedy.unwrap_or(otherwise));
    }

    pub(super) fn has_any(&self) -> bool {
        self.list.iter().any(|finding| finding.level <= Level::Warning)
    }

    /// Leaves out what is no problem or warning.
    pub(super) fn append_serious(&mut self, other: Self) {
        self.list.extend(other.list.into_iter().filter(|finding| finding.level <= Level::Warning));
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.list
    }

    fn add(&mut self, level: Level, text: String, remedy: Option<String>) {
        let one_line = |text: String| text.replace(['\n', '\r'], " ");
        let remedy = remedy.map(one_line);
        self.list.push(Finding { check: self.check, role: self.role, level, text: one_line(text), remedy });
    }
}

fn split_remedy(message: &str) -> (&str, Option<&str>) {
    let parts = message.split_once("; type: ").or_else(|| message.rsplit_once("; "));
    parts.map_or((message, None), |(text, remedy)| (text, Some(remedy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_contains_its_remedy() {
        assert_eq!(split_remedy("cannot x: y"), ("cannot x: y", None));
        assert_eq!(split_remedy("cannot x: y; type: chmod 600 /k"), ("cannot x: y", Some("chmod 600 /k")));
        assert_eq!(split_remedy("cannot x: a; b; check c"), ("cannot x: a; b", Some("check c")));
    }

    #[test]
    fn a_finding_has_one_line() {
        let mut findings = Findings::new("keys", Role::Node);
        findings.problem("one\ntwo", "do\nit");
        assert!(findings.has_any());
        let list = findings.into_list();
        assert_eq!((list[0].text.as_str(), list[0].remedy.as_deref()), ("one two", Some("do it")));
    }
}
