//! Fault injection: every component is killed, stopped, restarted and disconnected in turn, while an independent reader
//! reads the same kernel files. Afterwards sums, duplicates and the ledger are checked in SQL.
//!
//! A seed, which is printed, determines the order. `POLYMETER_SEED=N` sets it. `POLYMETER_FAULT_SECONDS=N` sets the
//! duration.

mod balance;
mod comings;
mod observer;
mod scene;

use self::scene::{COUNTED, FAR, MORTAL, Scene};
use polymeter_e2e::random::Random;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, require};
use rustix::process::Signal;

tests![
    exclusive no_sample_is_lost_silently_under_faults,
];

const NEEDS: [Need; 5] = [Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Mounts, Need::Network];

/// A fault of one component.
#[derive(Debug, Clone, Copy)]
enum Fault {
    CollectorKilled,
    CollectorTerminated,
    CollectorStopped,
    /// An agent is killed while the collector receives its data.
    AgentKilled,
    /// An agent is killed after it has begun to write to its spool, without a collector.
    AgentKilledWithoutCollector,
    /// An agent is terminated and cannot deliver its last frames.
    AgentTerminatedWithoutCollector,
    AgentStopped,
    DatabaseCrashed,
    DatabaseStopped,
    LinkCut,
    /// The agents behind the link get no notice that their collector is gone, and find another in its place.
    LinkCutAndCollectorKilled,
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::CollectorKilled,
        Self::CollectorTerminated,
        Self::CollectorStopped,
        Self::AgentKilled,
        Self::AgentKilledWithoutCollector,
        Self::AgentTerminatedWithoutCollector,
        Self::AgentStopped,
        Self::DatabaseCrashed,
        Self::DatabaseStopped,
        Self::LinkCut,
        Self::LinkCutAndCollectorKilled,
    ];

    /// Causes the fault for as long as it needs to take effect, and repairs it.
    fn strike(self, scene: &mut Scene, random: &mut Random) {
        match self {
            Self::CollectorKilled => {
                scene.kill_collector();
                scene.must_sample();
                scene.start_collector();
            }
            Self::CollectorTerminated => {
                scene.terminate_collector();
                scene.must_sample();
                scene.start_collector();
            }
            Self::CollectorStopped => {
                scene.collector().signal(Signal::STOP);
                scene.must_sample();
                scene.collector().signal(Signal::CONT);
            }
            Self::AgentKilled => {
                scene.end_mortal(Signal::KILL);
                scene.must_sample();
                scene.start_agent(MORTAL);
            }
            Self::AgentKilledWithoutCollector => {
                scene.kill_collector();
                scene.must_spool(MORTAL);
                scene.end_mortal(Signal::KILL);
                scene.count_the_dead();
                scene.start_collector();
                scene.start_agent(MORTAL);
            }
            Self::AgentTerminatedWithoutCollector => {
                scene.kill_collector();
                scene.must_sample();
                scene.end_mortal(Signal::TERM);
                scene.count_the_dead();
                scene.start_collector();
                scene.start_agent(MORTAL);
            }
            Self::AgentStopped => scene.stop_agent(random.choose(COUNTED)),
            Self::DatabaseCrashed => {
                scene.hub.server().crash();
                scene.must_spool(MORTAL);
                scene.hub.server().resume();
            }
            Self::DatabaseStopped => {
                scene.hub.server().freeze();
                scene.must_sample();
                scene.hub.server().thaw();
            }
            Self::LinkCut => {
                scene.network.cut();
                scene.must_spool(FAR);
                scene.network.mend();
            }
            Self::LinkCutAndCollectorKilled => {
                scene.network.cut();
                scene.must_sample();
                scene.kill_collector();
                scene.start_collector();
                scene.must_sample();
                scene.network.mend();
            }
        }
    }
}

/// Causes each fault once, in random order.
fn all_faults(scene: &mut Scene, random: &mut Random) {
    let mut faults = Fault::ALL;
    random.shuffle(&mut faults);
    for fault in faults {
        // In a quarter of the cases the link is cut as well: the agent behind it does not notice the fault.
        let cut = random.below(4) == 0;
        println!("{fault:?}{}", if cut { ", and the link is cut" } else { "" });
        if cut {
            scene.network.cut();
        }
        fault.strike(scene, random);
        scene.network.mend();
        scene.must_recover();
    }
}

fn no_sample_is_lost_silently_under_faults() {
    require(&NEEDS);
    let seed = std::env::var("POLYMETER_SEED")
        .map_or_else(|_| polymeter_e2e::now_us() as u64, |seed| seed.parse().unwrap());
    let mut random = Random(seed.max(1));
    println!("POLYMETER_SEED={seed}");
    let seconds = std::env::var("POLYMETER_FAULT_SECONDS").map_or(0, |seconds| seconds.parse().unwrap());
    let until_us = polymeter_e2e::now_us() + seconds * 1_000_000;

    let mut scene = Scene::set(seed);
    loop {
        all_faults(&mut scene, &mut random);
        if polymeter_e2e::now_us() >= until_us {
            break;
        }
    }
    let mut ended = scene.end();
    balance::nothing_twice(&mut ended);
    balance::ledger_is_whole(&mut ended);
    balance::stored_is_what_was_taken(&mut ended);
    balance::no_life_has_a_hole(&mut ended);
    balance::the_dead_left_what_they_had(&mut ended);
    balance::values_are_the_kernels(&ended);
}
