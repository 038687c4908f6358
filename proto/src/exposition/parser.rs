//! Parser of the text format 0.0.4 and of OpenMetrics 1.0: bytes to events, line by line.
//!
//! It copies nothing that has no escape, and remembers no line. A line that is invalid is an error of its own;
//! the next call continues behind it, so that one bad value costs no other.

use std::borrow::Cow;

use super::page::Format;
use crate::limits::LABELS;

/// Longest line. Those of real exporters have at most some thousand bytes.
const LINE_BYTES: usize = 64 * 1024;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Summary,
    Info,
    StateSet,
    /// Also `untyped` of 0.0.4.
    Unknown,
}

impl FamilyKind {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "gaugehistogram" => Self::GaugeHistogram,
            "summary" => Self::Summary,
            "info" => Self::Info,
            "stateset" => Self::StateSet,
            "unknown" | "untyped" => Self::Unknown,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    /// Sorted as in the text.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    pub value: f64,
    /// Time that the exporter states, in microseconds since the epoch.
    pub time_us: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    Kind {
        family: &'a str,
        kind: FamilyKind,
    },
    /// Help of a family, with its escapes.
    Help {
        family: &'a str,
        text: &'a str,
    },
    Sample(Sample<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    #[error("the text is no UTF-8")]
    Encoding,
    #[error("a line has more than {LINE_BYTES} bytes")]
    LongLine,
    #[error("the name of a metric is invalid")]
    Name,
    #[error("the type of a metric is unknown")]
    Kind,
    #[error("the labels of a sample are invalid")]
    Labels,
    #[error("a sample has more than {LABELS} labels")]
    ManyLabels,
    #[error("a sample has a label twice")]
    RepeatedLabel,
    #[error("the value of a sample is no number")]
    Value,
    #[error("the time of a sample is no number, or out of range")]
    Time,
    #[error("there is text behind `# EOF`")]
    BehindEnd,
    #[error("the text ends without `# EOF`")]
    NoEnd,
}

/// Fault with its line, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Fault {
    pub line: u64,
    pub fault: InvalidText,
}

#[derive(Debug, Clone)]
pub struct Parser<'a> {
    rest: &'a [u8],
    format: Format,
    line: u64,
    has_ended: bool,
}

impl<'a> Parser<'a> {
    pub const fn new(text: &'a [u8], format: Format) -> Self {
        Self { rest: text, format, line: 0, has_ended: false }
    }

    fn event(&mut self, line: &'a [u8]) -> Result<Option<Event<'a>>, InvalidText> {
        if self.has_ended {
            return if line.is_empty() { Ok(None) } else { Err(InvalidText::BehindEnd) };
        }
        if line.len() > LINE_BYTES {
            return Err(InvalidText::LongLine);
        }
        let line = std::str::from_utf8(line).map_err(|_invalid| InvalidText::Encoding)?;
        let line = line.trim_matches(BLANKS);
        let Some(comment) = line.strip_prefix('#') else {
            return if line.is_empty() {
                Ok(None)
            } else {
                sample(line, self.format).map(Event::Sample).map(Some)
            };
        };
        if self.format == Format::OpenMetrics && comment == " EOF" {
            self.has_ended = true;
            return Ok(None);
        }
        metadata(comment.trim_start_matches(BLANKS))
    }
}

impl<'a> Iterator for Parser<'a> {
    type Item = Result<Event<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len());
            let (line, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
            self.rest = rest.get(1..).unwrap_or_default();
            self.line += 1;
            match self.event(line) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(fault) => return Some(Err(Fault { line: self.line, fault })),
            }
        }
        // An exporter that was cut off would else look as if it had lost series.
        if self.format == Format::OpenMetrics && !self.has_ended {
            self.has_ended = true;
            return Some(Err(Fault { line: self.line, fault: InvalidText::NoEnd }));
        }
        None
    }
}

