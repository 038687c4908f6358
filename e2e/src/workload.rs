//! The program `e2e-workload`: a process that uses CPU time, memory, the network and files on command.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::wait_until;

/// Size of a page, in bytes.
pub const PAGE: usize = 4096;

pub fn program() -> PathBuf {
    crate::program("e2e-workload").get_program().into()
}

/// Executes the commands in the first argument, separated by `;`, or those on standard input if there is
/// none. Prints its CPU time at the end.
pub fn main() {
    let commands = std::env::args().nth(1);
    // Without huge pages, each page causes a page fault of its own.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let mut held = Vec::new();
    if let Some(commands) = commands {
        commands.split(';').for_each(|command| execute(command, &mut held));
    } else {
        println!("\nworkload: ready");
        std::io::stdin().lines().map_while(Result::ok).for_each(|command| execute(&command, &mut held));
    }
    println!("\nworkload: cpu_ns {}", cpu().as_nanos());
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

fn execute(command: &str, held: &mut Vec<Vec<u8>>) {
    let (verb, number) = command.trim().split_once(' ').unwrap_or((command.trim(), "0"));
    if verb == "ask" {
        let (socket, request) = number.split_once(' ').unwrap();
        println!("\nworkload: answer {}", crate::daemons::ask(socket.as_ref(), &format!("{request}\n")));
        return;
    }
    let number: u64 = number.parse().unwrap();
    match verb {
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
        "rest" => crate::pause(number),
        "send" => send_datagrams(number),
        "write" => {
            let bytes = vec![7; usize::try_from(number).unwrap()];
            tempfile::tempfile().unwrap().write_all(&bytes).unwrap();
        }
        "stop" => {
            println!("workload: done");
            kill_process(getpid(), Signal::STOP).unwrap();
            return;
        }
        other => panic!("a workload cannot `{other}`"),
    }
    println!("workload: done");
}

/// Sends datagrams of 1000 bytes to itself, over the loopback interface.
fn send_datagrams(count: u64) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = socket.local_addr().unwrap();
    for _ in 0..count {
        socket.send_to(&[7; 1000], own).unwrap();
        socket.recv(&mut [0; 1000]).unwrap();
    }
}

/// A workload that runs beside the test and is killed with it.
pub struct Workload {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    pub fn start() -> Self {
        let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut workload = Self { child, stdin, stdout: BufReader::new(stdout) };
        workload.wait_for("workload: ready");
        workload
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command and waits until it is done.
    pub fn execute(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
        self.wait_for("workload: done");
    }

    /// Stops the workload with SIGSTOP and waits until each of its threads has stopped.
    pub fn stop(&mut self) {
        self.execute("stop");
        let tasks = format!("/proc/{}/task", self.pid());
        wait_until("the workload has stopped", || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }

    fn wait_for(&mut self, wanted: &str) {
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

pub struct Sleeper(Child);

impl Sleeper {
    pub fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

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
