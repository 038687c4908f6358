//! The progress of an export or an import, on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The form of the line.
const TEMPLATE: &str = "{bar:30} {percent:>3} %  {human_pos} of {human_len} samples  {per_sec}  {eta} left";

/// The progress of an export or an import. Without a terminal nothing is shown.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Shows progress towards `samples`, the expected number.
    pub(crate) fn new(samples: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(samples), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self(bar)
    }

    /// Shows that `samples` were read, since the begin.
    pub(crate) fn show(&self, samples: u64) {
        // Samples may arrive after the number was determined.
        self.0.update(|state| state.set_len(state.len().unwrap_or_default().max(samples)));
        self.0.set_position(samples);
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
