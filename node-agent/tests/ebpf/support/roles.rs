//! What this program does as a process of a job, or as another agent.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::process::{line, numbers};
use super::sources::open;
use super::talker::exchange_datagrams;

/// Plays the role `NAME:CGROUP`: says what it did in lines, and obeys lines.
pub(crate) fn play(role: &str) {
    let (name, cgroup) = role.split_once(':').unwrap();
    let cgroup = Path::new(cgroup);
    match name {
        "datagrams" => {
            enter(cgroup);
            exchange_datagrams();
        }
        "stream" => {
            enter(cgroup);
            send_stream();
        }
        "agent" => {
            let metrics = line(&mut std::io::stdin().lock());
            let source = open(&metrics, cgroup).unwrap();
            println!("open");
            line(&mut std::io::stdin().lock());
            drop(source);
        }
        "user" => {
            let metrics = line(&mut std::io::stdin().lock());
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            println!("{}", open(&metrics, cgroup).unwrap_err());
        }
        "files" => {
            enter(cgroup);
            work_with_files();
        }
        "worker" => {
            enter(cgroup);
            compute();
        }
        other => panic!("no role `{other}`"),
    }
}

fn enter(cgroup: &Path) {
    fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
}

/// Sends bytes on request: `PORT BYTES`.
fn send_stream() {
    let [port, bytes] = numbers(&line(&mut std::io::stdin().lock()));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port as u16)).unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    // The other end confirms that it has all of it.
    stream.read_exact(&mut [0]).unwrap();
    println!("done");
}

/// Works with files on request: `THREADS DIRECTORY`.
fn work_with_files() {
    println!("ready");
    loop {
        let request = line(&mut std::io::stdin().lock());
        let Some((threads, directory)) = request.split_once(' ') else { return };
        let threads: usize = threads.parse().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || work_with_file(&Path::new(directory).join(format!("file-{thread}"))));
            }
        });
        println!("done");
    }
}

/// Opens a file, writes 10,030 bytes in 11 calls, reads 2,500 in 5, reads at its end, and writes it to the
/// disk twice. Calls that fail are not counted.
fn work_with_file(path: &Path) {
    let mut file =
        fs::OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    for _ in 0..10 {
        assert_eq!(file.write(&[7; 1000]).unwrap(), 1000);
    }
    let parts = [IoSlice::new(&[1; 10]), IoSlice::new(&[2; 20])];
    assert_eq!(file.write_vectored(&parts).unwrap(), 30);
    for part in 0..5 {
        assert_eq!(file.read_at(&mut [0; 500], part * 500).unwrap(), 500);
    }
    assert_eq!(file.read(&mut [0; 500]).unwrap(), 0);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    fs::File::open(path.with_extension("missing")).unwrap_err();
    fs::File::open(path.parent().unwrap().join("file-0/x")).unwrap_err();
}

/// Computes for a CPU time, on one CPU or on any: `CPU NANOSECONDS`. Says how long it waited for a CPU and
/// how often, according to the kernel.
fn compute() {
    println!("ready");
    loop {
        let request = line(&mut std::io::stdin().lock());
        let Some((cpu, work_ns)) = request.split_once(' ') else { return };
        if let Ok(cpu) = cpu.parse() {
            let mut cpus = rustix::thread::CpuSet::new();
            cpus.set(cpu);
            rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        }
        let work_ns: u64 = work_ns.parse().unwrap();
        let before = schedule_statistics();
        let mut after = before;
        let mut sum = 0_u64;
        while after[0] - before[0] < work_ns {
            sum = (0..1_000_000_u64).fold(sum, |sum, number| std::hint::black_box(sum.wrapping_add(number)));
            after = schedule_statistics();
        }
        println!("{} {}", after[1] - before[1], after[2] - before[2]);
    }
}

/// CPU time of this thread, how long it waited for a CPU, both in nanoseconds, and how often it began to run.
fn schedule_statistics() -> [u64; 3] {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}
