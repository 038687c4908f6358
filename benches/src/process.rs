//! What the kernel says of running processes: CPU time, memory, descriptors.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::table::to_f64;

/// What a process, or a process with its children, has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time since it began, in seconds.
    pub cpu_s: f64,
    /// Memory in KiB: pages that several processes share count once.
    pub memory_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

/// CPU time that the threads of `pid` with this name have used, in seconds.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub fn threads_cpu_s(pid: u32, name: &str) -> io::Result<f64> {
    let mut cpu_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        // A thread may end in between.
        let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            cpu_ns += ran_ns(&path);
        }
    }
    Ok(to_f64(cpu_ns) / 1e9)
}

/// How long the thread of a directory of `/proc/PID/task` has run, in nanoseconds; 0 where it has ended.
fn ran_ns(task: &Path) -> u64 {
    let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    schedstat.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// What `pid` has used, without its children. CPU time is exact while none of its threads has ended.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let mut cpu_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        cpu_ns += ran_ns(&task?.path());
    }
    Ok(Usage { cpu_s: to_f64(cpu_ns) / 1e9, ..footprint(pid)? })
}

/// What `pid` and its children have used, those that have ended included: of these the kernel counts ticks, mostly 10 ms.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub fn usage_with_children(pid: u32) -> io::Result<Usage> {
    let mut sum = usage(pid)?;
    sum.cpu_s += seconds(Stat::read(pid)?.ticks_of_ended);
    for (_, of_child) in running(|stat| stat.parent == pid)? {
        sum.cpu_s += of_child.cpu_s;
        sum.memory_kib += of_child.memory_kib;
        sum.descriptors += of_child.descriptors;
    }
    Ok(sum)
}

/// What each process has used of which `is_wanted` says so.
fn running(is_wanted: impl Fn(&Stat) -> bool) -> io::Result<Vec<(Stat, Usage)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes end while the list is read, and then have no more to add.
        if let Ok(stat) = Stat::read(pid)
            && is_wanted(&stat)
            && let Ok(usage) = usage(pid)
        {
            found.push((stat, usage));
        }
    }
    Ok(found)
}

fn footprint(pid: u32) -> io::Result<Usage> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let proportional = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let memory_kib = proportional.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
    Ok(Usage { cpu_s: 0.0, memory_kib: memory_kib.unwrap_or(0), descriptors })
}

/// The fields of /proc/PID/stat that are wanted here.
struct Stat {
    parent: u32,
    group: u32,
    ticks_of_ended: u64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
    }

    /// Fields are counted behind the command's name, which may have spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let id = |index| u32::try_from(number(index)?).ok();
        Some(Self { parent: id(1)?, group: id(2)?, ticks_of_ended: number(13)? + number(14)? })
    }
}

/// CPU time that the processes of a process group have used, and those that they have waited for, in seconds. Of the latter
/// the kernel counts ticks, mostly 10 ms.
///
/// # Errors
/// When /proc cannot be read.
pub fn group_cpu_s(group: u32) -> io::Result<f64> {
    // What one used that ends meanwhile is with whoever waited for it.
    let members = running(|stat| stat.group == group)?;
    Ok(members.iter().map(|(stat, usage)| usage.cpu_s + seconds(stat.ticks_of_ended)).sum())
}

/// Time that a hypervisor has taken from the CPUs of this machine since it began, all together, in seconds; counted in ticks
/// of mostly 10 ms. 0 where no hypervisor says.
pub fn steal_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // `cpu  user nice system idle iowait irq softirq steal`, of all CPUs in the first line; proc_stat(5).
    seconds(stat.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0))
}

/// So many of the kernel's ticks, mostly 10 ms each.
fn seconds(ticks: u64) -> f64 {
    to_f64(ticks) / to_f64(rustix::param::clock_ticks_per_second())
}

/// Ends a child: with `signal`, and with SIGKILL if it has not gone after `patience_s` seconds. True if it went by itself
/// and was content.
pub fn end(child: &mut Child, signal: Signal, patience_s: u64) -> bool {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have gone already, which the wait below finds out.
        kill_process(pid, signal).ok();
    }
    let ended = crate::clock::wait_for("a process ends", patience_s, || child.try_wait().ok().flatten());
    if let Ok(status) = ended {
        return status.success();
    }
    // It is ours, and did not listen.
    child.kill().ok();
    child.wait().ok();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let text = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.group, stat.ticks_of_ended), (7, 42, 7));
        assert!(Stat::parse("42 (a) S").is_none());
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
        assert!(threads_cpu_s(std::process::id(), "nobody").unwrap() < 1e-9);
        let group = u32::try_from(rustix::process::getpgrp().as_raw_nonzero().get()).unwrap();
        assert!(group_cpu_s(group).unwrap() > 0.0);
        assert!(group_cpu_s(u32::MAX).unwrap() < 1e-9);
    }
}
