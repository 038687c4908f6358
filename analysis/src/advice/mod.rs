//! Advice: rules whose conditions are tested on the facts about a job, and the findings that result.
//!
//! Rules are data: [`RULES`] is compiled in, and files of a site change thresholds, disable rules and add
//! others.

pub mod facts;
mod file;
mod reference;
pub mod rule;
pub mod template;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use polymeter_service::document::{Faults, read_text};

pub use reference::reference;

use facts::Facts;
use file::RuleSet;
use rule::Rule;

use crate::model::{Finding, Report, Scheduler, Severity};

pub const RULES: &str = include_str!("rules.toml");

pub const NOTICES: &str = include_str!("notices.toml");

pub const DIRECTORY: &str = "/etc/polymeter/advice.d";

const FILES_MAX: usize = 100;

#[derive(Debug, Clone)]
pub struct Advice {
    rules: Vec<Rule>,
    scheduler: Option<Scheduler>,
}

impl Advice {
    pub fn built_in() -> Self {
        Self::of(&built_in_set())
    }

    /// Changes the built-in rules by the files `*.toml` in `directory`, in the order of their names. A file
    /// with faults is ignored, and its faults are returned. A directory that does not exist has no files.
    pub fn load(directory: &Path) -> (Self, Faults) {
        Self::load_over(built_in_set(), directory)
    }

    /// Rules of notices, as [`Self::load`] does.
    pub fn notices(directory: &Path) -> (Self, Faults) {
        Self::load_over(RuleSet::default().with(Path::new("notices.toml"), NOTICES).0, directory)
    }

    fn load_over(mut set: RuleSet, directory: &Path) -> (Self, Faults) {
        let mut faults = Faults::default();
        for path in files(directory, &mut faults) {
            let found = match read_text(&path) {
                Ok(text) => {
                    let (next, found) = set.with(&path, &text);
                    set = next;
                    found
                }
                Err(found) => found,
            };
            faults.0.extend(found.0);
        }
        (Self::of(&set), faults)
    }

    /// Changes the built-in rules by one file, whose text is given; leaves them as they are and returns the
    /// faults if there are any.
    pub fn with_file(path: &Path, text: &str) -> (Self, Faults) {
        let (set, faults) = built_in_set().with(path, text);
        (Self::of(&set), faults)
    }

    fn of(set: &RuleSet) -> Self {
        Self { rules: set.rules(), scheduler: set.scheduler }
    }

    /// Listed in the order of the files.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub const fn scheduler(&self) -> Option<Scheduler> {
        self.scheduler
    }

    /// Replaces the findings and the verdict of a report. Totals and costs must have been added to it before.
    pub fn advise(&self, report: &mut Report) {
        let facts = Facts::of(report);
        report.findings = self.findings(&facts);
        let withheld = self.rules.iter().filter(|rule| rule.is_withheld(&facts));
        report.advice_from_s = withheld.map(|rule| rule.elapsed_min_s).reduce(f64::min);
        report.scheduler = self.scheduler.or_else(|| report.likely_scheduler());
        report.verdict = verdict::verdict(report, &facts);
    }

    /// The most severe findings come first.
    pub fn findings(&self, facts: &Facts) -> Vec<Finding> {
        let found: Vec<(&Rule, Finding)> =
            self.rules.iter().filter_map(|rule| Some((rule, rule.apply(facts)?))).collect();
        let is_suppressed =
            |rule: &Rule| found.iter().any(|(other, _)| rule.suppressed_by.contains(&other.id));
        let mut findings: Vec<Finding> = found
            .iter()
            .filter(|(rule, _)| !is_suppressed(rule))
            .map(|(_, finding)| finding.clone())
            .collect();
        findings.sort_by_key(|finding| std::cmp::Reverse::<Severity>(finding.severity));
        findings
    }
}

/// Has no faults, as a test shows.
fn built_in_set() -> RuleSet {
    RuleSet::default().with(Path::new("rules.toml"), RULES).0
}

/// Sorted by name.
fn files(directory: &Path, faults: &mut Faults) -> Vec<PathBuf> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            faults.add(directory.display().to_string(), format_args!("cannot read the directory: {error}"));
            return Vec::new();
        }
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|name| name == "toml")).collect();
    paths.sort();
    if paths.len() > FILES_MAX {
        faults.add(
            directory.display().to_string(),
            format_args!("only the first {FILES_MAX} of {} files are read", paths.len()),
        );
        paths.truncate(FILES_MAX);
    }
    paths
}
