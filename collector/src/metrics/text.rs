//! The metrics as OpenMetrics text, version 1.0.0.

use std::fmt::{Display, Write};

use super::{Metrics, WriterMetrics};
use polymeter_store::accepted::LossReason;

/// What every name begins with.
const PREFIX: &str = "polymeter_collector";

/// A text under construction. Writing to a string cannot fail, so that its results are of no interest.
#[derive(Default)]
struct Page(String);

/// What a family of metrics is.
#[derive(Clone, Copy)]
struct Family {
    /// Its name without [`PREFIX`], with its unit where it has one.
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: "counter", unit, help }
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: "gauge", unit, help }
}

impl Page {
    fn family(&mut self, family: Family) {
        let Family { name, kind, unit, help } = family;
        writeln!(self.0, "# TYPE {PREFIX}_{name} {kind}").ok();
        if !unit.is_empty() {
            writeln!(self.0, "# UNIT {PREFIX}_{name} {unit}").ok();
        }
        writeln!(self.0, "# HELP {PREFIX}_{name} {help}").ok();
    }

    /// A sample of a family: `suffix` follows its name, and `labels` are as they stand between the braces.
    fn sample(&mut self, family: Family, suffix: &str, labels: &str, value: impl Display) {
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.0, "{PREFIX}_{}{suffix}{braced} {value}", family.name).ok();
    }

    /// A family with a sample for each of `samples`: labels and value.
    fn samples(&mut self, family: Family, samples: impl IntoIterator<Item = (String, u64)>) {
        self.family(family);
        let suffix = if family.kind == "counter" { "_total" } else { "" };
        for (labels, value) in samples {
            self.sample(family, suffix, &labels, value);
        }
    }

    fn single(&mut self, family: Family, value: u64) {
        self.samples(family, [(String::new(), value)]);
    }
}

/// Text that is fit for a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number of units of a power of ten as OpenMetrics writes numbers: in decimals, and never in exponents.
fn decimal(count: u64, per_unit: u64, digits: usize) -> String {
    let (whole, part) = (count / per_unit, count % per_unit);
    let part = format!("{part:0digits$}");
    let part = part.trim_end_matches('0');
    format!("{whole}.{}", if part.is_empty() { "0" } else { part })
}

impl Metrics {
    /// All metrics as OpenMetrics text.
    pub(super) fn to_text(&self) -> String {
        let mut page = Page::default();
        let build = Family {
            name: "build",
            kind: "info",
            unit: "",
            help: "Which collector this is, and how it writes.",
        };
        page.family(build);
        let labels = format!("version=\"{}\",writes=\"{}\"", env!("CARGO_PKG_VERSION"), escaped(&self.way));
        page.sample(build, "_info", &labels, 1);
        self.receiving(&mut page);
        self.storing(&mut page);
        page.0.push_str("# EOF\n");
        page.0
    }

    /// What the receiver and the gate count.
    fn receiving(&self, page: &mut Page) {
        page.single(
            counter("received_messages", "", "Messages from agents: frames and others."),
            self.received.get(),
        );
        page.single(
            counter("received_bytes", "bytes", "Bytes of messages from agents."),
            self.received_bytes.get(),
        );
        page.single(
            counter("sent_messages", "", "Messages to agents: acknowledgements and others."),
            self.sent.get(),
        );
        page.single(
            counter("dropped_messages", "", "Messages that were dropped unread: their peer sends too much."),
            self.dropped.get(),
        );
        let refused = self.refused.iter().map(|(kind, count)| (reason(kind.as_str()), count.get()));
        page.samples(counter("refused_messages", "", "Messages that cannot be used, by reason."), refused);
        page.single(
            counter("admitted_connections", "", "Connections whose key was authorised. None without keys."),
            self.admitted.get(),
        );
        let turned = self.turned.iter().map(|(turned, count)| (reason(turned.as_str()), count.get()));
        page.samples(
            counter("refused_connections", "", "Connections that ended before a first message, by reason."),
            turned,
        );
        page.single(gauge("authorised_keys", "", "Keys of agents that may connect."), self.authorised.get());
    }

    /// What the writers count.
    fn storing(&self, page: &mut Page) {
        let sum = |of: fn(&WriterMetrics) -> u64| self.writers.iter().map(|writer| of(writer)).sum();
        page.single(
            counter("stored_frames", "", "Frames that were committed."),
            sum(|writer| writer.frames.get()),
        );
        page.single(
            counter("stored_samples", "", "Samples that were committed: rows."),
            sum(|writer| writer.samples.get()),
        );
        page.single(
            counter(
                "quarantined_samples",
                "",
                "Samples that were quarantined, because their times are out of range.",
            ),
            sum(|writer| writer.quarantined.get()),
        );
        page.single(
            counter("repeated_frames", "", "Frames that came again and were not stored again."),
            sum(|writer| writer.repeated.get()),
        );
        let lost = LossReason::ALL.iter().enumerate().map(|(at, why)| {
            let of_writer = |writer: &WriterMetrics| writer.losses.get(at).map_or(0, super::Number::get);
            (reason(why.as_str()), self.writers.iter().map(|writer| of_writer(writer)).sum())
        });
        page.samples(
            counter("lost_samples", "", "Samples that are not stored and never will be, by reason."),
            lost,
        );
        page.single(
            counter("store_failures", "", "Attempts at the store that failed, and were or will be repeated."),
            sum(|writer| writer.store_failures.get()),
        );
        let of_writers = |of: fn(&WriterMetrics) -> u64| {
            (0..)
                .zip(&self.writers)
                .map(move |(number, writer): (u32, _)| (format!("writer=\"{number}\""), of(writer)))
        };
        page.samples(
            gauge("store_up", "", "Whether the store answers the writer."),
            of_writers(|writer| 1 - writer.store_away.get().min(1)),
        );
        page.samples(
            gauge("sessions", "", "Sessions of agents that the writer remembers."),
            of_writers(|writer| writer.sessions.get()),
        );
        page.samples(
            gauge("inbox_messages", "", "Messages that wait for the writer."),
            of_writers(|writer| writer.inbox.messages() as u64),
        );
        page.samples(
            gauge("inbox_bytes", "bytes", "Bytes of messages that wait for the writer."),
            of_writers(|writer| writer.inbox.bytes() as u64),
        );
        self.commits(page);
    }

    fn commits(&self, page: &mut Page) {
        let help = "How long commits took, with the time in which the store was away.";
        let family = Family { name: "commit_seconds", kind: "histogram", unit: "seconds", help };
        page.family(family);
        for (number, writer) in self.writers.iter().enumerate() {
            let (buckets, count) = writer.commits.cumulated();
            for (bound_ms, up_to) in buckets {
                let le = decimal(bound_ms, 1_000, 3);
                page.sample(family, "_bucket", &format!("writer=\"{number}\",le=\"{le}\""), up_to);
            }
            let writer_label = format!("writer=\"{number}\"");
            page.sample(family, "_bucket", &format!("{writer_label},le=\"+Inf\""), count);
            page.sample(family, "_count", &writer_label, count);
            page.sample(family, "_sum", &writer_label, decimal(writer.commits.sum_us(), 1_000_000, 6));
        }
    }
}

fn reason(word: &str) -> String {
    format!("reason=\"{word}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_labels_are_as_openmetrics_wants_them() {
        assert_eq!(decimal(1, 1_000, 3), "0.001");
        assert_eq!(decimal(60_000, 1_000, 3), "60.0");
        assert_eq!(decimal(12_345_678, 1_000_000, 6), "12.345678");
        assert_eq!(decimal(0, 1_000, 3), "0.0");
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
