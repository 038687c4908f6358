//! The eBPF programs on the kernel of this machine, with traffic of real processes in cgroups of version 2.
//!
//! The program starts itself for the processes of jobs and for a second agent: the variable [`ROLE`] says which.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a fault of a test is a failed test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::sources::{Opened, ReadBuffer, Reading, SourceFactory, Target, follow_created_cgroups};
use polymeter_proto::catalogue;
use polymeter_test_harness::{run, skip, tests};

tests![
    datagrams_are_counted_exactly,
    datagrams_of_ipv6_are_counted_exactly,
    segments_of_a_stream_are_counted,
    cgroups_below_count_for_the_job,
    // A process that another test starts has the links for a moment, until it is another program.
    exclusive sources_on_one_cgroup_are_independent,
    exclusive nothing_stays_attached_after_a_kill,
    exclusive a_cgroup_that_is_created_again_continues,
    reasons_name_what_is_missing,
    without_rights_the_reason_names_them,
];

/// The variable of the environment that makes this program a process of a job, or another agent.
const ROLE: &str = "POLYMETER_EBPF_TEST_ROLE";

fn main() -> ExitCode {
    match std::env::var(ROLE) {
        Ok(role) => play(&role),
        Err(_) => return run(&[TESTS]),
    }
    ExitCode::SUCCESS
}

/// Plays the role `NAME:CGROUP`: says what it did in lines, and obeys lines.
fn play(role: &str) {
    let (name, cgroup) = role.split_once(':').unwrap();
    match name {
        "datagrams" => {
            fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
            exchange_datagrams();
        }
        "stream" => {
            fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
            let [port, bytes] = numbers(&line(&mut std::io::stdin().lock()));
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port as u16)).unwrap();
            stream.write_all(&vec![7; bytes]).unwrap();
            // The other end confirms that it has all of it.
            stream.read_exact(&mut [0]).unwrap();
            println!("done");
        }
        "agent" => {
            let source = open(Path::new(cgroup)).unwrap();
            println!("open");
            line(&mut std::io::stdin().lock());
            drop(source);
        }
        "user" => {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            println!("{}", open(Path::new(cgroup)).unwrap_err());
        }
        other => panic!("no role `{other}`"),
    }
}

