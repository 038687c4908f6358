//! Samples as JSON lines.
//!
//! ```json
//! {"time":"2026-11-22T12:34:56.000001Z","job_id":"4242","node":"n1","metric":"cpu.usage","unit":"nanoseconds","labels":{},"value":1.5}
//! ```
//!
//! A window has also `count`, `min`, `max` and `sum`.

use std::io::{self, BufWriter, Write};

use serde_json::Value;

use crate::rows::{Rows, SeriesTexts};
use crate::text::{TimeText, write_whole};
use crate::writer::{RowWriter, WriteError};

const BUFFER_BYTES: usize = 1 << 18;

/// Writer of JSON lines. A value that is no number in JSON, such as NaN, is null.
pub(crate) struct JsonLinesWriter<W: Write> {
    output: BufWriter<W>,
    time: TimeText,
}

impl<W: Write> JsonLinesWriter<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output: BufWriter::with_capacity(BUFFER_BYTES, output), time: TimeText::default() }
    }
}

impl<W: Write + Send> RowWriter for JsonLinesWriter<W> {
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError> {
        for (series, samples) in rows.series() {
            let texts = texts(series);
            for (time_us, value, window) in samples {
                self.output.write_all(b"{\"time\":\"")?;
                self.time.write(&mut self.output, time_us)?;
                self.output.write_all(texts.as_bytes())?;
                write_number(&mut self.output, value)?;
                if let Some(window) = window {
                    write!(self.output, ",\"count\":{}", window.count)?;
                    for (name, number) in [("min", window.min), ("max", window.max), ("sum", window.sum)] {
                        write!(self.output, ",\"{name}\":")?;
                        write_number(&mut self.output, number)?;
                    }
                }
                self.output.write_all(b"}\n")?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }
}

fn write_number(output: &mut impl Write, number: f64) -> io::Result<()> {
    if write_whole(output, number)? {
        return output.write_all(b".0");
    }
    serde_json::to_writer(output, &number).map_err(io::Error::from)
}

/// Returns the members between the time and the value.
fn texts(series: &SeriesTexts) -> String {
    let SeriesTexts { job_id, node, metric, unit, labels } = series;
    let json = |text: &str| Value::from(text).to_string();
    let job_id = job_id.as_deref().map_or_else(|| "null".to_owned(), json);
    let (node, metric, unit) = (json(node), json(metric), json(unit));
    format!(
        "\",\"job_id\":{job_id},\"node\":{node},\"metric\":{metric},\"unit\":{unit},\"labels\":{labels},\"value\":"
    )
}
