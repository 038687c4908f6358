//! The delivery protocol under random faults: the real
//! [`DeliverySession`](polymeter_agent::delivery::session) of the agent and the real
//! [`Ingest`](polymeter_collector::ingest) of the collector, with a simulated network, database and clock
//! that a seed determines. Messages are lost, repeated, delayed, reordered and damaged; either side is
//! restarted at any moment, also between the commit and the acknowledgement; the outbox overflows. Agents
//! move between up to three collectors of one store, which stop for a while and then continue with what they
//! had received.
//!
//! The test prints a seed that fails. `POLYMETER_SEED=N` runs that seed alone, `POLYMETER_SEEDS=N` the seeds
//! from 0 to N
//! - 1.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod agent;
mod collector;
mod disk;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polymeter_test_harness::tests;
use world::World;

tests![every_sample_is_stored_or_counted_once,];

/// How many seeds the suite tries; `make check-all` tries more.
const SEEDS: u64 = 4_000;

const STEPS: u32 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run(seed: u64) {
    let passed = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
    }));
    if let Err(panic) = passed {
        eprintln!("seed {seed} fails: run it alone with POLYMETER_SEED={seed}");
        resume_unwind(panic);
    }
}

fn every_sample_is_stored_or_counted_once() {
    if let Some(seed) = number("POLYMETER_SEED") {
        return run(seed);
    }
    let seeds = number("POLYMETER_SEEDS").unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || (thread..seeds).step_by(threads as usize).for_each(run)))
            .collect();
        for thread in all {
            thread.join().expect("a seed fails");
        }
    });
}

fn main() -> std::process::ExitCode {
    polymeter_test_harness::run(&[TESTS])
}
