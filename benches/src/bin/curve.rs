//! Measures the agent's cost of encryption: CPU and wall time of sending frames over TCP on loopback, alternately with and
//! without CURVE.
//!
//! `cargo run --release --bin curve`. Needs no privileges. The receiver is a separate process, so that the CPU time of this
//! process is the sender's: the sending thread and ZeroMQ's I/O threads.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Parser;
use polymeter_benches::failure::Failure;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::key::KeyPair;
use rustix::time::{ClockId, clock_gettime};
use zmq::{Context, Socket};

/// Frame sizes, in bytes: one tick of a job, a second at 10 ms, a second at 1 ms, and several jobs at 1 ms together.
const SIZES: [usize; 4] = [128, 2 * 1024, 16 * 1024, 128 * 1024];

/// The number of bytes sent for one measurement.
const BYTES: usize = 64 * 1024 * 1024;

/// The maximum number of frames sent for one measurement.
const FRAMES_MAX: usize = 50_000;

/// The message that ends a measurement, and the receiver's reply to it.
const END: &[u8] = b"end";

/// The timeout of each send and receive, in milliseconds.
const PATIENCE_MS: i32 = 60_000;

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of rounds; the medians are reported.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Run one round with little data, as a functional check.
    #[arg(long)]
    quick: bool,
    /// Run the receiver, which reads its keys from standard input.
    #[arg(long, hide = true)]
    receive: bool,
}

/// The cost of one measurement.
#[derive(Debug, Clone, Copy)]
struct Cost {
    cpu_s: f64,
    wall_s: f64,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    if arguments.receive {
        return Ok(receive()?);
    }
    let (rounds, bytes) = if arguments.quick { (1, BYTES / 64) } else { (arguments.rounds.max(1), BYTES) };
    table::machine();
    let made = zmq::CurveKeyPair::new()?;
    let keys = KeyPair::new(made.public_key, made.secret_key);
    let (plain, encrypted) = (Way::open(None)?, Way::open(Some(&keys))?);
    let mut results = Vec::new();
    for size in SIZES {
        let frames = (bytes / size).min(FRAMES_MAX);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            without.push(plain.send(size, frames)?);
            with.push(encrypted.send(size, frames)?);
        }
        results.push(row(size, frames, &without, &with));
    }
    say(&format!("{rounds} rounds in turns, medians; the sender's process, over TCP on loopback"));
    say("");
    table::table(
        &[
            "bytes per frame",
            "frames a round",
            "CPU per frame, plain",
            "CPU per frame, CURVE",
            "ratio",
            "CPU per MB, plain",
            "CPU per MB, CURVE",
            "wall per MB, plain",
            "wall per MB, CURVE",
            "ratio",
        ],
        &results,
    );
    Ok(())
}

fn row(size: usize, frames: usize, without: &[Cost], with: &[Cost]) -> Vec<String> {
    let cpu = |costs: &[Cost]| median(costs.iter().map(|cost| cost.cpu_s));
    let wall = |costs: &[Cost]| median(costs.iter().map(|cost| cost.wall_s));
    let mb = to_f64((size * frames) as u64) / 1e6;
    let per_frame = |seconds: f64| format!("{:.2} µs", seconds * 1e6 / to_f64(frames as u64));
    let per_mb = |seconds: f64| format!("{:.2} ms", seconds * 1e3 / mb);
    vec![
        size.to_string(),
        frames.to_string(),
        per_frame(cpu(without)),
        per_frame(cpu(with)),
        format!("{:.2}", cpu(with) / cpu(without)),
        per_mb(cpu(without)),
        per_mb(cpu(with)),
        per_mb(wall(without)),
        per_mb(wall(with)),
        format!("{:.2}", wall(with) / wall(without)),
    ]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A connection to a receiver.
struct Way {
    socket: Socket,
    _context: Context,
    receiver: Child,
}

impl Way {
    fn open(keys: Option<&KeyPair>) -> Result<Self, Box<dyn Error>> {
        let mut receiver = Command::new(std::env::current_exe()?)
            .arg("--receive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // Closed after the keys, since the receiver reads to the end of the file.
        let mut stdin = receiver.stdin.take().ok_or("the receiver has no standard input")?;
        stdin.write_all(keys.map(|keys| keys.to_text("receiver")).unwrap_or_default().as_bytes())?;
        drop(stdin);
        let mut endpoint = String::new();
        let stdout = receiver.stdout.take().ok_or("the receiver has no standard output")?;
        BufReader::new(stdout).read_line(&mut endpoint)?;
        let context = Context::new();
        let socket = context.socket(zmq::DEALER)?;
        socket.set_linger(0)?;
        socket.set_sndhwm(64)?;
        socket.set_sndtimeo(PATIENCE_MS)?;
        socket.set_rcvtimeo(PATIENCE_MS)?;
        if let Some(keys) = keys {
            let own = zmq::CurveKeyPair::new()?;
            socket.set_curve_serverkey(keys.public.as_bytes())?;
            socket.set_curve_publickey(&own.public_key)?;
            socket.set_curve_secretkey(&own.secret_key)?;
        }
        socket.connect(endpoint.trim())?;
        let way = Self { socket, _context: context, receiver };
        // Excludes the handshake and first-use costs from the measurement.
        way.send(1024, 100)?;
        Ok(way)
    }

    fn send(&self, size: usize, frames: usize) -> Result<Cost, zmq::Error> {
        let frame = vec![0x5a; size];
        let (cpu_s, wall_s) = (seconds(ClockId::ProcessCPUTime), seconds(ClockId::Monotonic));
        for _ in 0..frames {
            self.socket.send(frame.as_slice(), 0)?;
        }
        self.socket.send(END, 0)?;
        self.socket.recv_bytes(0)?;
        Ok(Cost {
            cpu_s: seconds(ClockId::ProcessCPUTime) - cpu_s,
            wall_s: seconds(ClockId::Monotonic) - wall_s,
        })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // It may have exited already, after an error.
        self.receiver.kill().ok();
        self.receiver.wait().ok();
    }
}

fn seconds(clock: ClockId) -> f64 {
    Duration::try_from(clock_gettime(clock)).map_or(0.0, |time| time.as_secs_f64())
}

/// Receives frames until the process is killed, and replies to the end of each measurement.
fn receive() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let socket = Context::new().socket(zmq::ROUTER)?;
    if !text.is_empty() {
        socket.set_curve_server(true)?;
        socket.set_curve_secretkey(KeyPair::from_text(&text)?.secret.as_bytes())?;
    }
    socket.bind("tcp://127.0.0.1:*")?;
    say(&socket.get_last_endpoint()?.unwrap_or_default());
    loop {
        let message = socket.recv_multipart(0)?;
        if let [peer, payload] = message.as_slice()
            && payload == END
        {
            socket.send_multipart([peer.as_slice(), END], 0)?;
        }
    }
}
