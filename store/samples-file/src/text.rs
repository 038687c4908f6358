//! Samples as comma-separated values, and the form of times in text.

use std::io::{self, BufWriter, Write};

use polymeter_service::safe_text::csv_field;
use polymeter_service::time_text::rfc3339;

use crate::rows::{Rows, SeriesTexts};
use crate::writer::{COLUMNS, RowWriter, WriteError};

const BUFFER_BYTES: usize = 1 << 18;

const DAY_US: i64 = 86_400_000_000;

/// Text of times: RFC 3339 in UTC with microseconds. Successive times often lie on the same day, whose text
/// is kept.
#[derive(Debug, Default)]
pub(crate) struct TimeText {
    day: Option<i64>,
    /// `2026-11-22T`.
    text: String,
}

impl TimeText {
    /// Writes a time, given in microseconds since the epoch.
    pub(crate) fn write(&mut self, output: &mut impl Write, time_us: i64) -> io::Result<()> {
        let day = time_us.div_euclid(DAY_US);
        if self.day != Some(day) {
            let text = rfc3339(day * DAY_US);
            let end = text.find('T').map_or(text.len(), |at| at + 1);
            self.text.clear();
            self.text.push_str(text.get(..end).unwrap_or_default());
            self.day = Some(day);
        }
        let of_day = time_us.rem_euclid(DAY_US).unsigned_abs();
        let (second, us) = (of_day / 1_000_000, of_day % 1_000_000);
        let [h, o] = digits(second / 3600);
        let [m, i] = digits(second / 60 % 60);
        let [s, e] = digits(second % 60);
        let [a, b, c, x, y, z] = digits(us);
        output.write_all(self.text.as_bytes())?;
        output.write_all(&[h, o, b':', m, i, b':', s, e, b'.', a, b, c, x, y, z, b'Z'])
    }
}

fn digits<const N: usize>(mut number: u64) -> [u8; N] {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    digits
}

/// Magnitude below which whole numbers are written by [`write_whole`]: doubles are exact there, and have no
/// exponent.
const WHOLE_BELOW: f64 = 1e15;

/// Writes a value as text if it is a whole number, as most values are: that takes a fraction of the time of
/// the general form. Returns false without writing anything if it is not.
pub(crate) fn write_whole(output: &mut impl Write, value: f64) -> io::Result<bool> {
    if value.trunc() != value || value.abs() >= WHOLE_BELOW || (value == 0.0 && value.is_sign_negative()) {
        return Ok(false);
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and below 1e15")]
    let whole = value as i64;
    let text: [u8; 15] = digits(whole.unsigned_abs());
    let leading = text.iter().take(text.len() - 1).take_while(|digit| **digit == b'0').count();
    if whole < 0 {
        output.write_all(b"-")?;
    }
    output.write_all(text.get(leading..).unwrap_or_default())?;
    Ok(true)
}

fn write_number(output: &mut impl Write, number: f64) -> io::Result<()> {
    if write_whole(output, number)? { Ok(()) } else { write!(output, "{number}") }
}

/// Writer of comma-separated values. What only windows have is empty for samples. A text that a spreadsheet would run as a formula is prefixed with an
/// apostrophe.
pub(crate) struct CsvWriter<W: Write> {
    output: BufWriter<W>,
    time: TimeText,
}

impl<W: Write> CsvWriter<W> {
    pub(crate) fn new(output: W) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        writeln!(output, "{}", COLUMNS.join(","))?;
        Ok(Self { output, time: TimeText::default() })
    }
}

impl<W: Write + Send> RowWriter for CsvWriter<W> {
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError> {
        for (series, samples) in rows.series() {
            let texts = texts(series);
            for (time_us, value, window) in samples {
                self.time.write(&mut self.output, time_us)?;
                self.output.write_all(texts.as_bytes())?;
                write_number(&mut self.output, value)?;
                match window {
                    None => self.output.write_all(b",,,,\n")?,
                    Some(window) => {
                        write!(self.output, ",{}", window.count)?;
                        for number in [window.min, window.max, window.sum] {
                            self.output.write_all(b",")?;
                            if !number.is_nan() {
                                write_number(&mut self.output, number)?;
                            }
                        }
                        self.output.write_all(b"\n")?;
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }
}

/// Returns the cells between the time and the value, with the separators around them.
fn texts(series: &SeriesTexts) -> String {
    let SeriesTexts { job_id, node, metric, unit, labels } = series;
    let cells = [job_id.as_deref().unwrap_or_default(), node, metric, unit, labels].map(csv_field);
    format!(",{},", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(time_us: i64) -> String {
        let mut text = Vec::new();
        TimeText::default().write(&mut text, time_us).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn whole(value: f64) -> Option<String> {
        let mut text = Vec::new();
        let is_whole = write_whole(&mut text, value).unwrap();
        assert!(is_whole || text.is_empty());
        is_whole.then(|| String::from_utf8(text).unwrap())
    }

    #[test]
    fn values_that_are_not_whole_are_left_to_the_general_form() {
        for value in [0.5, -0.0, 1e15, -1e15, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(whole(value), None, "{value}");
        }
        for value in [0.0, 1.0, -1.0, 10.0, 999_999_999_999_999.0, -999_999_999_999_999.0] {
            assert_eq!(whole(value), Some(value.to_string()));
        }
    }

    /// Returns numbers of all magnitudes below `2^bits`, of both signs.
    fn numbers(bits: u32) -> impl Iterator<Item = i64> {
        // The multiplier is that of Knuth's MMIX.
        let random = std::iter::successors(Some(1_u64), |number| {
            Some(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        });
        let magnitudes =
            (1..=bits).cycle().zip(random).map(|(bits, number)| (number >> (64 - bits)).cast_signed());
        magnitudes.take(20_000).flat_map(|number| [number, -number])
    }

    #[test]
    fn times_have_the_same_text_as_elsewhere() {
        for time_us in numbers(57).filter(|time_us| time_us.abs() < 60_000_000_000_000_000) {
            let second = rfc3339(time_us.div_euclid(1_000_000) * 1_000_000);
            let end = second.find(['.', 'Z']).unwrap();
            assert_eq!(time(time_us), format!("{}.{:06}Z", &second[..end], time_us.rem_euclid(1_000_000)));
        }
    }

    #[test]
    fn whole_numbers_have_the_same_text_as_in_the_general_form() {
        for number in numbers(49) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let value = number as f64;
            assert_eq!(whole(value), Some(value.to_string()));
        }
    }
}
