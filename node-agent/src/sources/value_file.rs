//! A file of one line, or of a few short ones, whose reads may block.

use std::fs::File;
use std::path::PathBuf;

use polymeter_proto::catalogue::{Cell, Field, RefreshUnit, Scale};
use rustix::io::{Errno, pread};

use super::number;
use super::outcome::Outcome;
use super::reading::Reading;

/// Largest text in bytes: a dozen numbers, or one with its unit.
pub(super) const TEXT_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct ValueFile {
    pub(super) path: PathBuf,
    /// Opened at the first read, because opening may block, too.
    file: Option<File>,
    values: Vec<Value>,
    /// File that states how often the hardware updates the values.
    pub(super) stated: Option<(PathBuf, RefreshUnit)>,
    /// True if it belongs to one of several devices, some of which may lack its values.
    is_instance: bool,
}

#[derive(Debug)]
pub(super) struct Value {
    slot: u32,
    cell: Cell,
    scale: Scale,
    /// Time at which a value with [`Scale::Timed`] was last measured, as it was written.
    measured: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parsed {
    Bits(u64),
    /// Not measured since the last read.
    Unchanged,
    Missing,
}

impl ValueFile {
    pub(super) fn new(
        path: PathBuf,
        value: Value,
        stated: Option<(PathBuf, RefreshUnit)>,
        is_instance: bool,
    ) -> Self {
        Self { path, file: None, values: vec![value], stated, is_instance }
    }

    pub(super) fn push(&mut self, value: Value) {
        self.values.push(value);
    }

    /// Reads the values; those whose text is no number of their scale are absent. If the file belongs to one
    /// of several devices they are lacking: a link that is down has no speed, and a sensor need not count
    /// everything.
    pub(super) fn read(&mut self, reading: &mut Reading) -> Result<(), Outcome> {
        let mut text = [0; TEXT_BYTES];
        match self.read_text(&mut text) {
            Ok(len) => {
                self.parse(text.get(..len).unwrap_or_default(), reading);
                Ok(())
            }
            Err(errno) => {
                self.file = None;
                let is_unsupported = matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS);
                let outcome = Outcome::of_error(errno);
                if self.is_instance && (is_unsupported || outcome == Outcome::Gone) {
                    self.values.iter().for_each(|value| reading.set_lacking(value.slot));
                }
                if self.is_instance && is_unsupported { Ok(()) } else { Err(outcome) }
            }
        }
    }

    fn read_text(&mut self, text: &mut [u8]) -> Result<usize, Errno> {
        if self.file.is_none() {
            let file = File::open(&self.path);
            self.file =
                Some(file.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?);
        }
        let Some(file) = &self.file else { return Ok(0) };
        pread(file, text, 0)
    }

    fn parse(&mut self, text: &[u8], reading: &mut Reading) {
        for value in &mut self.values {
            match value.parse(text) {
                Parsed::Bits(bits) => reading.set(value.slot, bits),
                Parsed::Missing if self.is_instance => reading.set_lacking(value.slot),
                Parsed::Missing | Parsed::Unchanged => {}
            }
        }
    }
}

impl Value {
    pub(super) const fn new(slot: u32, field: Field) -> Self {
        Self { slot, cell: field.cell, scale: field.scale, measured: None }
    }

    fn parse(&mut self, text: &[u8]) -> Parsed {
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let word = match self.cell {
            Cell::Word(number) => words.nth(number),
            Cell::Named(name) => words.find(|word| *word == name.as_bytes()).and_then(|_| words.next()),
            Cell::Each(_) => None,
        };
        let Some(word) = word else { return Parsed::Missing };
        let Ok(Some(bits)) = number::parse(word, self.scale) else { return Parsed::Missing };
        if self.scale == Scale::Timed {
            let time = word.split(|byte| *byte == b'@').nth(1);
            if time.is_some() && time == self.measured.as_deref() {
                return Parsed::Unchanged;
            }
            self.measured = time.map(<[u8]>::to_vec);
        }
        Parsed::Bits(bits)
    }
}

