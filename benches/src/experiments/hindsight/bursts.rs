//! Bursts of CPU time that a trigger catches in the ring.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::Stdio;

use polymeter_benches::agent::Running;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use polymeter_benches::job::{Job, pause};
use polymeter_benches::process::KilledOnDrop;
use polymeter_benches::statistics::{Random, median};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::wire::frame::Frame;

use super::arguments::Arguments;

const SHORTEST_MS: u64 = 50;
const LONGEST_MS: u64 = 500;

/// Time that a trigger keeps: a little before the burst, and the longest burst after its begin.
const RULE: &str = r#"
[[trigger]]
name = "burst"
when = "rate(cpu.usage) > 300000000"
keep = "20ms"
after = "520ms"
hold_off = "500ms"
firings = 1000
"#;

const CONFIG: &str = r#"
[baseline]
"cpu.usage" = "1ms/1s"
[hindsight]
keep = "20s"
[hindsight.metrics]
"cpu.usage" = "1ms"
"#;

/// Time of a flush, a firing and a dump.
const SETTLE_NS: i64 = 5_000_000_000;

/// Begin and end, in microseconds since the epoch.
type Interval = (i64, i64);

pub(super) fn measure(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let job = Job::make_for("bursts", 0)?;
    let config = format!("jobs = [\"{}\"]\n{CONFIG}{RULE}", job.pattern());
    let running = Running::start(scratch, &config)?;
    pause(SETTLE_NS);
    running.frames().for_each(drop);
    let began_us = wall_us();
    let (bursts, sent) = disturb(arguments, &job, &running)?;
    let passed_ms = to_f64(u64::try_from(wall_us() - began_us)?) / 1e3;
    if bursts.is_empty() {
        return Err("no burst in that time".into());
    }
    let shares: Vec<f64> = bursts.iter().map(|burst| share(*burst, &sent.kept_ms)).collect();
    let caught = shares.iter().filter(|share| **share >= 0.9).count();
    say(&format!(
        "{} bursts of {SHORTEST_MS} to {LONGEST_MS} ms in {:.0} s; seed {}",
        bursts.len(),
        passed_ms / 1e3,
        arguments.seed
    ));
    say("");
    let row = vec![
        format!("{:.1} %", 100.0 * to_f64(caught as u64) / to_f64(bursts.len() as u64)),
        format!("{:.1} %", 100.0 * median(shares)),
        format!("{} + {}", sent.kept_ms.len(), sent.windows),
        format!("{:.2} %", 100.0 * to_f64(sent.kept_ms.len() as u64 + sent.windows) / passed_ms),
    ];
    let head =
        ["caught", "median of the share of a burst", "samples and windows sent", "of all samples at 1 ms"];
    table::table(&head, &[row]);
    Ok(())
}

#[derive(Debug, Default)]
struct Sent {
    /// Milliseconds since the epoch, of each kept sample.
    kept_ms: BTreeSet<i64>,
    windows: u64,
}

impl Sent {
    fn take(&mut self, frames: impl Iterator<Item = Frame>) {
        for frame in frames {
            for block in &frame.blocks {
                if frame.is_kept {
                    self.kept_ms.extend(block.times_us.iter().map(|time_us| time_us.div_euclid(1000)));
                } else {
                    self.windows += block.times_us.len() as u64;
                }
            }
        }
    }
}

/// Starts a program in the job at random times, each for a random time.
fn disturb(
    arguments: &Arguments,
    job: &Job,
    running: &Running,
) -> Result<(Vec<Interval>, Sent), Box<dyn Error>> {
    let (mut bursts, mut sent) = (Vec::new(), Sent::default());
    let mut random = Random::new(arguments.seed);
    let end_ns = now_ns() + arguments.seconds * SECOND_NS;
    let mean_ns = 3600 * SECOND_NS / arguments.bursts;
    loop {
        // An exponential distribution, at least the longest burst apart.
        let uniform = to_f64(random.below(1 << 53) + 1) / to_f64(1 << 53);
        let pause_ns = table::to_u64(-uniform.ln() * to_f64(mean_ns)) + 2 * LONGEST_MS * 1_000_000;
        let next_ns = now_ns() + pause_ns;
        if next_ns > end_ns {
            break;
        }
        sleep_until(next_ns);
        let length_ms = SHORTEST_MS + random.below(LONGEST_MS - SHORTEST_MS + 1);
        let mut command = job.command(Path::new("sh"));
        let command = command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let begin_us = wall_us();
        let mut program = KilledOnDrop(command.spawn()?);
        sleep_until(now_ns() + length_ms * 1_000_000);
        program.kill()?;
        program.wait()?;
        bursts.push((begin_us, wall_us()));
        sent.take(running.frames());
    }
    sleep_until(end_ns);
    pause(SETTLE_NS);
    running.connect()?.status()?;
    sent.take(running.frames());
    Ok((bursts, sent))
}

/// Part of the milliseconds of an interval that were kept.
fn share((begin_us, end_us): Interval, kept_ms: &BTreeSet<i64>) -> f64 {
    let milliseconds = begin_us.div_euclid(1000)..end_us.div_euclid(1000);
    let all = milliseconds.clone().count().max(1);
    to_f64(kept_ms.range(milliseconds).count() as u64) / to_f64(all as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_caught_by_its_milliseconds() {
        let kept = (100..150).collect();
        assert!((share((100_000, 200_000), &kept) - 0.5).abs() < 1e-9);
        assert!((share((110_500, 150_000), &kept) - 1.0).abs() < 1e-9);
        assert!(share((10_000, 90_000), &kept) < 1e-9);
    }
}
