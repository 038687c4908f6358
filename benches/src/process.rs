//! Resource usage of running processes: CPU time, memory, descriptors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process};

use crate::table::to_f64;

/// Resource usage of a process, or of a process with its children.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time since its start.
    pub cpu_s: f64,
    /// Shared pages are divided among the processes that share them (PSS).
    pub memory_kib: u64,
    pub descriptors: u64,
}

pub fn threads_cpu_s(pid: u32, name: &str) -> io::Result<f64> {
    let mut cpu_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        // A thread may exit meanwhile.
        let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            cpu_ns += ran_ns(&path);
        }
    }
    Ok(to_f64(cpu_ns) / 1e9)
}

/// CPU time used by each thread of `pid`, in seconds, summed over threads of the same name.
pub fn cpu_s_by_thread(pid: u32) -> io::Result<BTreeMap<String, f64>> {
    let mut by_name = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        *by_name.entry(name.trim_end().to_owned()).or_default() += to_f64(ran_ns(&path)) / 1e9;
    }
    Ok(by_name)
}

pub fn waits(pid: u32) -> io::Result<u64> {
    let mut waits = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        waits += status_field(&task?.path(), "voluntary_ctxt_switches:").unwrap_or(0);
    }
    Ok(waits)
}

/// Resident memory of `pid`, including pages that it shares with others.
pub fn resident_kib(pid: u32) -> io::Result<u64> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    status_field(&process, "VmRSS:").ok_or_else(|| io::Error::other(format!("{process:?} has no VmRSS")))
}

fn status_field(directory: &Path, name: &str) -> Option<u64> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Run time of a thread, given its directory in `/proc/PID/task`; 0 if it has exited.
fn ran_ns(task: &Path) -> u64 {
    let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    schedstat.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Usage of `pid` without its children.
pub fn usage(pid: u32) -> io::Result<Usage> {
    Ok(Usage { cpu_s: cpu_s(pid)?, ..footprint(pid)? })
}

/// CPU time of all threads of `pid`, also of those that have exited, without its children.
pub fn cpu_s(pid: u32) -> io::Result<f64> {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().map_err(io::Error::other)?);
    Ok(Duration::from(ClockId::pid_cpu_clock_id(pid)?.now()?).as_secs_f64())
}

/// CPU time of all threads of `pid` in the kernel, with the resolution of its ticks.
pub fn system_s(pid: u32) -> io::Result<f64> {
    Ok(seconds(Stat::read(pid)?.system_ticks))
}

/// Waits of the machine, since its start or in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waits {
    /// Time of all CPUs, and the part of it in which they were idle.
    pub cpus_s: f64,
    pub idle_s: f64,
    pub switches: u64,
    /// Time in which a task waited for a CPU, for the disk, for memory (pressure stall information); 0 where
    /// the kernel does not count it.
    pub for_cpu_s: f64,
    pub for_disk_s: f64,
    pub for_memory_s: f64,
}

impl Waits {
    pub fn read() -> io::Result<Self> {
        let pressure = |of: &str| fs::read_to_string(format!("/proc/pressure/{of}")).unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&stat, [pressure("cpu"), pressure("io"), pressure("memory")])
            .ok_or_else(|| io::Error::other("/proc/stat is not understood"))
    }

    fn parse(stat: &str, pressures: [String; 3]) -> Option<Self> {
        let line = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let cpu: Vec<u64> =
            line("cpu")?.split_ascii_whitespace().filter_map(|ticks| ticks.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal, then times of guests that user has, too:
        // proc_stat(5).
        let [for_cpu_s, for_disk_s, for_memory_s] = pressures.map(|text| {
            let total_us = text.lines().find_map(|line| line.strip_prefix("some")?.rsplit_once("total="));
            to_f64(total_us.and_then(|(_, us)| us.parse().ok()).unwrap_or(0)) / 1e6
        });
        Some(Self {
            cpus_s: seconds(cpu.iter().take(8).sum()),
            idle_s: seconds(cpu.iter().skip(3).take(2).sum()),
            switches: line("ctxt")?.trim().parse().ok()?,
            for_cpu_s,
            for_disk_s,
            for_memory_s,
        })
    }

    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpus_s: self.cpus_s - before.cpus_s,
            idle_s: self.idle_s - before.idle_s,
            switches: self.switches - before.switches,
            for_cpu_s: self.for_cpu_s - before.for_cpu_s,
            for_disk_s: self.for_disk_s - before.for_disk_s,
            for_memory_s: self.for_memory_s - before.for_memory_s,
        }
    }
}

