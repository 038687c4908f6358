//! Progress of a command, on a terminal.

use std::cell::Cell;
use std::io::{IsTerminal, Write};

use polymeter_proto::units;
use polymeter_service::clock;

/// Pause between two forms of the line.
const INTERVAL_NS: u64 = 100_000_000;

const BAR: usize = 24;

/// Shows nothing without a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    expected: u64,
    begin_ns: u64,
    /// Time at which the next form of the line is due; none without a terminal.
    next_ns: Cell<Option<u64>>,
}

impl Progress {
    /// `samples` is the expected number.
    pub(crate) fn new(samples: u64) -> Self {
        let begin_ns = clock::monotonic_ns();
        let next_ns = std::io::stderr().is_terminal().then_some(begin_ns.saturating_add(INTERVAL_NS));
        Self { expected: samples, begin_ns, next_ns: Cell::new(next_ns) }
    }

    /// `samples` counts from the begin.
    pub(crate) fn show(&self, samples: u64) {
        let Some(next_ns) = self.next_ns.get() else { return };
        let now_ns = clock::monotonic_ns();
        if now_ns >= next_ns {
            self.next_ns.set(Some(now_ns.saturating_add(INTERVAL_NS)));
            write(&line(samples, self.expected, now_ns.saturating_sub(self.begin_ns)));
        }
    }

    pub(crate) fn finish(&self) {
        if self.next_ns.get().is_some() {
            write("");
        }
    }
}

/// Progress that cannot be shown is no failure.
pub(crate) fn write(line: &str) {
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush()).ok();
}

/// Such as `[=====     ]  50 %  4.2M of 8.4M samples  1.05M/s  4 s left`.
fn line(samples: u64, expected: u64, elapsed_ns: u64) -> String {
    // Samples may arrive after the number was determined.
    let [read, all] = [samples, expected.max(samples).max(1)].map(units::to_f64);
    let share = read / all;
    let rate = read / (units::to_f64(elapsed_ns) / 1e9).max(1e-3);
    let left = if rate > 0.0 { units::elapsed(((all - read) / rate).round()) } else { "?".to_owned() };
    let full = "=".repeat(
        (1..=BAR).filter(|part| units::to_f64(*part as u64) <= share * units::to_f64(BAR as u64)).count(),
    );
    let [read, all, rate] = [read, all, rate].map(units::number);
    format!("[{full:<BAR$}] {:>3.0} %  {read} of {all} samples  {rate}/s  {left} left", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_share_rate_and_time_left() {
        let second = 1_000_000_000;
        for (samples, expected, elapsed_ns, shown) in [
            (0, 8_400_000, second, "0 of 8.40M samples  0/s  ? left"),
            (2_100_000, 8_400_000, 2 * second, "2.10M of 8.40M samples  1.05M/s  6 s left"),
            (12, 10, second, "12 of 12 samples  12/s  0 s left"),
            (0, 0, 0, "0 of 1 samples  0/s  ? left"),
        ] {
            let line = line(samples, expected, elapsed_ns);
            assert_eq!(line.split_once(" %  ").map(|(_, after)| after), Some(shown), "{line}");
            assert!(line.len() <= 80, "{line}");
        }
        assert!(line(5, 10, second).starts_with(&format!("[{}{}]  50 %", "=".repeat(12), " ".repeat(12))));
    }
}
