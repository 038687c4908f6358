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

use super::cost::Slowness;
use crate::clock;
use crate::log;

/// How often it is taken. It costs some thousandth of a percent of a CPU.
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// What is read: the kernel makes its text anew each time, and it is there on every machine.
const FILE: &str = "/proc/self/stat";

/// A sleep that is tried.
struct Beat {
    period_us: f64,
    sleep: Duration,
    times: u32,
    /// CPU time of one on the machine to which the constants of the cost were fitted, in nanoseconds.
    reference_ns: f64,
}

const BEATS: [Beat; 2] = [
    Beat { period_us: 1_000.0, sleep: Duration::from_millis(1), times: 16, reference_ns: 8_400.0 },
    Beat { period_us: 10_000.0, sleep: Duration::from_millis(10), times: 6, reference_ns: 14_500.0 },
];

/// How often all beats are tried, and the pause between: CPUs differ, and so do moments.
const ROUNDS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Of what is believed, the part that was found before, in percent.
const BEFORE: u64 = 60;

/// What was found, in nanoseconds, shared with the thread that finds it; 0 where nothing was found yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse(Arc<[AtomicU64; BEATS.len()]>);

impl Pulse {
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
        let mut spent_ns = [0; BEATS.len()];
        for _ in 0..ROUNDS {
            for (beat, spent_ns) in BEATS.iter().zip(&mut spent_ns) {
                *spent_ns += beat.cpu_ns(&file);
            }
            std::thread::sleep(PAUSE);
        }
        for ((beat, spent_ns), found) in BEATS.iter().zip(spent_ns).zip(self.0.iter()) {
            let now_ns = spent_ns / u64::from(ROUNDS * beat.times);
            let believed_ns = match found.load(Relaxed) {
                0 => now_ns,
                before_ns => (before_ns * BEFORE + now_ns * (100 - BEFORE)) / 100,
            };
            found.store(believed_ns, Relaxed);
        }
    }

    /// How many times as long as on the machine of reference things take now.
    pub(super) fn slowness(&self) -> Slowness {
        std::array::from_fn(|at| {
            let (beat, found_ns) = (&BEATS[at], self.0[at].load(Relaxed));
            let slowness = match u32::try_from(found_ns).unwrap_or(u32::MAX) {
                0 => 1.0,
                found_ns => f64::from(found_ns) / beat.reference_ns,
            };
            (beat.period_us, slowness)
        })
    }
}

impl Beat {
    /// CPU time of all its times, in nanoseconds.
    fn cpu_ns(&self, file: &File) -> u64 {
        let mut text = [0; 1024];
        let began_ns = clock::thread_cpu_ns();
        for _ in 0..self.times {
            std::thread::sleep(self.sleep);
            // What it says does not matter, nor whether it says anything.
            file.read_at(&mut text, 0).ok();
        }
        clock::thread_cpu_ns().saturating_sub(began_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_slow_as_was_found_last() {
        let pulse = Pulse::default();
        assert_eq!(pulse.slowness(), [(1_000.0, 1.0), (10_000.0, 1.0)], "nothing is known yet");
        pulse.feel();
        let found = |at: usize| pulse.0[at].load(Relaxed);
        assert!(found(0) > 0 && found(1) > 0, "sleeping and reading takes CPU time: {pulse:?}");
        pulse.0[0].store(16_800, Relaxed);
        pulse.0[1].store(43_500, Relaxed);
        assert_eq!(pulse.slowness(), [(1_000.0, 2.0), (10_000.0, 3.0)]);
    }
}
