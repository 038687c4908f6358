//! Clients of the HTTP API: streams of live values, and requests for samples in a loop.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};

/// User that the proxy, which is this program, names: an administrator of the collector.
pub(crate) const USER: &str = "daemon";

/// Requests of an open page of a running job in a minute, beside its stream and the plan:
/// page/assets/site/job.js.
const OF_PAGE: [&str; 5] = ["/summary", "/losses", "/summary", "/losses", ""];
const OF_PAGE_NS: u64 = 60 * SECOND_NS;

fn ask(socket: &Path, target: &str, version: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    let head = format!(
        "GET {target} HTTP/{version}\r\nHost: localhost\r\nX-Remote-User: {USER}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

/// Body of an answer, which must have the status 200.
pub(crate) fn get(socket: &Path, target: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    // In version 1.0 the body does not come in chunks.
    ask(socket, target, "1.0")?.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no answer")?;
    if bytes.get(8..13) != Some(b" 200 ") {
        return Err(format!("{target}: {}", String::from_utf8_lossy(&bytes)).into());
    }
    Ok(bytes.split_off(end + 4))
}

pub(crate) struct Clients {
    is_stopping: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
    streams: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn new() -> Self {
        Self {
            is_stopping: Arc::default(),
            bytes: Arc::default(),
            answers: Arc::default(),
            streams: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Opens streams of a job's values, and waits until each has described its series.
    pub(crate) fn watch(socket: &Path, job_key: i64, count: usize) -> Result<Self, Box<dyn Error>> {
        let mut clients = Self::new();
        for _ in 0..count {
            let mut stream = ask(socket, &format!("/api/v1/jobs/{job_key}/live?per_second=1"), "1.1")?;
            let mut head = Vec::new();
            while !head.windows(13).any(|window| window == b"event: series") {
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer)?;
                head.extend_from_slice(buffer.get(..length).unwrap_or_default());
                if length == 0 {
                    return Err(format!("no stream: {}", String::from_utf8_lossy(&head)).into());
                }
            }
            clients.streams.push(stream.try_clone()?);
            let (bytes, events) = (Arc::clone(&clients.bytes), Arc::clone(&clients.answers));
            clients.threads.push(std::thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    bytes.fetch_add(length as u64, Ordering::Relaxed);
                    events.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Ok(clients)
    }

    /// Requests what open pages of a job ask for beside their streams, one request after the other, evenly
    /// over the time. The present plan is left out, since mock agents do not answer.
    pub(crate) fn refresh(socket: &Path, job_key: i64, pages: usize) -> Self {
        let mut clients = Self::new();
        let (socket, is_stopping) = (socket.to_owned(), Arc::clone(&clients.is_stopping));
        let (bytes, answers) = (Arc::clone(&clients.bytes), Arc::clone(&clients.answers));
        let interval_ns = OF_PAGE_NS / (pages.max(1) * OF_PAGE.len()) as u64;
        clients.threads.push(std::thread::spawn(move || {
            let begin_ns = now_ns();
            for number in 0.. {
                sleep_until(begin_ns + (number as u64) * interval_ns);
                if is_stopping.load(Ordering::Relaxed) {
                    return;
                }
                let part = OF_PAGE.get(number % OF_PAGE.len()).copied().unwrap_or_default();
                let Ok(answer) = get(&socket, &format!("/api/v1/jobs/{job_key}{part}")) else { continue };
                bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }));
        clients
    }

    /// Requests the samples of a job in a loop, each time on a new connection.
    pub(crate) fn read(socket: &Path, job_key: i64, count: usize) -> Self {
        let mut clients = Self::new();
        for _ in 0..count {
            let target = format!("/api/v1/jobs/{job_key}/samples?points=600");
            let (socket, is_stopping) = (socket.to_owned(), Arc::clone(&clients.is_stopping));
            let (bytes, answers) = (Arc::clone(&clients.bytes), Arc::clone(&clients.answers));
            clients.threads.push(std::thread::spawn(move || {
                while !is_stopping.load(Ordering::Relaxed) {
                    let Ok(answer) = get(&socket, &target) else { continue };
                    bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        clients
    }

    /// Ends the clients. Returns the number of bytes and of answers, or of reads of streams.
    pub(crate) fn stop(self) -> (u64, u64) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            stream.shutdown(Shutdown::Both).ok();
        }
        for thread in self.threads {
            thread.join().ok();
        }
        (self.bytes.load(Ordering::Relaxed), self.answers.load(Ordering::Relaxed))
    }
}
