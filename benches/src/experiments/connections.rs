//! Measures the memory that a connection costs the receiving process, as its queues fill.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use polymeter_benches::process::{KilledOnDrop, resident_kib};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::key::KeyPair;
use zmq::{Context, Socket};

/// Bytes of a message and of its answer: those of a frame with 50 samples, and of an acknowledgement.
const BYTES: (usize, usize) = (400, 20);

/// Numbers of messages after which memory is read. Blocks of queues have 256 entries, and a queue keeps two.
const MESSAGES: [usize; 3] = [1, 101, 600];

const PATIENCE_MS: i32 = 60_000;

/// Sockets in one ZeroMQ context. The default limit is 1023, which the crate cannot change.
const SOCKETS_PER_CONTEXT: usize = 1_000;

/// Measures the memory of a connection in the process that receives.
///
/// The receiver is a process of its own with a ROUTER socket, as in a collector; each connection sends
/// messages, and the receiver answers each of them. LD_LIBRARY_PATH selects another libzmq.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of connections.
    #[arg(long, default_value_t = 500)]
    connections: usize,
    /// Use few connections, as a functional check.
    #[arg(long)]
    quick: bool,
    /// Fail if a connection takes more memory in the end, in KiB.
    #[arg(long, value_name = "KIB")]
    at_most: Option<f64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    polymeter_agent::kernel::raise_descriptor_limit();
    let connections = if arguments.quick { 20 } else { arguments.connections.max(1) };
    table::machine();
    let (major, minor, patch) = zmq::version();
    let made = zmq::CurveKeyPair::new()?;
    let keys = KeyPair::new(made.public_key, made.secret_key);
    let measured = [("plain", measure(connections, None)?), ("CURVE", measure(connections, Some(&keys))?)];
    let rows: Vec<_> = measured.iter().map(|(name, kib)| row(name, kib)).collect();
    say(&format!(
        "libzmq {major}.{minor}.{patch}; {connections} connections, messages of {} bytes, answers of {}; resident memory of the receiver \
         per connection, in KiB",
        BYTES.0, BYTES.1
    ));
    say("");
    let titles = MESSAGES.map(|messages| format!("after {messages}"));
    let titles: Vec<&str> = ["connections"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    table::table(&titles, &rows);
    let most = measured.iter().filter_map(|(_, kib)| kib.last().copied()).fold(0.0, f64::max);
    match arguments.at_most {
        Some(limit) if most > limit => {
            Err(format!("a connection takes {most:.1} KiB, more than {limit}; LD_LIBRARY_PATH selects another libzmq, as of `make libzmq`").into())
        }
        _ => Ok(()),
    }
}

fn row(name: &str, kib: &[f64]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(kib.iter().map(|kib| format!("{kib:.1}"))).collect()
}

/// Memory per connection in KiB, for each of [`MESSAGES`].
fn measure(connections: usize, keys: Option<&KeyPair>) -> Result<Vec<f64>, Box<dyn Error>> {
    let receiver = Receiver::start(keys)?;
    let contexts: Vec<_> = (0..connections.div_ceil(SOCKETS_PER_CONTEXT)).map(|_| Context::new()).collect();
    // What does not depend on the number of connections is allocated before.
    let first = connect(&Context::new(), &receiver.endpoint, keys)?;
    exchange(std::slice::from_ref(&first), 10)?;
    let before_kib = resident_kib(receiver.process.id())?;
    let sockets: Vec<_> = contexts
        .iter()
        .cycle()
        .take(connections)
        .map(|context| connect(context, &receiver.endpoint, keys))
        .collect::<Result<_, _>>()?;
    let (mut sent, mut results) = (0, Vec::new());
    for messages in MESSAGES {
        exchange(&sockets, messages - sent)?;
        sent = messages;
        let kib = resident_kib(receiver.process.id())?.saturating_sub(before_kib);
        results.push(to_f64(kib) / to_f64(connections as u64));
    }
    Ok(results)
}

fn connect(context: &Context, endpoint: &str, keys: Option<&KeyPair>) -> Result<Socket, zmq::Error> {
    let socket = context.socket(zmq::DEALER)?;
    socket.set_linger(0)?;
    socket.set_sndtimeo(PATIENCE_MS)?;
    socket.set_rcvtimeo(PATIENCE_MS)?;
    if let Some(keys) = keys {
        let own = zmq::CurveKeyPair::new()?;
        socket.set_curve_serverkey(keys.public.as_bytes())?;
        socket.set_curve_publickey(&own.public_key)?;
        socket.set_curve_secretkey(&own.secret_key)?;
    }
    socket.connect(endpoint)?;
    Ok(socket)
}

fn exchange(sockets: &[Socket], messages: usize) -> Result<(), zmq::Error> {
    let message = vec![0x5a; BYTES.0];
    for _ in 0..messages {
        sockets.iter().try_for_each(|socket| socket.send(message.as_slice(), 0))?;
        sockets.iter().try_for_each(|socket| socket.recv_bytes(0).map(drop))?;
    }
    Ok(())
}

struct Receiver {
    process: KilledOnDrop,
    endpoint: String,
}

impl Receiver {
    fn start(keys: Option<&KeyPair>) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["part", "receiver"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = KilledOnDrop(command.spawn()?);
        // Closed after the keys, since the receiver reads to the end of the file.
        let mut stdin = process.stdin.take().ok_or("the receiver has no standard input")?;
        stdin.write_all(keys.map(|keys| keys.to_text("receiver")).unwrap_or_default().as_bytes())?;
        drop(stdin);
        let stdout = process.stdout.take().ok_or("the receiver has no standard output")?;
        let mut endpoint = String::new();
        BufReader::new(stdout).read_line(&mut endpoint)?;
        Ok(Self { process, endpoint: endpoint.trim_end().to_owned() })
    }
}

/// Answers messages until the process is killed.
pub(crate) fn receive() -> Result<(), Box<dyn Error>> {
    polymeter_agent::kernel::raise_descriptor_limit();
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
        if let [peer, _] = message.as_slice() {
            socket.send_multipart([peer.as_slice(), &[0x5a; BYTES.1]], 0)?;
        }
    }
}
