//! Requests in InfluxDB's line protocol: a line for each sample, `METRIC,TAG=VALUE,... value=NUMBER TIME`.
//!
//! The measurement is the metric's name and the tags are the labels of remote_write. The field `value` is
//! always a float, since InfluxDB refuses a field that changes its type. Times are nanoseconds.

use crate::sinks::outbound::{Label, STALE, TimeSeries, WriteRequest};

const MS_NS: i64 = 1_000_000;

/// InfluxDB takes a tag of this name for the time of the point.
const RESERVED_TAG: &str = "time";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) text: Vec<u8>,
    /// Samples that are no numbers, which line protocol cannot state.
    pub(super) not_numbers: u64,
}

impl From<WriteRequest> for Lines {
    /// Marks of ends have no lines: line protocol has none.
    fn from(request: WriteRequest) -> Self {
        let mut lines = Self::default();
        for series in request.timeseries {
            lines.add(&series);
        }
        lines
    }
}

impl Lines {
    fn add(&mut self, series: &TimeSeries) {
        let head = head(&series.labels);
        for sample in &series.samples {
            let value = f64::from_bits(sample.value_bits);
            if sample.value_bits == STALE {
                continue;
            }
            if !value.is_finite() {
                self.not_numbers += 1;
                continue;
            }
            let time_ns = sample.timestamp_ms.saturating_mul(MS_NS);
            // The shortest text that is read as the same number.
            self.text.extend_from_slice(format!("{head} value={value:?} {time_ns}\n").as_bytes());
        }
    }
}

/// Measurement and tags.
fn head(labels: &[Label]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut measurement = String::new();
    let mut tags = String::new();
    for Label { name, value } in labels {
        if &**name == b"__name__" {
            measurement = escaped(&text(value), &[',', ' ']);
        } else if !name.is_empty() && !value.is_empty() {
            let name = if name == RESERVED_TAG { "time_".to_owned() } else { text(name) };
            let special = [',', '=', ' '];
            tags.push_str(&format!(",{}={}", escaped(&name, &special), escaped(&text(value), &special)));
        }
    }
    if measurement.is_empty() {
        "_".clone_into(&mut measurement);
    }
    measurement + &tags
}

