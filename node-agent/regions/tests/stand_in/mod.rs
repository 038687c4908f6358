//! A stand-in for the agent, which keeps what it is sent, and a program that waits for its input.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) process: u64,
    pub(crate) rank: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) name: String,
    pub(crate) entries: u64,
    pub(crate) time_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) thread_ns: u64,
    pub(crate) threads: u64,
}

#[derive(Debug, Default)]
struct Received {
    requests: usize,
    regions: BTreeMap<(Process, String), Region>,
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    directory: Option<tempfile::TempDir>,
    received: Arc<(Mutex<Received>, Condvar)>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Takes connections that nobody answers.
    _silent: Option<UnixListener>,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    /// Starts one whose socket is in a directory.
    pub(crate) fn start_in(directory: tempfile::TempDir) -> Self {
        let mut agent = Self::without_thread(directory);
        let listener = UnixListener::bind(&agent.socket).unwrap();
        let (received, is_stopping) = (Arc::clone(&agent.received), Arc::clone(&agent.is_stopping));
        agent.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_stopping.load(Ordering::SeqCst) {
                    return;
                }
                serve(stream.unwrap(), &received);
            }
        }));
        agent
    }

    /// Starts one that answers nothing.
    pub(crate) fn silent() -> Self {
        let mut agent = Self::without_thread(tempfile::tempdir().unwrap());
        agent._silent = Some(UnixListener::bind(&agent.socket).unwrap());
        agent
    }

    fn without_thread(directory: tempfile::TempDir) -> Self {
        Self {
            socket: directory.path().join("agent.sock"),
            directory: Some(directory),
            received: Arc::default(),
            is_stopping: Arc::default(),
            thread: None,
            _silent: None,
        }
    }

    pub(crate) fn stop(mut self) -> tempfile::TempDir {
        self.end();
        self.directory.take().unwrap()
    }

    fn end(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            UnixStream::connect(&self.socket).unwrap();
            thread.join().unwrap();
            std::fs::remove_file(&self.socket).unwrap();
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.received.0.lock().unwrap().requests
    }

    pub(crate) fn all(&self) -> Vec<(Process, Region)> {
        let received = self.received.0.lock().unwrap();
        received.regions.iter().map(|((process, _), region)| (process.clone(), region.clone())).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Region> {
        self.all().into_iter().map(|(_, region)| region).find(|region| region.name == name)
    }

    pub(crate) fn region(&self, name: &str) -> Region {
        self.find(name).unwrap_or_else(|| panic!("{name}: {:?}", self.all()))
    }

    pub(crate) fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            let (received, changed) = &*self.received;
            let guard = received.lock().unwrap();
            drop(changed.wait_timeout(guard, std::time::Duration::from_millis(100)).unwrap());
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(stream: UnixStream, received: &(Mutex<Received>, Condvar)) {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    let request: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&request["verb"], &request["job"]), (&"regions".into(), &"j".into()));
    let mut kept = received.0.lock().unwrap();
    kept.requests += 1;
    let process = Process { process: request["process"].as_u64().unwrap(), rank: request["rank"].as_u64() };
    for region in request["regions"].as_array().unwrap() {
        let number = |field: &str| region[field].as_u64().unwrap();
        let name = region["name"].as_str().unwrap().to_owned();
        let region = Region {
            name: name.clone(),
            entries: number("entries"),
            time_ns: number("time_ns"),
            self_ns: number("self_ns"),
            thread_ns: number("thread_ns"),
            threads: number("threads"),
        };
        if let Some(before) = kept.regions.insert((process.clone(), name), region.clone()) {
            assert!(
                before.entries <= region.entries && before.time_ns <= region.time_ns,
                "{before:?} {region:?}"
            );
        }
    }
    received.1.notify_all();
    (&stream).write_all(b"{\"answer\":\"done\"}\n").unwrap();
}

/// A program that prints a line and waits for one in turn.
#[derive(Debug)]
pub(crate) struct Interactive {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Interactive {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub(crate) fn wait_for_line(&mut self) {
        assert!(self.output.read_line(&mut String::new()).unwrap() > 0, "the program has ended");
    }

    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}
