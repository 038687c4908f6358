//! The measurement of one source against a bare read.

use std::error::Error;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use polymeter_agent::sources::reader_thread::{FinishedReads, ThreadedSource};
use polymeter_agent::sources::{Outcome, ReadBuffer, Reading, Source};
use polymeter_benches::clock::{now_ns, sleep_until, thread_cpu_ns};
use polymeter_benches::statistics::median;
use polymeter_benches::table::to_f64;

/// Longest wait for a read of the slow lane.
const READ_NS: u64 = 60_000_000_000;

/// A source of the slow lane is read this many times less often.
const SLOW_PART: u64 = 10;

/// A file that is read without parsing.
#[derive(Debug)]
pub(crate) struct Bare {
    file: File,
    buffer: Vec<u8>,
}

impl Bare {
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { file, buffer: vec![0; 64 * 1024] })
    }

    /// Mean CPU time of some reads, in nanoseconds.
    fn read(&mut self, reads: u64) -> Result<f64, Box<dyn Error>> {
        let began_ns = thread_cpu_ns();
        for _ in 0..reads {
            rustix::io::pread(self.file.as_fd(), &mut self.buffer, 0)?;
        }
        Ok(to_f64(thread_cpu_ns() - began_ns) / to_f64(reads))
    }
}

#[derive(Debug)]
pub(crate) struct Cost {
    /// CPU time of a read.
    pub(crate) ns: f64,
    pub(crate) bare_ns: f64,
    /// Median of the ratios of the rounds.
    pub(crate) ratio: f64,
    pub(crate) values: usize,
}

impl Cost {
    /// Measures a source in turns with the bare read.
    pub(crate) fn measure(
        source: &mut Source,
        bare: &mut Bare,
        rounds: usize,
        reads: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let mut buffer = ReadBuffer::default();
        let mut reading = Reading::absent(source.slots().len());
        // The first reads let buffers grow and open devices, and may be the first of two between which a rate
        // is computed.
        read(source, &mut buffer, &mut reading, 2)?;
        bare.read(2)?;
        let (mut costs, mut bares, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let bare_ns = bare.read(reads)?;
            let ns = read(source, &mut buffer, &mut reading, reads)?;
            costs.push(ns);
            bares.push(bare_ns);
            ratios.push(ns / bare_ns.max(1.0));
        }
        let values = reading.iter().flatten().count();
        Ok(Self { ns: median(costs), bare_ns: median(bares), ratio: median(ratios), values })
    }
}

/// Mean CPU time of some reads, in nanoseconds.
fn read(
    source: &mut Source,
    buffer: &mut ReadBuffer,
    reading: &mut Reading,
    reads: u64,
) -> Result<f64, Box<dyn Error>> {
    if let Source::Threaded(threaded) = source {
        return read_threaded(threaded, reading, reads.div_ceil(SLOW_PART));
    }
    let began_ns = thread_cpu_ns();
    for _ in 0..reads {
        check(source.read(buffer, reading))?;
    }
    Ok(to_f64(thread_cpu_ns() - began_ns) / to_f64(reads))
}

fn read_threaded(source: &ThreadedSource, reading: &mut Reading, reads: u64) -> Result<f64, Box<dyn Error>> {
    let finished = Arc::new(FinishedReads::default());
    let mut cpu_ns = 0;
    for _ in 0..reads {
        let values = std::mem::take(reading);
        source.request(values, None, &finished).map_err(|_reading| "a read is under way already")?;
        let until_ns = now_ns() + READ_NS;
        let read = loop {
            match source.take_finished() {
                Some(read) => break read,
                None if now_ns() > until_ns => return Err("a read does not return".into()),
                None => sleep_until(now_ns() + 20_000),
            }
        };
        check(read.outcome)?;
        cpu_ns += read.cpu_ns;
        *reading = read.reading;
    }
    Ok(to_f64(cpu_ns) / to_f64(reads))
}

fn check(outcome: Outcome) -> Result<(), Box<dyn Error>> {
    match outcome {
        // Quantities that a device lacks are found out by its first reads.
        Outcome::Read | Outcome::Changed => Ok(()),
        Outcome::Gone | Outcome::Retry(_) | Outcome::Fault(_) => {
            Err(format!("a read failed: {outcome:?}").into())
        }
    }
}