const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// Splits a text at its first blank, and drops the blanks.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(BLANKS).unwrap_or((text, ""));
    (word, rest.trim_start_matches(BLANKS))
}

/// Comments that say nothing of a family are ignored, and so are units: the name ends in them.
fn metadata(comment: &str) -> Result<Option<Event<'_>>, InvalidText> {
    let (keyword, rest) = word(comment);
    if !matches!(keyword, "TYPE" | "HELP") {
        return Ok(None);
    }
    let (family, rest) = word(rest);
    if !is_metric_name(family) {
        return Err(InvalidText::Name);
    }
    Ok(Some(match keyword {
        "TYPE" => Event::Kind { family, kind: FamilyKind::of(rest).ok_or(InvalidText::Kind)? },
        _ => Event::Help { family, text: rest },
    }))
}

fn is_metric_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().enumerate().all(|(at, byte)| byte == b':' || is_name_byte(at, byte))
}

fn is_label_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().enumerate().all(|(at, byte)| is_name_byte(at, byte))
}

const fn is_name_byte(at: usize, byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit())
}

fn sample(line: &str, format: Format) -> Result<Sample<'_>, InvalidText> {
    let end = line.find(|c| c == '{' || BLANKS.contains(&c)).ok_or(InvalidText::Value)?;
    let (name, rest) = line.split_at_checked(end).ok_or(InvalidText::Name)?;
    if !is_metric_name(name) {
        return Err(InvalidText::Name);
    }
    let rest = rest.trim_start_matches(BLANKS);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let (value, rest) = word(rest.trim_start_matches(BLANKS));
    let value = number(value).ok_or(InvalidText::Value)?;
    // An exemplar follows in OpenMetrics.
    let (time, rest) = if rest.starts_with('#') { ("", rest) } else { word(rest) };
    let is_exemplar = format == Format::OpenMetrics && rest.starts_with('#');
    if !rest.is_empty() && !is_exemplar {
        return Err(InvalidText::Time);
    }
    let time_us = if time.is_empty() { None } else { Some(time_us(time, format).ok_or(InvalidText::Time)?) };
    Ok(Sample { name, labels, value, time_us })
}

/// A number of Go's `strconv.ParseFloat`, but without hexadecimal digits and underscores.
fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_word = ["nan", "inf", "infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word));
    (is_word || digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')).then(|| text.parse().ok())?
}

/// Milliseconds of the text format, or seconds of OpenMetrics.
fn time_us(text: &str, format: Format) -> Option<i64> {
    match format {
        Format::Text => text.parse::<i64>().ok()?.checked_mul(1000),
        Format::OpenMetrics => {
            let us = number(text)? * 1e6;
            // Any time that the stores can keep is far below 2^53 microseconds.
            (us.abs() < 9e15).then(|| exact(us))
        }
    }
}

/// Rounds a number below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "the caller has checked the range")]
fn exact(number: f64) -> i64 {
    number.round() as i64
}

type LabelPairs<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Parses labels behind their opening brace, and returns what follows the closing one.
fn labels(mut text: &str) -> Result<(LabelPairs<'_>, &str), InvalidText> {
    let mut pairs: LabelPairs<'_> = Vec::new();
    loop {
        text = text.trim_start_matches(BLANKS);
        // A comma behind the last label is allowed.
        if let Some(rest) = text.strip_prefix('}') {
            return Ok((pairs, rest));
        }
        let (name, rest) = text.split_once('=').ok_or(InvalidText::Labels)?;
        let name = name.trim_end_matches(BLANKS);
        let value = rest.trim_start_matches(BLANKS).strip_prefix('"').ok_or(InvalidText::Labels)?;
        let end = end_of_quotes(value).ok_or(InvalidText::Labels)?;
        let (value, rest) = value.split_at_checked(end).ok_or(InvalidText::Labels)?;
        if !is_label_name(name) {
            return Err(InvalidText::Labels);
        }
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(InvalidText::RepeatedLabel);
        }
        if pairs.len() >= LABELS {
            return Err(InvalidText::ManyLabels);
        }
        pairs.push((name, unescaped(value)));
        text = rest.strip_prefix('"').unwrap_or(rest).trim_start_matches(BLANKS);
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None if text.starts_with('}') => {}
            None => return Err(InvalidText::Labels),
        }
    }
}