/// Connections over IPv4 with this port that are in the state TIME-WAIT.
pub fn time_wait_sockets(port: u16) -> io::Result<u64> {
    const TIME_WAIT: &str = "06";
    let port = format!(":{port:04X}");
    let mut count = 0;
    for line in fs::read_to_string("/proc/net/tcp")?.lines() {
        // `sl local_address rem_address st`; proc_net_tcp.txt of the kernel.
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_of_port = [fields.next(), fields.next()].iter().flatten().any(|end| end.ends_with(&port));
        count += u64::from(is_of_port && fields.next() == Some(TIME_WAIT));
    }
    Ok(count)
}

/// Usage of `pid` and its children. The CPU time of children that have exited is included, with the
/// resolution of the kernel's ticks, usually 10 ms.
pub fn usage_with_children(pid: u32) -> io::Result<Usage> {
    loop {
        let ended = Stat::read(pid)?.ticks_of_ended;
        let mut sum = usage(pid)?;
        sum.cpu_s += seconds(ended);
        for (_, of_child) in running(|stat| stat.parent == pid)? {
            sum.cpu_s += of_child.cpu_s;
            sum.memory_kib += of_child.memory_kib;
            sum.descriptors += of_child.descriptors;
        }
        // Else a child may be counted twice, or not at all.
        if Stat::read(pid)?.ticks_of_ended == ended {
            return Ok(sum);
        }
    }
}

fn running(is_wanted: impl Fn(&Stat) -> bool) -> io::Result<Vec<(Stat, Usage)>> {
    let usages = all()?.filter(|(_, stat)| is_wanted(stat)).map(|(pid, stat)| {
        // One that has exited keeps its time until its parent has waited for it, and nothing else.
        let of_exited = Usage { cpu_s: cpu_s(pid).unwrap_or(0.0), ..Usage::default() };
        (stat, usage(pid).unwrap_or(of_exited))
    });
    Ok(usages.collect())
}

/// Children of `parent`, also those that have exited, and that it has not waited for.
pub fn children(parent: u32) -> io::Result<Vec<Pid>> {
    let of_parent = all()?.filter(|(_, stat)| stat.parent == parent);
    Ok(of_parent.filter_map(|(pid, _)| Pid::from_raw(pid.try_into().ok()?)).collect())
}

/// Processes of this machine. One that is gone when it is read is left out.
fn all() -> io::Result<impl Iterator<Item = (u32, Stat)>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(|pid| Some((pid, Stat::read(pid).ok()?))))
}

fn footprint(pid: u32) -> io::Result<Usage> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let proportional = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let memory_kib = proportional.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
    Ok(Usage { cpu_s: 0.0, memory_kib: memory_kib.unwrap_or(0), descriptors })
}

struct Stat {
    parent: u32,
    group: u32,
    system_ticks: u64,
    ticks_of_ended: u64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
    }

    /// Parses the text of /proc/PID/stat. The fields are counted after the command's name, which may contain
    /// spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let id = |index| u32::try_from(number(index)?).ok();
        Some(Self {
            parent: id(1)?,
            group: id(2)?,
            system_ticks: number(12)?,
            ticks_of_ended: number(13)? + number(14)?,
        })
    }
}

/// CPU time used by the processes of a process group and by the children that they have waited for. The
/// latter has the resolution of the kernel's ticks, usually 10 ms.
pub fn group_cpu_s(group: u32) -> io::Result<f64> {
    // The time of a process that exits meanwhile is counted with its parent once the parent has waited for
    // it.
    let members = running(|stat| stat.group == group)?;
    Ok(members.iter().map(|(stat, usage)| usage.cpu_s + seconds(stat.ticks_of_ended)).sum())
}

/// Time that a hypervisor has taken from all CPUs of this machine since boot (steal time), with the
/// resolution of the kernel's ticks. 0 if it is not reported.
pub fn steal_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The first line is `cpu  user nice system idle iowait irq softirq steal` of all CPUs; proc_stat(5).
    seconds(stat.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0))
}

/// Converts the kernel's ticks, usually 10 ms each, to seconds.
fn seconds(ticks: u64) -> f64 {
    to_f64(ticks) / to_f64(rustix::param::clock_ticks_per_second())
}

