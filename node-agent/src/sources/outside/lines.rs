//! Lines `name value [time]`, as tools and wattmeters write them. Pure.

use std::collections::BTreeMap;

use polymeter_proto::limits::LABEL_VALUE_BYTES;

use super::connection::VALUES_MAX;

/// Bytes of one line. Longer ones are left out.
pub(super) const LINE_BYTES: usize = 1024;

/// Newest value of a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    pub(super) number: f64,
    /// Time of the measurement as the line states it, in seconds since the epoch.
    pub(super) time: Option<f64>,
}

/// Newest values by name. Lines that are not of the form, and names beyond [`VALUES_MAX`], are left out.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) by_name: BTreeMap<String, Value>,
}

impl Values {
    /// Takes all whole lines of `text`. Returns how many bytes they have.
    pub(super) fn take_lines(&mut self, text: &[u8]) -> usize {
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return 0 };
        let (lines, _) = text.split_at(end + 1);
        for line in lines.split(|byte| *byte == b'\n') {
            self.take_line(line);
        }
        end + 1
    }

    pub(super) fn take_line(&mut self, line: &[u8]) {
        let Some((name, value)) = parse(line) else { return };
        if let Some(known) = self.by_name.get_mut(name) {
            *known = value;
        } else if self.by_name.len() < VALUES_MAX {
            self.by_name.insert(name.to_owned(), value);
        }
    }
}

/// Parses one line: a name without blanks, a number, and perhaps a time in seconds since the epoch.
fn parse(line: &[u8]) -> Option<(&str, Value)> {
    let line = std::str::from_utf8(line).ok().filter(|line| line.len() <= LINE_BYTES)?;
    let mut words = line.split_ascii_whitespace();
    let name = words.next().filter(|name| !name.starts_with('#') && name.len() <= LABEL_VALUE_BYTES)?;
    let finite = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
    let number = finite(words.next()?)?;
    let time = match words.next() {
        None => None,
        Some(word) => Some(finite(word)?),
    };
    words.next().is_none().then_some((name, Value { number, time }))
}

pub(in crate::sources) fn check(data: &[u8]) {
    let mut values = Values::default();
    let taken = values.take_lines(data);
    assert!(taken <= data.len() && values.by_name.len() <= VALUES_MAX);
    for (name, value) in &values.by_name {
        assert!(name.len() <= LABEL_VALUE_BYTES && value.number.is_finite());
    }
    // The end of a text that arrives in two parts makes no difference to the lines before it.
    let mut again = Values::default();
    again.take_lines(data.get(..taken).unwrap_or_default());
    assert_eq!(again.by_name, values.by_name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_lines_only() {
        let mut values = Values::default();
        let text = b"# wattmeter\nn1 12.5 1700000000.02\nn2 -3e2\r\nn1 13 1700000000.04\nbad\nx y\n\
            n3 1 2 3\nn4 NaN\nn5 7";
        assert_eq!(values.take_lines(text), text.len() - 4);
        let expected = [
            ("n1", Value { number: 13.0, time: Some(1_700_000_000.04) }),
            ("n2", Value { number: -300.0, time: None }),
        ];
        assert_eq!(values.by_name, expected.map(|(name, value)| (name.to_owned(), value)).into());
        values.take_line(b"n5 7");
        assert_eq!(values.by_name.len(), 3, "a file need not end in a newline");
    }

    #[test]
    fn names_and_lines_are_bounded() {
        let mut values = Values::default();
        for number in 0..2 * VALUES_MAX {
            values.take_line(format!("n{number} 1").as_bytes());
        }
        assert_eq!(values.by_name.len(), VALUES_MAX);
        let mut values = Values::default();
        values.take_line(format!("{} 1", "n".repeat(300)).as_bytes());
        values.take_line(format!("n {}1", " ".repeat(2000)).as_bytes());
        values.take_line(b"\xff\xfe 1");
        assert!(values.by_name.is_empty());
    }
}
