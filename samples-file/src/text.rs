//! Samples as comma-separated values, and the form of times in text.

use std::io::{self, BufWriter, Write};

use polymeter_service::clock::rfc3339;
use polymeter_service::safe_text::spreadsheet_cell;

use crate::rows::{Rows, SeriesTexts};
use crate::writer::{COLUMNS, RowWriter, WriteError};

/// The size of the output's buffer.
const BUFFER_BYTES: usize = 1 << 18;

/// The text of times: RFC 3339 in UTC with microseconds. Successive times often lie in the same second, whose text is kept.
#[derive(Debug, Default)]
pub(crate) struct TimeText {
    second: Option<i64>,
    /// `2026-11-22T12:34:56`.
    text: String,
}

impl TimeText {
    /// Writes a time, given in microseconds since the epoch.
    pub(crate) fn write(&mut self, output: &mut impl Write, time_us: i64) -> io::Result<()> {
        let (second, us) = (time_us.div_euclid(1_000_000), time_us.rem_euclid(1_000_000));
        if self.second != Some(second) {
            let text = rfc3339(second * 1_000_000);
            let end = text.find(['.', 'Z']).unwrap_or(text.len());
            self.text.clear();
            self.text.push_str(text.get(..end).unwrap_or_default());
            self.second = Some(second);
        }
        write!(output, "{}.{us:06}Z", self.text)
    }
}

/// A writer of comma-separated values. A text that a spreadsheet would run as a formula is prefixed with an apostrophe.
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
            let texts = texts(series)?;
            for (time_us, value) in samples {
                self.time.write(&mut self.output, time_us)?;
                writeln!(self.output, "{texts}{value}")?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }
}

/// Returns the cells between the time and the value, with the separators around them.
fn texts(series: &SeriesTexts) -> Result<String, WriteError> {
    let SeriesTexts { job_id, node, metric, unit, labels } = series;
    let cells = [job_id.as_deref().unwrap_or_default(), node, metric, unit, labels].map(spreadsheet_cell);
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(cells.iter().map(|cell| cell.as_bytes())).map_err(io::Error::from)?;
    let bytes = csv.into_inner().map_err(csv::IntoInnerError::into_error)?;
    let line = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok(format!(",{},", line.trim_end_matches('\n')))
}
