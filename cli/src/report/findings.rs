//! Findings about a job.

use std::path::Path;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::model::Report;

use crate::output::terminal;

/// Faults of the site's rules are warnings: a user cannot correct them.
pub(crate) fn add_findings(report: &mut Report, directory: &Path) {
    let (advice, faults) = Advice::load(directory);
    for fault in &faults.0 {
        terminal::print_error(&format!("polymeter: file of rules ignored: {fault}\n"));
    }
    advice.advise(report);
}
