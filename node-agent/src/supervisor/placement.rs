//! Placement of the sampler's thread: on an idle CPU, or else on each CPU in turn for a moment.
//!
//! The kernel moves a thread of real-time priority only out of the way of another (`select_task_rq_rt`,
//! kernel/sched/rt.c). A thread with a thousand wake-ups per second interrupts the same CPU each time, even
//! while others are idle; in a parallel job that is always the same rank, and all others wait for it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::io;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use polymeter_service::clock;
use tracing::info;

use crate::lanes::Channels;

/// Interval of measurements of a sampler with a high load, and of moves if no CPU is free.
const DENSE: Duration = Duration::from_millis(250);

/// Load, as a part of a CPU, from which a sampler is placed.
const SOME: f64 = 0.002;

const MUCH: f64 = 0.01;

/// A free CPU is idle for at least this part of the time.
const FREE: f64 = 0.5;

/// Decides on which CPU the sampler's thread is woken.
#[derive(Debug)]
pub(super) struct Placement {
    channels: Arc<Channels>,
    allowed: Vec<usize>,
    /// None if the kernel decides.
    placed: Option<usize>,
    next: Next,
    looked_ns: u64,
    used_ns: u64,
    ticks: BTreeMap<usize, Ticks>,
}

/// Time of the next measurement of the load of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another program has placed the thread, or there is no choice.
    Never,
    At(u64),
    /// With other measurements, so that no timer wakes the supervisor for this one.
    WithOthers,
}

/// CPU time since the machine was booted, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Placement {
    /// Acts only if the kernel leaves the thread on its CPU.
    pub(super) fn new(channels: Arc<Channels>) -> Self {
        let allowed = sched_getaffinity(None).map(|set| members(&set)).unwrap_or_default();
        // With a single CPU there is no choice, and no measurement.
        let looked_ns = clock::monotonic_ns();
        let next = if allowed.len() > 1 { Next::At(looked_ns + nanos(DENSE)) } else { Next::Never };
        Self { channels, allowed, placed: None, next, looked_ns, used_ns: 0, ticks: BTreeMap::new() }
    }

    /// Time of the next measurement; none if it needs no timer.
    pub(super) const fn next_ns(&self) -> Option<u64> {
        match self.next {
            Next::At(at_ns) => Some(at_ns),
            Next::Never | Next::WithOthers => None,
        }
    }

    /// Adjusts the placement if a measurement was left for now.
    pub(super) fn adjust_with_others(&mut self) {
        if self.next == Next::WithOthers {
            self.adjust();
        }
    }

    pub(super) fn adjust(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.next = Next::WithOthers;
        let Some(thread) = self.channels.realtime_thread() else { return };
        let used_ns = ran_ns(thread);
        let part = part(used_ns.saturating_sub(self.used_ns), now_ns.saturating_sub(self.looked_ns));
        (self.used_ns, self.looked_ns) = (used_ns, now_ns);
        if !self.is_where_it_was_put(thread) {
            info!("another program changed the CPU affinity of the sampler's thread; leaving it unchanged");
            self.next = Next::Never;
            return;
        }
        let put = if part < SOME { self.let_go(thread) } else { self.put(thread) };
        if let Err(error) = put {
            info!(%error, "cannot move the sampler's thread to another CPU");
            self.next = Next::Never;
        } else if part >= MUCH {
            self.next = Next::At(now_ns + nanos(DENSE));
        }
    }

    /// True if no other program has placed the thread.
    fn is_where_it_was_put(&self, thread: Pid) -> bool {
        let allowed = sched_getaffinity(Some(thread)).map(|set| members(&set));
        allowed.is_ok_and(|cpus| self.placed.map_or(cpus == self.allowed, |cpu| cpus == [cpu]))
    }

    fn let_go(&mut self, thread: Pid) -> io::Result<()> {
        self.ticks.clear();
        self.placed.take().map_or(Ok(()), |_| sched_setaffinity(Some(thread), &set_of(&self.allowed)))
    }

    /// Moves the thread to the best CPU, judged by the CPUs' load since the last measurement.
    fn put(&mut self, thread: Pid) -> io::Result<()> {
        // If the file cannot be read, no CPU is chosen.
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let now: BTreeMap<usize, Ticks> =
            ticks(&text).filter(|(cpu, _)| self.allowed.binary_search(cpu).is_ok()).collect();
        let before = std::mem::replace(&mut self.ticks, now);
        let idle: Vec<(usize, f64)> = self
            .ticks
            .iter()
            .filter_map(|(cpu, now)| {
                let before = before.get(cpu)?;
                Some((*cpu, part(now.idle.saturating_sub(before.idle), now.all.saturating_sub(before.all))))
            })
            .collect();
        // The first measurement has no predecessor.
        let Some(cpu) = choose(self.placed, &idle) else { return Ok(()) };
        if self.placed.replace(cpu) == Some(cpu) {
            return Ok(());
        }
        sched_setaffinity(Some(thread), &set_of(&[cpu]))
    }
}

