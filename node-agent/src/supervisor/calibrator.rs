//! Runs the exercises of the calibration, in a thread that ends within a second, nearly all of which it sleeps.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use polymeter_service::clock;
use tokio::sync::mpsc;

use crate::admission::{Exercise, ExerciseTimes, LONG, ROUNDS, SHORT};

/// How often the machine is measured. It costs some thousandth of a percent of a CPU.
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// The file that is read: the kernel makes its text anew each time, and every machine has it.
const FILE: &str = "/proc/self/stat";

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// Measures the machine, and sends what was measured.
///
/// # Errors
/// When no thread can be started.
pub(super) fn start(times: mpsc::Sender<ExerciseTimes>) -> io::Result<()> {
    const STACK_BYTES: usize = 64 * 1024;
    let thread = std::thread::Builder::new().name("calibration".to_owned()).stack_size(STACK_BYTES);
    // Nobody waits for it: it sends or not.
    thread.spawn(move || measure().and_then(|measured| times.try_send(measured).ok())).map(drop)
}

fn measure() -> Option<ExerciseTimes> {
    let file = File::open(FILE).ok()?;
    let mut times = ExerciseTimes { short_ns: 0, long_ns: 0 };
    for _ in 0..ROUNDS {
        times.short_ns += cpu_ns(&SHORT, &file);
        times.long_ns += cpu_ns(&LONG, &file);
        clock::sleep(PAUSE);
    }
    Some(times)
}

/// CPU time of one round of an exercise, in nanoseconds.
fn cpu_ns(exercise: &Exercise, file: &File) -> u64 {
    let mut text = [0; 1024];
    let began_ns = clock::thread_cpu_ns();
    for _ in 0..exercise.reads {
        clock::sleep(exercise.sleep);
        // What it says does not matter, nor whether it says anything.
        file.read_at(&mut text, 0).ok();
    }
    clock::thread_cpu_ns().saturating_sub(began_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_and_reading_takes_cpu_time() {
        let times = measure().unwrap();
        assert!(times.short_ns > 0 && times.long_ns > 0, "{times:?}");
    }
}