/// Puts a backslash before special characters. Line breaks, other control characters and backslashes become
/// `_`, since versions of InfluxDB read them in different ways, and `#` at the beginning, which is a comment.
fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_control() || letter == '\\' || (letter == '#' && escaped.is_empty()) {
            escaped.push('_');
            continue;
        }
        if special.contains(&letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::sinks::outbound::SampleMessage;

    #[derive(Debug, PartialEq)]
    struct Point {
        measurement: String,
        tags: BTreeMap<String, String>,
        fields: BTreeMap<String, f64>,
        time_ns: i64,
    }

    /// Reads up to one of `ends` that no backslash precedes; the rest begins with it.
    fn token<'a>(text: &'a str, ends: &[char]) -> (String, &'a str) {
        let mut found = String::new();
        let mut letters = text.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            if letter == '\\'
                && let Some((_, next)) = letters.peek().copied()
                && [',', '=', ' '].contains(&next)
            {
                found.push(next);
                letters.next();
            } else if ends.contains(&letter) {
                return (found, &text[at..]);
            } else {
                found.push(letter);
            }
        }
        (found, "")
    }

    /// Parser by the specification of line protocol:
    /// `<measurement>[,<tag_key>=<tag_value>...] <field_key>=<field_value>[,...] <timestamp>`.
    fn parse(line: &str) -> Point {
        assert!(!line.starts_with('#'), "a comment: {line}");
        let (measurement, mut rest) = token(line, &[',', ' ']);
        assert!(!measurement.is_empty(), "{line}");
        let mut tags = BTreeMap::new();
        while let Some(tag) = rest.strip_prefix(',') {
            let (key, after) = token(tag, &['=', ',', ' ']);
            let (value, after) = token(after.strip_prefix('=').unwrap(), &[',', ' ', '=']);
            assert!(!key.is_empty() && !value.is_empty() && !after.starts_with('='), "{line}");
            assert!(tags.insert(key, value).is_none(), "{line}");
            rest = after;
        }
        let mut fields = BTreeMap::new();
        let mut next = rest.strip_prefix(' ');
        while let Some(field) = next {
            let (key, after) = token(field, &['=']);
            let (value, after) = token(after.strip_prefix('=').unwrap(), &[',', ' ']);
            // A float has no suffix; digits, a point, a sign and an exponent.
            assert!(value.bytes().all(|byte| byte.is_ascii_digit() || b".-+e".contains(&byte)), "{line}");
            fields.insert(key, value.parse().unwrap());
            rest = after;
            next = rest.strip_prefix(',');
        }
        let time_ns = rest.strip_prefix(' ').unwrap().parse().unwrap();
        Point { measurement, tags, fields, time_ns }
    }

    fn series(labels: &[(String, String)], samples: Vec<(i64, u64)>) -> TimeSeries {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let labels = labels.iter().map(|(name, value)| Label { name: bytes(name), value: bytes(value) });
        let samples =
            samples.into_iter().map(|(timestamp_ms, value_bits)| SampleMessage { value_bits, timestamp_ms });
        TimeSeries { labels: labels.collect(), samples: samples.collect(), start_ms: None }
    }

    fn lines(labels: &[(String, String)], samples: Vec<(i64, u64)>) -> (String, u64) {
        let Lines { text, not_numbers } = WriteRequest { timeseries: vec![series(labels, samples)] }.into();
        (String::from_utf8(text).unwrap(), not_numbers)
    }

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lines_are_those_of_the_specification() {
        let labels = labels(&[
            ("__name__", "polymeter_memory_bytes"),
            ("jobid", "42"),
            ("node", "n 1,a=b"),
            ("x", ""),
        ]);
        let samples = vec![
            (1_767_225_600_000, 1.0_f64.to_bits()),
            (1_767_225_600_001, 1e300_f64.to_bits()),
            (1_767_225_600_002, STALE),
            (1_767_225_600_003, f64::INFINITY.to_bits()),
            (1_767_225_600_004, (-0.25_f64).to_bits()),
        ];
        let expected = "polymeter_memory_bytes,jobid=42,node=n\\ 1\\,a\\=b value=1.0 1767225600000000000\n\
            polymeter_memory_bytes,jobid=42,node=n\\ 1\\,a\\=b value=1e300 1767225600001000000\n\
            polymeter_memory_bytes,jobid=42,node=n\\ 1\\,a\\=b value=-0.25 1767225600004000000\n";
        assert_eq!(lines(&labels, samples), (expected.to_owned(), 1));
    }

    #[test]
    fn what_line_protocol_cannot_state_is_replaced() {
        let labels = labels(&[("__name__", "#a\\"), ("path", "C:\\"), ("text", "a\nb"), ("time", "x")]);
        let (text, _) = lines(&labels, vec![(0, 0)]);
        assert_eq!(text, "_a_,path=C:_,text=a_b,time_=x value=0.0 0\n");
        assert_eq!(lines(&[], vec![(-1, 0)]).0, "_ value=0.0 -1000000\n");
    }

    /// The text that a reader must find.
    fn shown(text: &str) -> String {
        text.chars()
            .enumerate()
            .map(|(at, c)| if c.is_control() || c == '\\' || (at == 0 && c == '#') { '_' } else { c })
            .collect()
    }

    proptest! {
        #[test]
        fn any_labels_and_values_are_read_back(
            name in "[a-z ,=#\\\\\n\u{e9}]{1,6}",
            tags in prop::collection::btree_map("[a-c]{1,3}", "[ -~\t\r\n\u{80}-\u{2fff}]{0,8}", 0..5),
            value in any::<f64>(),
            ms in -1_000_000_000_000_i64..9_000_000_000_000,
        ) {
            let mut all = labels(&[("__name__", &name)]);
            all.extend(tags.clone());
            let (text, not_numbers) = lines(&all, vec![(ms, value.to_bits())]);
            if !value.is_finite() {
                prop_assert!(text.is_empty() && (not_numbers == 1 || value.to_bits() == STALE));
                return Ok(());
            }
            let line = text.strip_suffix('\n').unwrap();
            prop_assert!(!line.contains('\n'));
            let point = parse(line);
            prop_assert_eq!(point.measurement, shown(&name));
            let expected: BTreeMap<String, String> = tags
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (name, shown(&value)))
                .collect();
            prop_assert_eq!(point.tags, expected);
            prop_assert_eq!(point.fields.get("value").map(|found| found.to_bits()), Some(value.to_bits()));
            prop_assert_eq!(point.time_ns, ms * 1_000_000);
        }
    }
}