/// Chooses the CPU for a thread that is at `placed`, given the idle part of each CPU: the same if it is free;
/// else the one with the largest idle part, if that is free; else the next.
fn choose(placed: Option<usize>, idle: &[(usize, f64)]) -> Option<usize> {
    let is_free = |(_, part): &&(usize, f64)| *part >= FREE;
    let here = idle.iter().find(|(cpu, _)| Some(*cpu) == placed).filter(is_free);
    let freest = || idle.iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).filter(is_free);
    let next = || idle.iter().find(|(cpu, _)| Some(*cpu) > placed).or_else(|| idle.first());
    here.or_else(freest).or_else(next).map(|(cpu, _)| *cpu)
}

/// Ticks of each CPU in the text of /proc/stat: `cpu0 user nice system idle iowait irq softirq steal`,
/// proc_stat(5).
fn ticks(text: &str) -> impl Iterator<Item = (usize, Ticks)> {
    text.lines().take_while(|line| line.starts_with("cpu")).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let fields: Vec<u64> = words.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = fields.get(3)? + fields.get(4)?;
        Some((cpu, Ticks { idle, all: fields.iter().sum() }))
    })
}

fn part(some: u64, all: u64) -> f64 {
    let float = |number: u64| Duration::from_nanos(number).as_secs_f64();
    if all == 0 { 0.0 } else { float(some) / float(all) }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Run time of a thread of this process: the first word of its schedstat (sched-stats.rst); 0 if it is
/// unavailable.
fn ran_ns(thread: Pid) -> u64 {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn members(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_stays_on_a_free_cpu_and_rotates_among_busy_ones() {
        assert_eq!(choose(None, &[]), None);
        assert_eq!(choose(None, &[(0, 0.1), (1, 0.9), (2, 0.8)]), Some(1), "the freest");
        assert_eq!(choose(Some(2), &[(0, 0.1), (1, 0.9), (2, 0.6)]), Some(2), "where it is");
        let busy = [(0, 0.0), (1, 0.2), (4, 0.0)];
        let mut at = None;
        let seen: Vec<_> = (0..4)
            .map(|_| {
                at = choose(at, &busy);
                at
            })
            .collect();
        assert_eq!(seen, [Some(0), Some(1), Some(4), Some(0)]);
        assert_eq!(choose(Some(3), &busy), Some(4), "where it was has gone");
    }

    #[test]
    fn waiting_for_disks_is_idle_time() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 9 10\ncpu12 1 0 0 1 0 0 0 0 0 0\nintr 5\n";
        let found: Vec<_> = ticks(text).collect();
        assert_eq!(found, [(0, Ticks { idle: 45, all: 72 }), (12, Ticks { idle: 1, all: 2 })]);
        assert_eq!(ticks("cpu0 1 2\ncpu1 x\n\n").count(), 0);
    }
}
