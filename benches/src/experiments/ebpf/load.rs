//! The events that a job causes, as many as it can.

use std::error::Error;
use std::fmt;
use std::io::{IoSlice, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;

use clap::ValueEnum;
use polymeter_benches::clock::{now_ns, process_cpu_ns};
use polymeter_benches::table::{say, to_f64};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::counting::Counted;

/// The kind of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Datagrams over the loopback interface, 64 of them in one system call. Each is sent and received by the
    /// job.
    Packets,
    /// Datagrams that a thread on each CPU sends, and which the loopback interface of a network namespace of
    /// its own discards: the most that this machine can send.
    Sends,
    /// Two threads on one CPU that wake each other.
    Switches,
    /// Reads of one byte of a file in the page cache.
    Reads,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packets => "packets",
            Self::Sends => "sends",
            Self::Switches => "switches",
            Self::Reads => "reads",
        })
    }
}

impl Kind {
    /// Metrics whose program is measured.
    pub(crate) const fn metrics(self) -> &'static str {
        match self {
            Self::Packets | Self::Sends => "network.*",
            Self::Switches => "runqueue.*",
            Self::Reads => "vfs.*",
        }
    }

    /// Metric that counts the events.
    pub(crate) const fn counter(self) -> &'static str {
        match self {
            Self::Packets | Self::Sends => "network.transmit.packets",
            Self::Switches => "runqueue.wait.count",
            Self::Reads => "vfs.read.count",
        }
    }

    /// The first variant is the base. The program of the network is on the cgroup, and none runs for other
    /// jobs.
    pub(crate) fn variants(self) -> Vec<Counted> {
        match self {
            Self::Packets | Self::Sends => vec![Counted::Nothing, Counted::Job],
            Self::Switches | Self::Reads => vec![Counted::Nothing, Counted::OtherJob, Counted::Job],
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) events: u64,
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
}

impl Measured {
    pub(crate) fn cost_ns(&self) -> f64 {
        to_f64(self.cpu_ns) / to_f64(self.events.max(1))
    }
}

/// Datagrams in one system call.
const BATCH: usize = 64;

/// Batches that a thread sends before it ends: some tens of milliseconds.
const BATCHES: usize = 512;

/// Causes some events and counts them.
type Cause = Box<dyn FnMut() -> Result<u64, Box<dyn Error>>>;

/// Causes events for as many milliseconds as each line of the standard input says, and prints what was
/// measured.
pub(crate) fn cause(kind: Kind) -> Result<(), Box<dyn Error>> {
    let mut cause: Option<Cause> = None;
    for line in std::io::stdin().lines() {
        let ms: u64 = line?.trim().parse()?;
        let cause = match &mut cause {
            Some(cause) => cause,
            None => cause.insert(match kind {
                Kind::Packets => packets()?,
                Kind::Sends => sends()?,
                Kind::Switches => switches()?,
                Kind::Reads => reads()?,
            }),
        };
        let (start_ns, start_cpu_ns) = (now_ns(), process_cpu_ns());
        let end_ns = start_ns + ms * 1_000_000;
        let mut events = 0;
        while now_ns() < end_ns {
            events += cause()?;
        }
        let (wall_ns, cpu_ns) = (now_ns() - start_ns, process_cpu_ns() - start_cpu_ns);
        say(&serde_json::to_string(&Measured { events, wall_ns, cpu_ns })?);
    }
    Ok(())
}

/// Sends a batch to a socket that is never read: its buffer is full, and each datagram passes both programs.
fn packets() -> Result<Cause, Box<dyn Error>> {
    let (from, to) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    from.connect(to.local_addr()?)?;
    Ok(Box::new(move || {
        // The receiver lives as long as the sender.
        let _receiver = &to;
        Ok(send_batch(&from)?)
    }))
}

fn send_batch(from: &UdpSocket) -> std::io::Result<u64> {
    let payload = [IoSlice::new(&[7; 16])];
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        (0..BATCH).map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<MMsgHdr<'_>> =
        controls.iter_mut().map(|control| MMsgHdr::new(&payload, control)).collect();
    Ok(sendmmsg(from, &mut messages, SendFlags::empty())? as u64)
}

/// Sends batches by a thread on each CPU, in the network namespace of this process.
fn sends() -> Result<Cause, Box<dyn Error>> {
    for command in ["ip link set lo up", "tc qdisc replace dev lo root blackhole"] {
        let mut words = command.split(' ');
        let status = Command::new(words.next().unwrap_or_default()).args(words).status();
        if !status.map_err(|error| format!("{command}: {error}; install iproute2"))?.success() {
            return Err(format!("{command} failed").into());
        }
    }
    let cpus = thread::available_parallelism()?.get();
    let sockets: Vec<UdpSocket> = (0..cpus)
        .map(|_| -> std::io::Result<UdpSocket> {
            let from = UdpSocket::bind("127.0.0.1:0")?;
            from.connect("127.0.0.2:9")?;
            Ok(from)
        })
        .collect::<std::io::Result<_>>()?;
    Ok(Box::new(move || {
        thread::scope(|scope| {
            let threads: Vec<_> = sockets
                .iter()
                .map(|from| {
                    scope.spawn(|| (0..BATCHES).map(|_| send_batch(from)).sum::<std::io::Result<u64>>())
                })
                .collect();
            let sent = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0)));
            Ok(sent.sum::<std::io::Result<u64>>()?)
        })
    }))
}

/// A round trip between two threads on one CPU: two switches.
fn switches() -> Result<Cause, Box<dyn Error>> {
    let mut cpus = CpuSet::new();
    cpus.set(0);
    sched_setaffinity(None, &cpus)?;
    let (mut here_from, mut there_to) = std::io::pipe()?;
    let (mut there_from, mut here_to) = std::io::pipe()?;
    std::thread::spawn(move || {
        let mut byte = [0];
        while there_from.read_exact(&mut byte).is_ok() && there_to.write_all(&byte).is_ok() {}
    });
    Ok(Box::new(move || {
        for _ in 0..BATCH {
            here_to.write_all(&[1])?;
            here_from.read_exact(&mut [0])?;
        }
        Ok(2 * BATCH as u64)
    }))
}

/// A batch of reads.
fn reads() -> Result<Cause, Box<dyn Error>> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&[7])?;
    Ok(Box::new(move || {
        for _ in 0..BATCH {
            file.read_exact_at(&mut [0], 0)?;
        }
        Ok(BATCH as u64)
    }))
}