pub(super) fn check(data: &[u8]) {
    use polymeter_proto::catalogue::Row;

    let text = data.get(..TEXT_BYTES).unwrap_or(data);
    let scales = [
        (Scale::Times(4), false),
        (Scale::Limit(1 << 62), false),
        (Scale::Decimal, true),
        (Scale::DecimalTimes(1_000), true),
        (Scale::Until(':'), false),
        (Scale::Timed, false),
        (Scale::Per(1_000), true),
    ];
    for (cell, (scale, is_double)) in [Cell::Word(0), Cell::Word(1), Cell::Named("id")]
        .into_iter()
        .flat_map(|cell| scales.map(|scale| (cell, scale)))
    {
        let mut value = Value::new(0, Field { row: Row::Only, cell, scale });
        match (value.parse(text), value.parse(text)) {
            (Parsed::Bits(bits), again) => {
                assert!(!is_double || f64::from_bits(bits).is_finite(), "{scale:?}");
                assert!(again == Parsed::Bits(bits) || (again == Parsed::Unchanged && scale == Scale::Timed));
            }
            (first, again) => assert_eq!((first, again), (Parsed::Missing, Parsed::Missing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue::Row;

    use super::*;

    fn value(cell: Cell, scale: Scale) -> Value {
        Value::new(0, Field { row: Row::Only, cell, scale })
    }

    fn parse(text: &[u8], scale: Scale) -> Parsed {
        value(Cell::Word(0), scale).parse(text)
    }

    #[test]
    fn scales_values() {
        let bits = Parsed::Bits;
        assert_eq!(parse(b"12\n", Scale::Times(4)), bits(48));
        assert_eq!(parse(b"45500\n", Scale::Per(1000)), bits(45.5_f64.to_bits()));
        assert_eq!(parse(b"-5250\n", Scale::Per(1000)), bits((-5.25_f64).to_bits()));
        assert_eq!(parse(b"4: ACTIVE\n", Scale::Until(':')), bits(4));
        assert_eq!(
            parse(b"2.5 Gb/sec (1X SDR)\n", Scale::DecimalTimes(125_000_000)),
            bits(312_500_000_f64.to_bits())
        );
        assert_eq!(parse(b"", Scale::Times(1)), Parsed::Missing);
        assert_eq!(parse(b"N/A (no PMA)\n", Scale::Times(1)), Parsed::Missing);
        assert_eq!(parse(b"18446744073709551615\n", Scale::Times(4)), Parsed::Missing);
    }

    #[test]
    fn a_value_that_was_not_measured_again_is_absent() {
        let mut value = value(Cell::Word(0), Scale::Timed);
        let mut parse = |text: &str| value.parse(text.as_bytes());
        assert_eq!(parse("27399@1711476022.512340\n"), Parsed::Bits(27_399));
        assert_eq!(parse("27399@1711476022.512340\n"), Parsed::Unchanged);
        assert_eq!(parse("27399@1711476023.512340\n"), Parsed::Bits(27_399), "measured again");
        assert_eq!(parse("12@1711476024.1\n"), Parsed::Bits(12), "after a reset of the device");
        assert_eq!(parse("x@1711476025.1\n"), Parsed::Missing);
        assert_eq!([parse("13\n"), parse("13\n")], [Parsed::Bits(13); 2], "without a time all are new");
    }

    #[test]
    fn a_value_may_follow_its_name() {
        let named = |name, text: &[u8]| value(Cell::Named(name), Scale::Times(1)).parse(text);
        assert_eq!(named("ce:", b"ue: 3\nce: 12\n"), Parsed::Bits(12));
        assert_eq!(named("ue:", b"ue: 3\nce: 12\nde: 1\n"), Parsed::Bits(3));
        assert_eq!(named("de:", b"ue: 3\nce: 12\n"), Parsed::Missing);
        assert_eq!(named("ce:", b"ue: 3\nce:"), Parsed::Missing);
    }
}