/// Returns a socket of the loopback that fails where no datagram arrives.
fn bound(loopback: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((loopback, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Sends datagrams on request: `PORT COUNT BYTES`; receives them where the port is 0.
fn exchange_datagrams() {
    let loopback: IpAddr = line(&mut std::io::stdin().lock()).parse().unwrap();
    let socket = bound(loopback);
    println!("{}", socket.local_addr().unwrap().port());
    loop {
        let request = line(&mut std::io::stdin().lock());
        if request.is_empty() {
            return;
        }
        let [port, count, bytes] = numbers(&request);
        for _ in 0..count {
            if port == 0 {
                assert_eq!(socket.recv(&mut [0; 4096]).unwrap(), bytes);
            } else {
                socket.send_to(&vec![7; bytes], (loopback, port as u16)).unwrap();
            }
        }
        println!("done");
    }
}

/// Reads one line; an empty text is the end.
fn line(input: &mut impl BufRead) -> String {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn numbers<const N: usize>(text: &str) -> [usize; N] {
    let numbers: Vec<usize> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// A process in a role.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, cgroup: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, format!("{role}:{}", cgroup.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn tell(&mut self, request: &str) {
        writeln!(self.input, "{request}").unwrap();
    }

    fn answer(&mut self) -> String {
        line(&mut self.output)
    }

    /// Waits for its end, after which it is in no cgroup.
    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// A process that sends and receives datagrams at an address of the loopback interface.
struct Talker {
    process: Process,
    address: SocketAddr,
}

impl Talker {
    fn start(cgroup: &Path, loopback: IpAddr) -> Self {
        let mut process = Process::start("datagrams", cgroup);
        process.tell(&loopback.to_string());
        let port = process.answer().parse().unwrap();
        Self { process, address: SocketAddr::new(loopback, port) }
    }

    /// Sends datagrams to a socket of this process, which receives them. They must fit into the socket's buffer together.
    fn send(&mut self, to: &UdpSocket, count: usize, bytes: usize) {
        self.process.tell(&format!("{} {count} {bytes}", to.local_addr().unwrap().port()));
        for _ in 0..count {
            assert_eq!(to.recv(&mut [0; 4096]).unwrap(), bytes);
        }
        assert_eq!(self.process.answer(), "done");
    }

    /// Receives datagrams from a socket of this process.
    fn receive(&mut self, from: &UdpSocket, count: usize, bytes: usize) {
        for _ in 0..count {
            from.send_to(&vec![7; bytes], self.address).unwrap();
        }
        self.process.tell(&format!("0 {count} {bytes}"));
        assert_eq!(self.process.answer(), "done");
    }
}

/// A cgroup of version 2, which is removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup, or skips the test.
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            skip("root", "the tests do not run as root");
        }
        let mounts = Mounts::read(Path::new("/")).unwrap();
        let Some(root) = mounts.v2 else { skip("cgroup2", "cgroups of version 2 are not mounted") };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("polymeter-ebpf-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Self(path),
            Err(error) => skip("cgroup2", &format!("{}: {error}", path.display())),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a cgroup. A process that has ended a moment ago may still be in it.
fn remove(cgroup: &Path) {
    for _ in 0..100 {
        if fs::remove_dir(cgroup).is_ok() {
            return;
        }
        polymeter_agent::clock::sleep(Duration::from_millis(10));
    }
}

/// Opens the sources of the network's metrics of a target. Returns the reason if they are unavailable.
fn open_target(target: &Target) -> Result<Opened, String> {
    let mounts = Mounts::read(Path::new("/")).unwrap();
    let factory = SourceFactory::of(&mounts);
    let wanted = catalogue::select(&"network.*".parse().unwrap());
    assert_eq!(wanted.len(), 4);
    let (mut opened, unavailable) = factory.open(target, &wanted);
    match opened.pop() {
        Some(one) => {
            assert!(opened.is_empty() && unavailable.is_empty());
            Ok(one)
        }
        None => {
            assert_eq!(unavailable.len(), 4);
            Err(unavailable[0].reason.clone())
        }
    }
}

fn open(cgroup: &Path) -> Result<Opened, String> {
    open_target(&Target::Cgroups(JobCgroups { v2: Some(cgroup.to_owned()), ..JobCgroups::default() }))
}

/// Opens the source of a cgroup, or skips the test.
fn counted(cgroup: &Path) -> Opened {
    open(cgroup).unwrap_or_else(|reason| skip("ebpf", &reason))
}

/// Reads the source: received bytes and packets, transmitted bytes and packets.
fn read(opened: &mut Opened) -> [u64; 4] {
    let mut reading = Reading::absent(opened.source.slots().len());
    assert!(opened.source.read(&mut ReadBuffer::default(), &mut reading).has_values());
    let names = opened.source.slots().iter().map(|slot| slot.definition.name());
    let values: BTreeMap<String, Option<u64>> = names.zip(reading.iter()).collect();
    let quantities = ["receive.bytes", "receive.packets", "transmit.bytes", "transmit.packets"];
    quantities.map(|quantity| values[&format!("network.{quantity}")].unwrap())
}

fn check_datagrams(loopback: IpAddr, header: u64) {
    let (job, other) = (Cgroup::create(), Cgroup::create());
    let (mut job_source, mut other_source) = (counted(&job.0), counted(&other.0));
    assert_eq!((read(&mut job_source), read(&mut other_source)), ([0; 4], [0; 4]));
    let here = bound(loopback);
    let mut in_job = Talker::start(&job.0, loopback);
    let mut in_other = Talker::start(&other.0, loopback);
    in_job.send(&here, 40, 1000);
    in_other.send(&here, 7, 11);
    let sent = [0, 0, 40 * (1000 + header), 40];
    assert_eq!(read(&mut job_source), sent);
    assert_eq!(read(&mut other_source), [0, 0, 7 * (11 + header), 7]);
    in_job.receive(&here, 30, 300);
    // From one job to the other.
    in_other.process.tell(&format!("{} 5 50", in_job.address.port()));
    assert_eq!(in_other.process.answer(), "done");
    in_job.process.tell("0 5 50");
    assert_eq!(in_job.process.answer(), "done");
    let received = [30 * (300 + header) + 5 * (50 + header), 35];
    assert_eq!(read(&mut job_source), [received[0], received[1], sent[2], sent[3]]);
    assert_eq!(read(&mut other_source), [0, 0, 7 * (11 + header) + 5 * (50 + header), 12]);
    in_job.process.end();
    in_other.process.end();
}

fn datagrams_are_counted_exactly() {
    // IPv4 and UDP: 20 and 8 bytes.
    check_datagrams(IpAddr::V4(Ipv4Addr::LOCALHOST), 28);
}

fn datagrams_of_ipv6_are_counted_exactly() {
    if let Err(error) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        skip("ipv6", &format!("::1: {error}"));
    }
    check_datagrams(IpAddr::V6(Ipv6Addr::LOCALHOST), 48);
}

fn segments_of_a_stream_are_counted() {
    const BYTES: u64 = 4 << 20;
    let job = Cgroup::create();
    let mut source = counted(&job.0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut process = Process::start("stream", &job.0);
    process.tell(&format!("{} {BYTES}", listener.local_addr().unwrap().port()));
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut vec![0; BYTES as usize]).unwrap();
    stream.write_all(&[1]).unwrap();
    assert_eq!(process.answer(), "done");
    let [received, received_packets, sent, sent_packets] = read(&mut source);
    // A packet has at most 64 KiB; a header at least 40 bytes, and one packet at least, since 4 MiB fit into no packet, others.
    assert!(sent > BYTES && sent_packets * 65_536 >= sent, "{sent} in {sent_packets}");
    assert!(received > 40 && received_packets * 40 <= received, "{received} in {received_packets}");
    process.end();
}

fn cgroups_below_count_for_the_job() {
    let job = Cgroup::create();
    let step = Cgroup(job.0.join("step"));
    fs::create_dir(&step.0).unwrap();
    let (mut of_job, mut of_step) = (counted(&job.0), counted(&step.0));
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let (mut in_job, mut in_step) = (Talker::start(&job.0, loopback), Talker::start(&step.0, loopback));
    in_step.send(&here, 3, 72);
    assert_eq!((read(&mut of_job), read(&mut of_step)), ([0, 0, 300, 3], [0, 0, 300, 3]));
    in_job.send(&here, 1, 72);
    assert_eq!((read(&mut of_job), read(&mut of_step)), ([0, 0, 400, 4], [0, 0, 300, 3]));
    in_step.process.end();
    in_job.process.end();
    drop(step);
}

fn sources_on_one_cgroup_are_independent() {
    let job = Cgroup::create();
    let mut first = counted(&job.0);
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 1, 72);
    let mut second = counted(&job.0);
    assert_eq!(attached(&job.0), [2, 2]);
    talker.send(&here, 1, 72);
    assert_eq!((read(&mut first), read(&mut second)), ([0, 0, 200, 2], [0, 0, 100, 1]));
    drop(first);
    assert_eq!(attached(&job.0), [1, 1]);
    talker.send(&here, 1, 72);
    assert_eq!(read(&mut second), [0, 0, 200, 2]);
    drop(second);
    assert_eq!(attached(&job.0), [0, 0]);
    talker.process.end();
}

fn nothing_stays_attached_after_a_kill() {
    let job = Cgroup::create();
    let mut source = counted(&job.0);
    let mut agent = Process::start("agent", &job.0);
    assert_eq!(agent.answer(), "open");
    assert_eq!(attached(&job.0), [2, 2]);
    // SIGKILL.
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    assert_eq!(attached(&job.0), [1, 1]);
    assert_eq!(read(&mut source), [0; 4]);
}

fn a_cgroup_that_is_created_again_continues() {
    let job = Cgroup::create();
    let mut source = counted(&job.0);
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 2, 72);
    follow_created_cgroups();
    assert_eq!((attached(&job.0), read(&mut source)), ([1, 1], [0, 0, 200, 2]));
    talker.process.end();
    remove(&job.0);
    // What the job has sent so far remains known.
    follow_created_cgroups();
    assert_eq!(read(&mut source), [0, 0, 200, 2]);
    fs::create_dir(&job.0).unwrap();
    assert_eq!(attached(&job.0), [0, 0]);
    follow_created_cgroups();
    assert_eq!((attached(&job.0), read(&mut source)), ([1, 1], [0, 0, 200, 2]));
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 1, 72);
    assert_eq!(read(&mut source), [0, 0, 300, 3]);
    // Nothing changes while the cgroup stays.
    follow_created_cgroups();
    talker.send(&here, 1, 72);
    assert_eq!((attached(&job.0), read(&mut source)), ([1, 1], [0, 0, 400, 4]));
    drop(source);
    assert_eq!(attached(&job.0), [0, 0]);
    talker.process.end();
}

