//! A process that does what it is told: this test binary once more, in its test `workload`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::wait_until;

/// Set where the process is to be a workload. Its words, if there are any, are done at once instead of those on stdin.
pub const ROLE: &str = "POLYMETER_E2E_WORKLOAD";

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What a test binary runs to be a workload.
pub fn arguments() -> [&'static str; 5] {
    ["--ignored", "--exact", "workload", "--nocapture", "--test-threads=1"]
}

/// The body of the test `workload`. Does nothing where nobody asked for it.
pub fn main() {
    let Ok(words) = std::env::var(ROLE) else { return };
    // So that every page is a fault of its own.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let mut held = Vec::new();
    if words.is_empty() {
        println!("\nworkload: ready");
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| obey(&line, &mut held));
    } else {
        words.split(';').for_each(|line| obey(line, &mut held));
    }
    println!("\nworkload: cpu_ns {}", cpu().as_nanos());
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

fn obey(line: &str, held: &mut Vec<Vec<u8>>) {
    let (word, number) = line.trim().split_once(' ').unwrap_or((line.trim(), "0"));
    if word == "ask" {
        let (socket, request) = number.split_once(' ').unwrap();
        println!("\nworkload: answer {}", super::daemons::ask(socket.as_ref(), &format!("{request}\n")));
        return;
    }
    let number: u64 = number.parse().unwrap();
    match word {
        "touch" => {
            let mut block = vec![0_u8; usize::try_from(number).unwrap() * PAGE];
            block.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            held.push(block);
        }
        "burn" => {
            let end = cpu() + Duration::from_millis(number);
            while cpu() < end {
                std::hint::spin_loop();
            }
        }
        "rest" => super::pause(number),
        "stop" => {
            println!("workload: done");
            kill_process(getpid(), Signal::STOP).unwrap();
            return;
        }
        other => panic!("a workload cannot `{other}`"),
    }
    println!("workload: done");
}

/// A workload that runs beside the test. It ends with it.
pub struct Workload {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments())
            .env(ROLE, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut workload = Self { child, stdin, stdout: BufReader::new(stdout) };
        workload.hear("workload: ready");
        workload
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something, and waits until it has.
    pub fn obey(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.hear("workload: done");
    }

    /// Has it stop itself, and waits until every thread of it has.
    pub fn stop(&mut self) {
        self.obey("stop");
        let tasks = format!("/proc/{}/task", self.pid());
        wait_until("the workload has stopped", || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }

    fn hear(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the workload ended before `{wanted}`");
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A plain process that only lives.
pub struct Sleeper(Child);

impl Sleeper {
    pub fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    /// One that is a user's.
    pub fn start_as(uid: u32) -> Self {
        Self(Command::new("sleep").arg("600").uid(uid).gid(uid).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
