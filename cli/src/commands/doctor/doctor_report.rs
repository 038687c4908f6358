//! Result of an examination, as text and as JSON.

use polymeter_proto::text::abridged_list;
use polymeter_proto::units::counted;
use serde::Serialize;

use super::finding::{Finding, Level};
use super::machine::{Machine, user_name};
use super::role::Role;
use crate::output::layout::width;
use crate::output::printable::printable;

const LABEL: usize = 13;

/// Its fields have the order of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    host: String,
    version: &'static str,
    user: String,
    roles: Vec<Role>,
    counts: Counts,
    /// Most serious first.
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts {
    problem: usize,
    warning: usize,
    not_checked: usize,
    ok: usize,
}

impl Counts {
    fn of(findings: &[Finding]) -> Self {
        let [problem, warning, not_checked, ok] =
            Level::ALL.map(|level| findings.iter().filter(|finding| finding.level == level).count());
        Self { problem, warning, not_checked, ok }
    }
}

impl Report {
    pub(super) fn new(machine: &Machine, findings: Vec<Finding>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let user = user_name(rustix::process::geteuid().as_raw());
        Self::of(host, user, machine.roles.clone(), findings)
    }

    fn of(host: String, user: String, roles: Vec<Role>, mut findings: Vec<Finding>) -> Self {
        // The order of the checks is kept within a level.
        findings.sort_by_key(|finding| finding.level);
        let version = env!("CARGO_PKG_VERSION");
        Self { host, version, user, roles, counts: Counts::of(&findings), findings }
    }

    pub(super) fn has(&self, level: Level) -> bool {
        self.findings.iter().any(|finding| finding.level == level)
    }

    pub(super) fn text(&self, limit: Option<usize>) -> String {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.name()).collect();
        let mut text = format!("{} as {}, examined by {}\n\n", self.host, roles.join(" and "), self.user);
        for finding in &self.findings {
            let state = format!("{}: {}", finding.check, finding.text);
            text.push_str(&paragraph(finding.level.name(), &state, limit));
            if let Some(remedy) = &finding.remedy {
                text.push_str(&paragraph("", &format!("-> {remedy}"), limit));
            }
        }
        let Counts { problem, warning, not_checked, ok } = self.counts;
        let counts = [(problem, "problem"), (warning, "warning")].map(|(count, name)| counted(count, name));
        text.push_str(&format!("\n{}, {}, {not_checked} not checked, {ok} ok\n", counts[0], counts[1]));
        text
    }
}

/// Lays out a text behind a label. A word that is longer than a line is not cut: it may belong to a command.
fn paragraph(label: &str, text: &str, limit: Option<usize>) -> String {
    let text = printable(text);
    let columns = limit.map_or(usize::MAX, |limit| limit.saturating_sub(LABEL));
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    format!("{label:<LABEL$}{}\n", lines.join(&format!("\n{:LABEL$}", "")))
}

/// Lists the first of many names.
pub(super) fn listed(names: &[String]) -> String {
    const LISTED: usize = 3;
    abridged_list(names, LISTED)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Findings;
    use super::*;
    use crate::snapshot;

    fn report() -> Report {
        let mut findings = Findings::new("kernel", Role::Node);
        findings.ok("Linux 6.1.0");
        let mut all = findings.into_list();
        let mut findings = Findings::new("keys", Role::Node);
        findings.problem(
            "the user polymeter of polymeter-agent cannot read /etc/polymeter/node17.key: Permission denied",
            "chown polymeter: /etc/polymeter/node17.key",
        );
        all.extend(findings.into_list());
        let mut findings = Findings::new("disk", Role::Collector);
        findings.warning("1.00 GiB free", "remove old samples: polymeter store prune --before DAY");
        findings.not_checked("the server is reached over the network");
        all.extend(findings.into_list());
        Report::of("node17".to_owned(), "root".to_owned(), vec![Role::Node, Role::Collector], all)
    }

    #[test]
    fn a_report_is_laid_out_as_recorded() {
        let text = report().text(Some(80));
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
        snapshot::check("doctor", &text);
        assert!(report().text(None).contains("Permission denied\n"), "one line each in a pipe");
        let json = serde_json::to_string_pretty(&report()).unwrap() + "\n";
        snapshot::check("doctor-json", &json.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }

    #[test]
    fn commands_are_not_cut() {
        let path = format!("/srv/{}", "x".repeat(100));
        let text = paragraph("", &format!("-> chown polymeter: {path}"), Some(80));
        assert!(text.contains(&path), "{text}");
    }
}