fn reasons_name_what_is_missing() {
    let reason = open_target(&Target::Processes(1)).unwrap_err();
    assert!(reason.contains("cgroups of version 2, and the job has none"), "{reason}");
    let of_v1 = BTreeMap::from([("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory"))]);
    let reason =
        open_target(&Target::Cgroups(JobCgroups { v1: of_v1, ..JobCgroups::default() })).unwrap_err();
    assert!(reason.contains("cgroups of version 2, and the job has none"), "{reason}");
    let job = Cgroup::create();
    drop(counted(&job.0));
    let reason = open(&job.0.join("gone")).unwrap_err();
    assert!(reason.contains("gone: No such file or directory"), "{reason}");
    let reason = open(Path::new("/proc")).unwrap_err();
    assert!(reason.contains("no cgroup of version 2"), "{reason}");
}

fn without_rights_the_reason_names_them() {
    let job = Cgroup::create();
    drop(counted(&job.0));
    let mut user = Process::start("user", &job.0);
    let reason = user.answer();
    assert!(reason.contains("CAP_BPF and CAP_NET_ADMIN"), "{reason}");
    user.end();
}

/// The fields of `BPF_PROG_QUERY` of bpf(2).
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
    further: [u64; 3],
}

/// Returns the number of programs that are attached to a cgroup itself, for received and for transmitted packets.
fn attached(cgroup: &Path) -> [u32; 2] {
    const BPF_PROG_QUERY: libc::c_int = 16;
    let cgroup = fs::File::open(cgroup).unwrap();
    [0, 1].map(|attach_type| {
        let mut ids = [0_u32; 64];
        let mut query = Query {
            target: cgroup.as_raw_fd().cast_unsigned(),
            attach_type,
            ids: ids.as_mut_ptr().addr() as u64,
            count: 64,
            ..Query::default()
        };
        // SAFETY: the structure has the stated size, and the ids have the stated room.
        #[expect(unsafe_code, reason = "no safe crate has bpf")]
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<Query>()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        query.count
    })
}
