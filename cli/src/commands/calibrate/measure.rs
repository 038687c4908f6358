//! Rates of all CPUs together, in several repetitions.

use std::io;
use std::sync::Barrier;
use std::thread;

use polymeter_proto::units;
use polymeter_service::clock;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

#[derive(Debug, Clone, Copy)]
pub(super) struct Repetitions {
    pub(super) count: usize,
    pub(super) length_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Rate {
    pub(super) best_per_s: f64,
    /// Difference between the best and the worst, in percent of the best.
    pub(super) spread_percent: f64,
}

impl Rate {
    /// None without repetitions, or if nothing was done in one.
    fn of(rates: &[f64]) -> Option<Self> {
        let best_per_s = rates.iter().copied().reduce(f64::max)?;
        let worst = rates.iter().copied().reduce(f64::min)?;
        let is_usable = worst > 0.0 && best_per_s.is_finite();
        is_usable.then(|| Self { best_per_s, spread_percent: 100.0 * (best_per_s - worst) / best_per_s })
    }
}

pub(super) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Runs a piece of work again and again on each CPU at the same time, after one repetition that does not
/// count. `make` prepares the work of a thread, which returns what it did. None if nothing was done.
pub(super) fn rate<W: FnMut() -> f64>(
    cpus: &[usize],
    repetitions: Repetitions,
    make: impl Fn() -> W + Sync,
) -> Option<Rate> {
    let (begin, make) = (Barrier::new(cpus.len()), &make);
    let of_cpus: Vec<Vec<f64>> = thread::scope(|scope| {
        let threads = cpus.iter().map(|&cpu| {
            let begin = &begin;
            scope.spawn(move || {
                stay_on(cpu);
                let mut work = make();
                let mut repeat = || {
                    begin.wait();
                    rate_of(&mut work, repetitions.length_ns)
                };
                repeat();
                (0..repetitions.count).map(|_| repeat()).collect()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let sums = (0..repetitions.count)
        .map(|repetition| of_cpus.iter().filter_map(|rates| rates.get(repetition)).sum());
    Rate::of(&sums.collect::<Vec<f64>>())
}

/// Keeps this thread on a CPU, as far as that is permitted: its memory is near it.
fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).ok();
}

/// What the work does per second.
fn rate_of(work: &mut impl FnMut() -> f64, length_ns: u64) -> f64 {
    let begin_ns = clock::monotonic_ns();
    let mut done = 0.0;
    loop {
        done += work();
        let elapsed_ns = clock::monotonic_ns().saturating_sub(begin_ns);
        if elapsed_ns >= length_ns {
            return done * 1e9 / units::to_f64(elapsed_ns.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn the_rates_of_all_cpus_are_added() {
        let cpus = allowed_cpus().unwrap();
        let prepared = AtomicU64::new(0);
        let repetitions = Repetitions { count: 3, length_ns: 2_000_000 };
        let slept = rate(&cpus, repetitions, || {
            prepared.fetch_add(1, Ordering::Relaxed);
            || {
                clock::sleep(std::time::Duration::from_millis(1));
                1.0
            }
        });
        let Rate { best_per_s, spread_percent } = slept.unwrap();
        assert_eq!(prepared.load(Ordering::Relaxed), cpus.len() as u64);
        assert!(best_per_s > 0.0 && best_per_s <= 1000.0 * units::to_f64(cpus.len() as u64), "{best_per_s}");
        assert!((0.0..100.0).contains(&spread_percent), "{spread_percent}");
        assert_eq!(rate(&cpus, repetitions, || || 0.0), None, "nothing was done");
    }

    #[test]
    fn the_spread_is_that_between_best_and_worst() {
        let rate = Rate::of(&[90.0, 100.0, 80.0]).unwrap();
        assert_eq!((rate.best_per_s, rate.spread_percent), (100.0, 20.0));
        assert_eq!(Rate::of(&[]), None);
    }
}