/// A child process without data worth keeping: dropping this kills it.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have exited already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// Stops a child with `signal`, and with SIGKILL if it has not exited after `patience_s` seconds. Returns
/// true if it exited by itself, successfully.
pub fn end(child: &mut Child, signal: Signal, patience_s: u64) -> bool {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have exited already; the wait below detects that.
        kill_process(pid, signal).ok();
    }
    let ended = crate::clock::wait_for("a process ends", patience_s, || child.try_wait().ok().flatten());
    if let Ok(status) = ended {
        return status.success();
    }
    // A child of this process that has ignored the signal.
    child.kill().ok();
    child.wait().ok();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_kernels_texts() {
        let stat = "cpu  100 200 300 4000 50 6 7 8 90 10\ncpu0 1 2 3\nintr 5 6\nctxt 4321\nbtime 1\n";
        let pressure =
            |us| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\nfull avg10=1 total=9\n");
        let waits = Waits::parse(stat, [pressure(1_500_000), pressure(20), String::new()]).unwrap();
        let ticks_s = to_f64(rustix::param::clock_ticks_per_second());
        assert!(
            (waits.cpus_s * ticks_s - 4671.0).abs() < 1e-6 && (waits.idle_s * ticks_s - 4050.0).abs() < 1e-6
        );
        assert_eq!((waits.switches, waits.for_cpu_s, waits.for_disk_s), (4321, 1.5, 0.000_02));
        assert!(waits.for_memory_s < 1e-9, "a kernel without the file");
        assert!(Waits::parse("cpu 1 2\n", Default::default()).is_none());
        let now = Waits::read().unwrap();
        assert!(now.cpus_s > 0.0 && now.switches > 0, "{now:?}");
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let text = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.group, stat.ticks_of_ended), (7, 42, 7));
        assert_eq!(stat.system_ticks, 20);
        assert!(Stat::parse("42 (a) S").is_none());
    }

    #[test]
    fn the_side_that_closes_first_waits() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(time_wait_sockets(address.port()).unwrap(), 0);
        drop(client);
        drop(server);
        let waits = || (time_wait_sockets(address.port()).ok()? == 1).then_some(());
        crate::clock::wait_for("the client's socket waits", 10, waits).unwrap();
    }

    #[test]
    fn the_time_of_a_child_counts_before_and_after_its_parent_has_waited() {
        // The shell waits for its child when it reads the line.
        let script =
            "{ i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; } & read -r line; wait; read -r line";
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = shell.id();
        let find = || running(|stat| stat.parent == pid).unwrap().pop().map(|(stat, _)| stat);
        let exited = || {
            let (_, usage) = running(|stat| stat.parent == pid).unwrap().pop()?;
            (usage.memory_kib == 0 && usage.cpu_s > 0.0).then_some(usage.cpu_s)
        };
        let of_child_s = crate::clock::wait_for("the child has exited", 60, exited).unwrap();
        let before_s = usage_with_children(pid).unwrap().cpu_s;
        assert!(before_s >= of_child_s, "{before_s} of {of_child_s}");
        std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"\n").unwrap();
        crate::clock::wait_for("its parent has waited", 60, || find().is_none().then_some(())).unwrap();
        let after_s = usage_with_children(pid).unwrap().cpu_s;
        // The kernel tells the times in user mode and in the kernel in whole ticks.
        assert!(after_s >= of_child_s - seconds(2), "{after_s} of {of_child_s}");
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn threads_that_have_exited_count() {
        let of_thread_s = || {
            let began_ns = polymeter_service::clock::thread_cpu_ns();
            (0..5_000_000_u64).map(std::hint::black_box).sum::<u64>();
            to_f64(polymeter_service::clock::thread_cpu_ns() - began_ns) / 1e9
        };
        let before_s = cpu_s(std::process::id()).unwrap();
        let used_s = std::thread::spawn(of_thread_s).join().unwrap();
        let counted_s = cpu_s(std::process::id()).unwrap() - before_s;
        assert!(used_s > 0.0 && counted_s >= used_s, "{counted_s} of {used_s}");
        // Greater than the number of any process.
        assert!(cpu_s(u32::MAX).is_err() && cpu_s(1 << 22).is_err());
    }

    #[test]
    fn this_process_has_descriptors_and_memory() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.memory_kib > 0 && usage.descriptors > 2, "{usage:?}");
        let named = std::thread::Builder::new().name("named".to_owned());
        let busy = named.spawn(|| {
            (0..1_000_000_u64).map(std::hint::black_box).sum::<u64>();
            threads_cpu_s(std::process::id(), "named").unwrap()
        });
        assert!(busy.unwrap().join().unwrap() > 0.0);
        assert!(threads_cpu_s(std::process::id(), "no such thread").unwrap() < 1e-9);
        let group = u32::try_from(rustix::process::getpgrp().as_raw_nonzero().get()).unwrap();
        assert!(group_cpu_s(group).unwrap() > 0.0);
        assert!(group_cpu_s(u32::MAX).unwrap() < 1e-9);
    }
}
