//! A receiver that costs little.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polymeter_benches::clock::thread_cpu_ns;

/// A receiver that reads requests and accepts them.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    cpu_ns: Arc<AtomicU64>,
}

impl Receiver {
    /// Starts a receiver, which ends with the process. Without `is_persistent` it asks its clients to close
    /// their connection after each request.
    pub(crate) fn start(is_persistent: bool) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let receiver = Self { address: listener.local_addr()?, cpu_ns: Arc::default() };
        let cpu_ns = Arc::clone(&receiver.cpu_ns);
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let cpu_ns = Arc::clone(&cpu_ns);
                // A connection ends with its measurement.
                std::thread::spawn(move || serve(&stream, is_persistent, &cpu_ns).ok());
            }
        });
        Ok(receiver)
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: &TcpStream, is_persistent: bool, cpu_ns: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, stream);
    let (mut body, mut line) = (Vec::new(), String::new());
    let mut counted_ns = 0;
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        // Receivers of 2.0 state the number of samples; a larger one counts as all of them.
        let close = if is_persistent { "" } else { "Connection: close\r\n" };
        let written = "X-Prometheus-Remote-Write-Samples-Written: 4294967295";
        stream.write_all(format!("HTTP/1.1 204 No Content\r\n{written}\r\n{close}\r\n").as_bytes())?;
        let now_ns = thread_cpu_ns();
        cpu_ns.fetch_add(now_ns - counted_ns, Ordering::Relaxed);
        counted_ns = now_ns;
    }
}
