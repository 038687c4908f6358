//! Fault injection: every component is killed, stopped, restarted and disconnected in turn, while an
//! independent reader reads the same kernel files. Afterwards sums, duplicates and the ledger are checked in
//! SQL.
//!
//! A seed, which is printed, determines the order. `POLYMETER_SEED=N` sets it. `POLYMETER_FAULT_SECONDS=N`
//! sets the duration.

mod balance;
mod churn;
mod fixture;
mod observer;

use self::fixture::{AGENTS, BEHIND_LINK, Fixture, RESTARTED};
use polymeter_e2e::random::Random;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, require};
use rustix::process::Signal;

tests![
    exclusive no_sample_is_lost_silently_under_faults,
];

const NEEDS: [Need; 5] = [Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Mounts, Need::Network];

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
    /// An agent runs out of memory, and the kernel kills it.
    AgentOutOfMemory,
    /// An agent is killed soon after a stop: the deadlines that it missed must be stored with the samples
    /// behind them.
    AgentStoppedAndKilled,
    DatabaseCrashed,
    DatabaseStopped,
    LinkCut,
    /// Agents behind the link get no notice that their collector is gone, and find another in its place.
    LinkCutAndCollectorKilled,
}

impl Fault {
    const ALL: [Self; 13] = [
        Self::CollectorKilled,
        Self::CollectorTerminated,
        Self::CollectorStopped,
        Self::AgentKilled,
        Self::AgentKilledWithoutCollector,
        Self::AgentTerminatedWithoutCollector,
        Self::AgentStopped,
        Self::AgentOutOfMemory,
        Self::AgentStoppedAndKilled,
        Self::DatabaseCrashed,
        Self::DatabaseStopped,
        Self::LinkCut,
        Self::LinkCutAndCollectorKilled,
    ];

    /// Causes the fault for as long as it needs to take effect, and repairs it.
    fn inject(self, fixture: &mut Fixture, random: &mut Random) {
        match self {
            Self::CollectorKilled => {
                fixture.kill_collector();
                fixture.wait_for_samples();
                fixture.start_collector();
            }
            Self::CollectorTerminated => {
                fixture.terminate_collector();
                fixture.wait_for_samples();
                fixture.start_collector();
            }
            Self::CollectorStopped => {
                fixture.collector().signal(Signal::STOP);
                fixture.wait_for_samples();
                fixture.collector().signal(Signal::CONT);
            }
            Self::AgentKilled => {
                fixture.start_again_after(|fixture| fixture.end_restarted_agent(Signal::KILL))
            }
            Self::AgentKilledWithoutCollector => {
                fixture.kill_collector();
                fixture.wait_until_spooling(RESTARTED);
                fixture.end_restarted_agent(Signal::KILL);
                fixture.record_ended_sessions();
                fixture.start_collector();
                fixture.start_agent(RESTARTED);
            }
            Self::AgentTerminatedWithoutCollector => {
                fixture.kill_collector();
                fixture.wait_for_samples();
                fixture.end_restarted_agent(Signal::TERM);
                fixture.record_ended_sessions();
                fixture.start_collector();
                fixture.start_agent(RESTARTED);
            }
            Self::AgentStopped => fixture.stop_agent(random.choose(AGENTS)),
            Self::AgentOutOfMemory => fixture.start_again_after(Fixture::exhaust_memory_of_restarted_agent),
            Self::AgentStoppedAndKilled => {
                fixture.stop_agent(RESTARTED);
                fixture.wait_for_acknowledgements_of(RESTARTED);
                fixture.end_restarted_agent(Signal::KILL);
                fixture.wait_for_samples();
                fixture.start_agent(RESTARTED);
            }
            Self::DatabaseCrashed => {
                fixture.server_env.server().crash();
                fixture.wait_until_spooling(RESTARTED);
                fixture.server_env.server().resume();
            }
            Self::DatabaseStopped => {
                fixture.server_env.server().freeze();
                fixture.wait_for_samples();
                fixture.server_env.server().thaw();
            }
            Self::LinkCut => {
                fixture.network.cut();
                fixture.wait_until_spooling(BEHIND_LINK);
                fixture.network.restore();
            }
            Self::LinkCutAndCollectorKilled => {
                fixture.network.cut();
                fixture.wait_for_samples();
                fixture.kill_collector();
                fixture.start_collector();
                fixture.wait_for_samples();
                fixture.network.restore();
            }
        }
    }
}

fn all_faults(fixture: &mut Fixture, random: &mut Random) {
    let mut faults = Fault::ALL;
    random.shuffle(&mut faults);
    for fault in faults {
        // In a quarter of the cases the link is cut as well: the agent behind it does not notice the fault.
        let cut = random.below(4) == 0;
        println!("{fault:?}{}", if cut { ", and the link is cut" } else { "" });
        if cut {
            fixture.network.cut();
        }
        fault.inject(fixture, random);
        fixture.network.restore();
        fixture.wait_for_acknowledgements();
    }
}

fn no_sample_is_lost_silently_under_faults() {
    require(&NEEDS);
    let seed = std::env::var("POLYMETER_SEED")
        .map_or_else(|_| polymeter_e2e::now_us() as u64, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    println!("POLYMETER_SEED={seed}");
    let seconds = std::env::var("POLYMETER_FAULT_SECONDS").map_or(0, |seconds| seconds.parse().unwrap());
    let until_us = polymeter_e2e::now_us() + seconds * 1_000_000;

    let mut fixture = Fixture::new(seed);
    loop {
        all_faults(&mut fixture, &mut random);
        if polymeter_e2e::now_us() >= until_us {
            break;
        }
    }
    let mut results = fixture.end();
    balance::assert_no_duplicates(&mut results);
    balance::assert_ledger_balances(&mut results);
    balance::assert_stored_matches_ledger(&mut results);
    balance::assert_no_gaps(&mut results);
    balance::assert_ended_sessions_are_stored(&mut results);
    balance::assert_device_has_only_its_values(&mut results);
    balance::assert_values_match_the_kernel(&results);
}
