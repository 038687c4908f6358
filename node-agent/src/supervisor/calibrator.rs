//! The calibrator: runs the exercises in a thread that ends within a second, and sleeps nearly all of that
//! time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use polymeter_service::clock;
use tokio::sync::mpsc;

use crate::admission::{Exercise, ExerciseTimes, LONG, ROUNDS, SHORT};

/// How often the machine is measured. It costs some thousandths of a percent of a CPU.
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// Generated anew by the kernel each time, and on every machine.
const FILE: &str = "/proc/self/stat";

const PAUSE: Duration = Duration::from_millis(100);

pub(super) fn start(times: mpsc::Sender<ExerciseTimes>) -> io::Result<()> {
    const STACK_BYTES: usize = 64 * 1024;
    let thread = std::thread::Builder::new().name("calibration".to_owned()).stack_size(STACK_BYTES);
    // The thread is detached, and ends by itself.
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

fn cpu_ns(exercise: &Exercise, file: &File) -> u64 {
    let mut text = [0; 1024];
    let began_ns = clock::thread_cpu_ns();
    for _ in 0..exercise.reads {
        clock::sleep(exercise.sleep);
        // The text, and even an error, does not matter.
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
