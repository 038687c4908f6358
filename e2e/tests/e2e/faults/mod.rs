//! Every part is killed, stopped, restarted and cut off in turn, while somebody else reads the same kernel files. Afterwards
//! sums, duplicates and ledger are compared in SQL.
//!
//! The order follows from a seed, which is printed. `POLYMETER_SEED=N` runs with that one. `POLYMETER_FAULT_SECONDS=N` goes on
//! for so long.

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

/// What happens, to one part at a time.
#[derive(Debug, Clone, Copy)]
enum Fault {
    CollectorKilled,
    CollectorTerminated,
    CollectorStopped,
    /// An agent, while the collector takes what it sends.
    AgentKilled,
    /// An agent that has begun to write to its spool, for there is no collector.
    AgentKilledWithoutCollector,
    /// An agent that has nobody to give its last frames to.
    AgentTerminatedWithoutCollector,
    AgentStopped,
    DatabaseCrashed,
    DatabaseStopped,
    LinkCut,
    /// Those behind the link are not told that their collector is gone, and find another in its place.
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

    /// Lets it happen, for as long as it takes to matter, and puts it right.
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

/// Lets each fault happen once, in an order of its own.
fn all_faults(scene: &mut Scene, random: &mut Random) {
    let mut faults = Fault::ALL;
    random.shuffle(&mut faults);
    for fault in faults {
        // Now and then one agent sees nothing of it.
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
