//! Reads of samples through the collector, as `polymeter report` does on a login node, and directly from the
//! store.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use polymeter_benches::clock::now_ns;
use polymeter_benches::store::Store;
use polymeter_benches::table::to_f64;
use polymeter_proto::control::ReadRequest;
use polymeter_proto::read::{Frame, LENGTH_BYTES, Query, RowBlock, frame_length};
use polymeter_store::StoreError;
use polymeter_store::reader::{Read, Reader, SeriesScope};

use super::reads::Runs;
use super::scale::Serving;

/// Values of one job, read both ways.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) count: u64,
    /// Directly from the store.
    pub(crate) direct: Runs,
    /// Runs through the collector.
    pub(crate) through: Runs,
    /// Growth of the collector's resident memory during a run.
    pub(crate) growth_mib: Runs,
}

/// Reads at most `limit` values of a job repeatedly, in turns. A run contains the connection, the job and its
/// series.
pub(crate) fn values(store: &Store, job: u64, limit: u64, runs: u16) -> Result<Values, Box<dyn Error>> {
    let serving = Serving::start(store)?;
    let (socket, collector) = (PathBuf::from(serving.socket()), &serving.collector);
    let (job, mut values) = (job.to_string(), Values::default());
    for _ in 0..runs {
        let begin_ns = now_ns();
        values.count = read(&mut Reader::open(&store.url().parse()?)?, &job, limit)?;
        values.direct.seconds.push(to_f64(now_ns() - begin_ns) / 1e9);
        let before_kib = resident_kib(collector.pid())?;
        let begin_ns = now_ns();
        let count = read(&mut SocketReader::connect(&socket)?, &job, limit)?;
        values.through.seconds.push(to_f64(now_ns() - begin_ns) / 1e9);
        let grown_kib = peak_kib(collector.pid())?.saturating_sub(before_kib);
        values.growth_mib.seconds.push(to_f64(grown_kib) / 1024.0);
        if count != values.count || count == 0 {
            return Err(format!("{count} values through the collector, {} directly", values.count).into());
        }
    }
    serving.collector.stop()?;
    Ok(values)
}

/// Reads at most `limit` values of a job, and returns their number.
fn read(reader: &mut dyn Read, job: &str, limit: u64) -> Result<u64, Box<dyn Error>> {
    let job = reader.last_job(Some(job))?.ok_or("the job is not stored")?;
    let of = SeriesScope::Job(job.job_key);
    let series: Vec<i64> = reader.series(of)?.iter().map(|series| series.series_id).collect();
    let (mut count, mut sum) = (0, 0.0);
    let ended = reader.samples(of, &series, &job.sampled_ns, |sample| {
        count += 1;
        sum += sample.value;
        if count < limit { Ok(()) } else { Err(Ended::Enough) }
    });
    std::hint::black_box(sum);
    match ended {
        Ok(()) | Err(Ended::Enough) => Ok(count),
        Err(Ended::Failed(error)) => Err(error.into()),
    }
}

enum Ended {
    Enough,
    Failed(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Resident memory of a process, whose maximum begins anew.
fn resident_kib(pid: u32) -> Result<u64, Box<dyn Error>> {
    // proc(5): resets the maximum of the resident memory.
    fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    status_kib(pid, "VmRSS:")
}

fn peak_kib(pid: u32) -> Result<u64, Box<dyn Error>> {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    Ok(value.ok_or("the kernel does not report the memory")?.parse()?)
}

/// A session of reading at the collector's socket.
struct SocketReader(BufReader<UnixStream>);

impl SocketReader {
    fn connect(socket: &Path) -> Result<Self, Box<dyn Error>> {
        let mut stream = UnixStream::connect(socket)?;
        writeln!(stream, "{}", ReadRequest::LINE)?;
        let (mut stream, mut answer) = (BufReader::new(stream), String::new());
        stream.read_line(&mut answer)?;
        if answer.contains("\"reading\"") { Ok(Self(stream)) } else { Err(answer.into()) }
    }

    fn frame(&mut self) -> Result<Frame, Box<dyn Error>> {
        let mut head = [0; LENGTH_BYTES];
        self.0.read_exact(&mut head)?;
        let mut content = vec![0; frame_length(head)?];
        self.0.read_exact(&mut content)?;
        Ok(Frame::decode(&content)?)
    }
}

impl Read for SocketReader {
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let failed = |error: &dyn std::fmt::Display| StoreError::Unusable(error.to_string());
        self.0.get_mut().write_all(&query.to_line()).map_err(|error| failed(&error))?;
        loop {
            match self.frame().map_err(|error| failed(&error))? {
                Frame::Rows(block) => {
                    if each(block).is_break() {
                        return Ok(());
                    }
                }
                Frame::End => return Ok(()),
                Frame::Error(error) => return Err(failed(&error.message)),
            }
        }
    }
}