/// Position of the quote that ends a value.
fn end_of_quotes(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(position),
            _ => {}
        }
    }
    None
}

/// Replaces `\\`, `\n` and `\"`; other backslashes stay, as in Prometheus.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some(escaped @ ('\\' | '"')) => plain.push(escaped),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/node_exporter");
    const DCGM: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/dcgm");
    const LUSTRE: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/lustre");
    const IPMI: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/ipmi");
    const OPEN_METRICS: &[u8] = include_bytes!("../../../e2e/fuzz/corpus/exposition/openmetrics");

    fn events(text: &[u8], format: Format) -> Vec<Event<'_>> {
        Parser::new(text, format).collect::<Result<_, _>>().unwrap()
    }

    fn samples(text: &[u8], format: Format) -> Vec<Sample<'_>> {
        let events = events(text, format).into_iter();
        events
            .filter_map(|event| if let Event::Sample(sample) = event { Some(sample) } else { None })
            .collect()
    }

    fn label<'a>(sample: &'a Sample<'_>, name: &str) -> &'a str {
        sample.labels.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value).unwrap()
    }

    fn fault(text: &str, format: Format) -> Option<InvalidText> {
        Parser::new(text.as_bytes(), format).find_map(|item| item.err().map(|fault| fault.fault))
    }

    #[test]
    fn reads_node_exporter() {
        let samples = samples(NODE, Format::Text);
        assert_eq!(samples.len(), 11);
        let of = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap();
        assert_eq!(of("go_gc_duration_seconds").value, 4.9351e-05);
        assert_eq!(label(of("node_filesystem_avail_bytes"), "mountpoint"), "/a \"b\" \\ c\nd");
        assert!(of("node_hwmon_temp_crit_celsius").value.is_nan());
        assert_eq!(of("node_hwmon_temp_max_celsius").value, f64::INFINITY);
        assert_eq!(of("node_textfile_mtime_seconds").time_us, Some(1_700_000_000_123_000));
        assert_eq!(
            *of("node_load1"),
            Sample { name: "node_load1", labels: vec![], value: 0.21, time_us: None }
        );
        let kinds = events(NODE, Format::Text).into_iter();
        let kinds =
            kinds.filter_map(|event| if let Event::Kind { kind, .. } = event { Some(kind) } else { None });
        let expected = [FamilyKind::Summary, FamilyKind::Counter, FamilyKind::Gauge, FamilyKind::Gauge];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn reads_exporters_of_devices() {
        let gpu = samples(DCGM, Format::Text);
        assert_eq!(
            (label(&gpu[0], "modelName"), label(&gpu[1], "hpc_job")),
            ("NVIDIA A100-SXM4-80GB", "4711")
        );
        assert_eq!(gpu[1].value, 27_346_811_123.0);
        let lustre = samples(LUSTRE, Format::Text);
        assert_eq!(
            (label(&lustre[0], "jobid"), lustre[0].value),
            ("4711.u1001", 18_446_744_073_709_551_616.0)
        );
        let ipmi = samples(IPMI, Format::Text);
        assert_eq!((ipmi[0].name, ipmi[0].value), ("ipmi_dcmi_power_consumption_watts", 184.0));
        assert!(ipmi[2].value.is_nan() && label(&ipmi[3], "name") == "PS Redundancy");
    }

    #[test]
    fn reads_openmetrics_with_exemplars() {
        let samples = samples(OPEN_METRICS, Format::OpenMetrics);
        assert_eq!(samples[0].time_us, Some(1_700_000_000_250_000));
        assert_eq!((samples[2].value, samples[2].time_us), (8.0, None));
        assert_eq!((samples[3].value, samples[3].time_us), (17.0, Some(1_500_000)));
        assert_eq!(samples.last().unwrap().value, f64::NEG_INFINITY);
        let help = Event::Help { family: "a_seconds", text: r#"A "time" \\ of \n work."# };
        assert!(events(OPEN_METRICS, Format::OpenMetrics).contains(&help));
    }

    #[test]
    fn a_page_of_our_own_is_read_back() {
        let mut page = super::super::Page::default();
        let labels = |text: &str| {
            let mut labels = super::super::LabelSet::default();
            labels.add("path", text);
            labels
        };
        let kind = crate::series::Kind::Counter;
        page.add_named(("x_total", kind), "A \\ \"help\".", labels("C:\\n \"\n\"}"), 1.5e300);
        for format in [Format::Text, Format::OpenMetrics] {
            let text = page.to_text(format);
            let read = samples(text.as_bytes(), format);
            assert_eq!((read[0].name, read[0].value), ("x_total", 1.5e300));
            assert_eq!(label(&read[0], "path"), "C:\\n \"\n\"}");
        }
    }

    #[test]
    fn a_bad_line_is_a_fault_of_its_own() {
        for (text, expected) in [
            ("1a 1", InvalidText::Name),
            ("a{b=\"c\"}", InvalidText::Value),
            ("a", InvalidText::Value),
            ("a 1_0", InvalidText::Value),
            ("a 0x1", InvalidText::Value),
            ("a +-1", InvalidText::Value),
            ("a 1 x", InvalidText::Time),
            ("a 1 9223372036854775807", InvalidText::Time),
            ("a 1 1 1", InvalidText::Time),
            ("a 1 # {}", InvalidText::Time),
            ("a{b} 1", InvalidText::Labels),
            ("a{b=\"c} 1", InvalidText::Labels),
            ("a{b=\"c\\\"} 1", InvalidText::Labels),
            ("a{b=\"c\"d=\"e\"} 1", InvalidText::Labels),
            ("a{1=\"c\"} 1", InvalidText::Labels),
            ("a{b=\"1\",b=\"2\"} 1", InvalidText::RepeatedLabel),
            ("# TYPE a thing", InvalidText::Kind),
            ("# HELP 1", InvalidText::Name),
        ] {
            assert_eq!(fault(text, Format::Text), Some(expected), "{text}");
            let text = format!("{text}\n\nb 2");
            let good = Parser::new(text.as_bytes(), Format::Text).filter(Result::is_ok).count();
            assert_eq!(good, 1, "{text}");
        }
        assert_eq!(fault("a 1\n", Format::OpenMetrics), Some(InvalidText::NoEnd));
        assert_eq!(fault("a 1\n# EOF\nb 1", Format::OpenMetrics), Some(InvalidText::BehindEnd));
        assert_eq!(fault("# EOF\n", Format::OpenMetrics), None);
        assert_eq!(fault("a{} 1\r\n# a comment\n#\n", Format::Text), None);
        let latin: Vec<_> = Parser::new(b"a{b=\"\xe4\"} 1\nb 1\n", Format::Text).collect();
        assert_eq!(latin[0], Err(Fault { line: 1, fault: InvalidText::Encoding }));
        assert!(latin[1].is_ok());
    }

    #[test]
    fn lines_and_labels_are_bounded() {
        let long = format!("a{{b=\"{}\"}} 1", "x".repeat(LINE_BYTES));
        assert_eq!(fault(&long, Format::Text), Some(InvalidText::LongLine));
        let labels =
            |count| (0..count).map(|number| format!("l{number}=\"1\"")).collect::<Vec<_>>().join(",");
        assert_eq!(fault(&format!("a{{{}}} 1", labels(LABELS)), Format::Text), None);
        let many = fault(&format!("a{{{}}} 1", labels(LABELS + 1)), Format::Text);
        assert_eq!(many, Some(InvalidText::ManyLabels));
    }
}
