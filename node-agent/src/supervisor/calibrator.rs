//! The calibrator: runs the exercises in a thread that ends within a second, and sleeps nearly all of that
//! time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use polymeter_service::clock;
use tokio::sync::mpsc;
use tracing::warn;

use crate::admission::{Exercise, ExerciseTimes, LONG, ROUNDS, SHORT};

/// Time between measurements while prices need the speed of the machine. A measurement has 88 wake-ups.
const EVERY_NS: u64 = 30_000_000_000;

/// The same at other times. Every 30 s it took a fifth of the CPU time of an agent that samples once a second.
const AT_REST_NS: u64 = 600_000_000_000;

/// Generated anew by the kernel each time, and on every machine.
const FILE: &str = "/proc/self/stat";

const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Calibrator {
    measured: (mpsc::Sender<ExerciseTimes>, mpsc::Receiver<ExerciseTimes>),
    started_ns: Option<u64>,
}

impl Calibrator {
    pub(super) fn new() -> Self {
        Self { measured: mpsc::channel(1), started_ns: None }
    }

    /// The time of the next measurement, on the monotonic clock.
    pub(super) fn due_ns(&self, has_prices: bool) -> u64 {
        let interval_ns = if has_prices { EVERY_NS } else { AT_REST_NS };
        self.started_ns.map_or(0, |started_ns| started_ns.saturating_add(interval_ns))
    }

    pub(super) fn start(&mut self) {
        self.started_ns = Some(clock::monotonic_ns());
        if let Err(error) = spawn(self.measured.0.clone()) {
            warn!(%error, "cannot measure the speed of this machine; read costs are estimated from defaults");
        }
    }

    pub(super) async fn measured(&mut self) -> Option<ExerciseTimes> {
        self.measured.1.recv().await
    }
}

fn spawn(times: mpsc::Sender<ExerciseTimes>) -> io::Result<()> {
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
    fn the_machine_is_measured_at_once_and_then_more_often_for_prices() {
        let mut calibrator = Calibrator::new();
        assert_eq!((calibrator.due_ns(false), calibrator.due_ns(true)), (0, 0));
        calibrator.start();
        let started_ns = calibrator.started_ns.unwrap();
        assert_eq!(calibrator.due_ns(true) - started_ns, EVERY_NS);
        assert_eq!(calibrator.due_ns(false) - started_ns, AT_REST_NS);
    }

    #[test]
    fn sleeping_and_reading_takes_cpu_time() {
        let times = measure().unwrap();
        assert!(times.short_ns > 0 && times.long_ns > 0, "{times:?}");
    }
}
