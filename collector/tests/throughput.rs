//! A measurement, not a test: how many samples a second one collector takes from agents into a store, with the default
//! settings. `cargo test --release -p polymeter-collector --test throughput -- --ignored --nocapture`

#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;

use std::sync::Arc;

use common::agent::{Agent, shape, values};
use common::{Site, now_us};
use polymeter_collector::clock::Clock;
use polymeter_collector::{Collector, Config};
use polymeter_proto::batch::Shape;

scenarios! {
    #[ignore = "a measurement"]
    samples_per_second
}

const AGENTS: u64 = 20;
const FRAMES: i64 = 100;
const TICKS: i64 = 100;
const SHAPES: u32 = 16;

fn samples_per_second(site: &mut Site) {
    let quiet = site.config();
    let config = Config { commit_interval: Config::new("", quiet.store.clone()).commit_interval, ..quiet };
    let collector = Collector::start(&config, &site.context).unwrap();
    let shapes: Vec<Arc<Shape>> = (1..=SHAPES).map(|id| shape(id, None)).collect();
    let begin_us = now_us() - FRAMES * TICKS * 1000;
    let mut agents: Vec<_> = (0..AGENTS)
        .map(|number| Agent::to(&site.context, &collector, &format!("n{number}"), number))
        .collect();
    for (agent, frame) in (0..FRAMES).flat_map(|frame| (0..AGENTS).map(move |agent| (agent, frame))) {
        let rows: Vec<_> = (0..TICKS).map(|tick| values(frame * TICKS + tick).0).collect();
        let at = |tick: usize| begin_us + (frame * TICKS + tick as i64) * 1000;
        let rows = rows
            .iter()
            .enumerate()
            .flat_map(|(tick, row)| shapes.iter().map(move |shape| (shape, at(tick), row.as_slice())));
        agents[usize::try_from(agent).unwrap()].frame(&rows.collect::<Vec<_>>(), &[], &[]);
    }
    let clock = Clock::start();
    // Each from its own thread: an agent that waits for room must not keep the others waiting.
    std::thread::scope(|scope| {
        for mut agent in agents {
            scope.spawn(move || {
                agent.send_from(0);
                agent.settle();
            });
        }
    });
    let seconds = clock.now().since_start.as_secs_f64();
    let choice = collector.choice().clone();
    let totals = collector.stop().unwrap();
    println!(
        "{choice}: {} samples in {seconds:.2} s, {:.0} a second; {} frames came twice",
        totals.samples,
        totals.samples as f64 / seconds,
        totals.repeated
    );
}
