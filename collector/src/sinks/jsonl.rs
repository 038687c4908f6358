//! A sink of JSON lines, one per sample, to a file, a FIFO or a Unix socket.
//!
//! ```json
//! {"time_us":1767225600000000,"node":"n1","job":"4242","metric":"cpu.usage","unit":"nanoseconds","labels":{},"value":1.5}
//! ```
//!
//! `job` is null for the node's own series, and `value` for NaN. A file is appended to, and created if it is
//! missing. After an error the output is reopened with the next rows; an incomplete line is ended by a
//! newline.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use polymeter_proto::series::Identifier;
use polymeter_store::accepted::SeriesRecord;
use polymeter_store::labels_json;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::sink::{AcceptedRows, RelativePath, Sink, SinkError};

/// Private, since samples reveal the activities of users.
const MODE: u32 = 0o600;

const WRITE_BYTES: usize = 256 * 1024;

pub(super) struct JsonLines {
    path: PathBuf,
    /// None before the first rows, and after an error.
    output: Option<Box<dyn Write + Send>>,
    buffer: Vec<u8>,
    /// The last line may be incomplete.
    is_torn: bool,
}

impl JsonLines {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.into(), output: None, buffer: Vec::new(), is_torn: false }
    }

    pub(super) fn check(path: &str) -> Result<(), RelativePath> {
        if Path::new(path).is_absolute() { Ok(()) } else { Err(RelativePath) }
    }

    fn write(&mut self, rows: &AcceptedRows) -> io::Result<()> {
        let mut output = match self.output.take() {
            Some(output) => output,
            None => open(&self.path)?,
        };
        self.buffer.clear();
        if std::mem::replace(&mut self.is_torn, true) {
            self.buffer.push(b'\n');
        }
        for (series, samples) in rows.series() {
            let (head, tail) = frame_of(series)?;
            for (time_us, value) in samples {
                write!(self.buffer, "{{\"time_us\":{time_us}{head}")?;
                serde_json::to_writer(&mut self.buffer, &value)?;
                self.buffer.extend_from_slice(tail);
                if self.buffer.len() >= WRITE_BYTES {
                    output.write_all(&self.buffer)?;
                    self.buffer.clear();
                }
            }
        }
        output.write_all(&self.buffer)?;
        output.flush()?;
        self.is_torn = false;
        self.output = Some(output);
        Ok(())
    }
}

impl Sink for JsonLines {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        Ok(self.write(rows)?)
    }

    fn reopen(&mut self) {
        self.output = None;
    }
}

/// Parts of a series' lines between the time and the value, and after the value.
fn frame_of(series: &SeriesRecord) -> serde_json::Result<(String, &'static [u8])> {
    let job = series.job.as_ref().map(|job| &job.descriptor);
    let node = serde_json::to_string(series.node().as_str())?;
    let id = serde_json::to_string(&job.map(|job| job.job_id.as_str()))?;
    let cluster = job.and_then(|job| job.cluster.as_ref()).map(Identifier::as_str);
    let cluster = match cluster {
        Some(cluster) => format!(",\"cluster\":{}", serde_json::to_string(cluster)?),
        None => String::new(),
    };
    let (metric, unit) = (series.metric.name.as_str(), series.metric.unit.as_str());
    let (metric, unit) = (serde_json::to_string(metric)?, serde_json::to_string(unit)?);
    let labels = labels_json(&series.labels);
    let head = format!(
        ",\"node\":{node},\"job\":{id}{cluster},\"metric\":{metric},\"unit\":{unit},\"labels\":{labels},\"value\":"
    );
    Ok((head, b"}\n"))
}

fn open(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    let kind = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if kind.is_some_and(|kind| kind.is_socket()) {
        return Ok(Box::new(UnixStream::connect(path)?));
    }
    if kind.is_some_and(|kind| kind.is_fifo()) {
        // While no program reads the FIFO, opening fails instead of waiting.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let fifo = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        fcntl_setfl(&fifo, fcntl_getfl(&fifo)? - OFlags::NONBLOCK)?;
        return Ok(Box::new(fifo));
    }
    let file: File = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
    Ok(Box::new(file))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::super::testing::rows;
    use super::*;

    const LINES: &str = r#"{"time_us":0,"node":"n1","job":"42","metric":"cpu.usage","unit":"count","labels":{"device":"a=ü"},"value":0.0}
{"time_us":1,"node":"n1","job":"42","metric":"cpu.usage","unit":"count","labels":{"device":"a=ü"},"value":1.0}
"#;

    fn sink(path: &Path) -> JsonLines {
        JsonLines::new(path.to_str().unwrap())
    }

    #[test]
    fn writes_a_line_for_each_sample_and_follows_a_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.jsonl");
        let mut sink = sink(&path);
        sink.accept(&rows(2)).unwrap();
        sink.accept(&rows(1)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(LINES) && text.lines().count() == 3, "{text}");
        let rotated = directory.path().join("samples.jsonl.1");
        fs::rename(&path, &rotated).unwrap();
        sink.accept(&rows(1)).unwrap();
        assert_eq!(fs::read_to_string(&rotated).unwrap().lines().count(), 4);
        sink.reopen();
        sink.accept(&rows(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINES);
    }

    #[test]
    fn an_error_costs_its_rows_and_the_next_ones_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("later/samples.jsonl");
        let mut sink = sink(&path);
        sink.accept(&rows(1)).unwrap_err();
        fs::create_dir(path.parent().unwrap()).unwrap();
        sink.accept(&rows(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINES);
    }

    #[test]
    fn writes_to_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut sink = sink(&path);
        sink.accept(&rows(2)).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = vec![0; LINES.len()];
        stream.read_exact(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), LINES);
        // The reader disconnects and reconnects: an incomplete line is ended.
        drop(stream);
        assert!((0..1000).any(|_| sink.accept(&rows(2)).is_err()));
        sink.accept(&rows(2)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let lines: Vec<_> = BufReader::new(stream).lines().take(3).map(Result::unwrap).collect();
        assert_eq!(lines.join("\n") + "\n", format!("\n{LINES}"));
    }

    #[test]
    fn a_fifo_without_a_reader_is_an_error_and_no_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        let mut sink = sink(&path);
        sink.accept(&rows(1)).unwrap_err();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                BufReader::new(File::open(path).unwrap())
                    .lines()
                    .take(2)
                    .map(Result::unwrap)
                    .collect::<Vec<_>>()
            }
        });
        while sink.accept(&rows(2)).is_err() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert_eq!(reader.join().unwrap().join("\n") + "\n", LINES);
    }
}
