//! The pulse: how slow the machine is now in what the sampler does most, which is to sleep, wake up and read a small file.
//!
//! What a read takes on a warm cache says little of what it takes after a sleep: idle states, a hypervisor, other work and
//! the clock's speed multiply it by two to five, and differently from minute to minute. So it is tried now and then.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::admission::cost::Slowness;
use crate::clock;
use crate::log;

/// How often it is taken. It costs some thousandth of a percent of a CPU.
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// What is read: the kernel makes its text anew each time, and it is there on every machine.
const FILE: &str = "/proc/self/stat";

/// A sleep that is tried.
struct Exercise {
    period_us: f64,
    sleep: Duration,
    times: u32,
    /// CPU time of one on the machine to which the constants of the cost were fitted, in nanoseconds.
    reference_ns: f64,
}

/// Where most of the cost is wake-ups.
const SHORT: Exercise =
    Exercise { period_us: 1_000.0, sleep: Duration::from_millis(1), times: 16, reference_ns: 8_400.0 };

/// Where most of it is what has grown cold.
const LONG: Exercise =
    Exercise { period_us: 10_000.0, sleep: Duration::from_millis(10), times: 6, reference_ns: 14_500.0 };

/// How often all beats are tried, and the pause between: CPUs differ, and so do moments.
const ROUNDS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Of what is believed, the part that was found before, in percent.
const BEFORE: u64 = 60;

/// CPU time of each beat as it was found, in nanoseconds; 0 where nothing was found yet.
#[derive(Debug, Default)]
struct Found {
    short: AtomicU64,
    long: AtomicU64,
}

/// What was found, shared with the thread that finds it.
#[derive(Debug, Clone, Default)]
pub(super) struct Calibration(Arc<Found>);

impl Calibration {
    /// Takes the pulse, in a thread that ends within a second, nearly all of which it sleeps.
    pub(super) fn take(&self) {
        const STACK_BYTES: usize = 64 * 1024;
        let pulse = self.clone();
        let thread = std::thread::Builder::new().name("pulse".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || pulse.feel()) {
            log::warning(&format!("the machine's speed is not measured, costs are guessed: {error}"));
        }
    }

    fn feel(&self) {
        let Ok(file) = File::open(FILE) else { return };
        let (mut short_ns, mut long_ns) = (0, 0);
        for _ in 0..ROUNDS {
            short_ns += SHORT.cpu_ns(&file);
            long_ns += LONG.cpu_ns(&file);
            clock::sleep(PAUSE);
        }
        SHORT.note(&self.0.short, short_ns);
        LONG.note(&self.0.long, long_ns);
    }

    /// How many times as long as on the machine of reference things take now.
    pub(super) fn slowness(&self) -> Slowness {
        [SHORT.slowness(&self.0.short), LONG.slowness(&self.0.long)]
    }
}

impl Exercise {
    /// CPU time of all its times, in nanoseconds.
    fn cpu_ns(&self, file: &File) -> u64 {
        let mut text = [0; 1024];
        let began_ns = clock::thread_cpu_ns();
        for _ in 0..self.times {
            clock::sleep(self.sleep);
            // What it says does not matter, nor whether it says anything.
            file.read_at(&mut text, 0).ok();
        }
        clock::thread_cpu_ns().saturating_sub(began_ns)
    }

    /// Notes what all rounds together took.
    fn note(&self, found: &AtomicU64, all_ns: u64) {
        let now_ns = all_ns / u64::from(ROUNDS * self.times);
        let believed_ns = match found.load(Relaxed) {
            0 => now_ns,
            before_ns => (before_ns * BEFORE + now_ns * (100 - BEFORE)) / 100,
        };
        found.store(believed_ns, Relaxed);
    }

    /// The period, and how many times as long things take that are done so often.
    fn slowness(&self, found: &AtomicU64) -> (f64, f64) {
        let slowness = match u32::try_from(found.load(Relaxed)).unwrap_or(u32::MAX) {
            0 => 1.0,
            found_ns => f64::from(found_ns) / self.reference_ns,
        };
        (self.period_us, slowness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_slow_as_was_found_last() {
        let pulse = Calibration::default();
        assert_eq!(pulse.slowness(), [(1_000.0, 1.0), (10_000.0, 1.0)], "nothing is known yet");
        pulse.feel();
        let found = [pulse.0.short.load(Relaxed), pulse.0.long.load(Relaxed)];
        assert!(found.iter().all(|found_ns| *found_ns > 0), "sleeping and reading takes CPU time: {pulse:?}");
        pulse.0.short.store(16_800, Relaxed);
        pulse.0.long.store(43_500, Relaxed);
        assert_eq!(pulse.slowness(), [(1_000.0, 2.0), (10_000.0, 3.0)]);
    }
}
