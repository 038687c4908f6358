//! Rings, dumps and triggers under faults: the agent is killed in the middle of a dump, the collector is away
//! or loses messages, triggers and requests come in storms, jobs vanish while a trigger is handled, and the
//! memory is small. The balance holds all the time:
//!
//! ```text
//! due   = taken + missed + absent
//! taken = stored + dropped + not kept + lost (+ unknown after a kill)
//! ```

mod ring_agent;
mod ring_collector;

use polymeter_proto::series::JobHandle;
use ring_agent::RingAgent;
use ring_collector::RingCollector;

use super::random::Random;
use crate::delivery::ring::{NotKept, RingLimits};

const SECOND_US: i64 = 1_000_000;
const BEGIN_US: i64 = 1_790_000_000 * SECOND_US;
const PERIOD_US: i64 = 10_000;

/// Seeds that the suite tries.
const SEEDS: u64 = 40;

const STEPS: u32 = 60;
const JOBS: usize = 6;

/// Bytes beyond the budgets of a ring: its newest rows, and one segment.
const SLACK_BYTES: usize = 192 * 1024;

#[derive(Debug)]
struct Scenario {
    random: Random,
    limits: RingLimits,
    agent: RingAgent,
    collector: RingCollector,
    is_away: bool,
    now_us: i64,
    kills: u64,
}

impl Scenario {
    fn new(mut random: Random) -> Self {
        let limits = RingLimits {
            keep_us: *random.choose(&[2, 6, 20]) * SECOND_US,
            after_end_us: *random.choose(&[0, 1, 5]) * SECOND_US,
            settle_us: SECOND_US,
            memory_bytes: *random.choose(&[4 * 1024, 32 * 1024, 1024 * 1024]),
            bytes_per_s: *random.choose(&[512, 8 * 1024, 1024 * 1024]),
            outbox_bytes: *random.choose(&[16 * 1024, 256 * 1024, 64 * 1024 * 1024]),
        };
        Self::with(random, limits)
    }

    fn with(random: Random, limits: RingLimits) -> Self {
        Self {
            random,
            limits,
            agent: RingAgent::new(1, limits, BEGIN_US),
            collector: RingCollector::default(),
            is_away: false,
            now_us: BEGIN_US,
            kills: 0,
        }
    }

    fn step(&mut self) {
        if self.agent.job_count() < JOBS && self.random.percent(40) {
            self.agent.begin_job(self.now_us);
        }
        match self.random.below(20) {
            0..=3 => self.request(),
            4 => (0..300).for_each(|_| self.request()),
            5..=7 => {
                let number = self.random_job();
                self.agent.kill_process(number);
            }
            8 => (0..JOBS).for_each(|number| self.agent.kill_process(number)),
            9 | 10 => self.is_away = true,
            11..=13 => self.connect(),
            14 => self.kill(),
            _ => {}
        }
        let mut ending = Vec::new();
        if self.random.percent(20) {
            let number = self.random_job();
            // The last reading has the kill.
            if self.random.percent(50) {
                self.agent.kill_process(number);
            }
            ending.push(number);
        }
        let ticks = *self.random.choose(&[1, 20, 100, 200]);
        self.now_us += ticks * PERIOD_US;
        self.agent.flush(ticks, &ending, &mut self.random, self.now_us);
        if self.random.percent(80) {
            self.agent.act_on_triggers();
        }
        self.deliver();
        self.check_bounds();
        check_part(&self.agent, &self.collector);
    }

    fn random_job(&mut self) -> usize {
        usize::try_from(self.random.below(JOBS as u64)).unwrap()
    }

    fn request(&mut self) {
        let job = self.agent.any_job(&mut self.random);
        let end_us = self.now_us + *self.random.choose(&[-30, -2, 0, 1, 30]) * SECOND_US;
        let begin_us = end_us - *self.random.choose(&[1, SECOND_US, 10 * SECOND_US, 60 * SECOND_US]);
        let interval = if self.random.percent(5) { (i64::MIN, i64::MAX) } else { (begin_us, end_us) };
        let taken = self.agent.keep(job, interval, "a user");
        let has_ring = self.agent.requests.held(job).is_some();
        assert!(taken != Err(NotKept::NoRing) || !has_ring);
        assert!(taken.is_err() || has_ring);
    }

    fn connect(&mut self) {
        self.is_away = false;
        self.agent.delivery.connected();
    }

    /// The process ends where it is; its jobs go on and are found by the next one.
    fn kill(&mut self) {
        check_part(&self.agent, &self.collector);
        self.kills += 1;
        let jobs = self.agent.job_count();
        self.agent = RingAgent::new(1 + self.kills, self.limits, self.now_us);
        self.collector = RingCollector::default();
        (0..jobs).for_each(|_| self.agent.begin_job(self.now_us));
    }

    fn deliver(&mut self) {
        if self.is_away {
            return;
        }
        let messages = usize::try_from(self.random.below(30)).unwrap();
        let loses_some = self.random.percent(20);
        let random = &mut self.random;
        self.collector.receive(&mut self.agent, messages, || loses_some && random.percent(20), self.now_us);
    }

    fn check_bounds(&self) {
        let rings = self.agent.ring_bytes();
        let jobs = self.agent.tallies.len() / 2;
        assert!(rings <= jobs * (2 * self.limits.memory_bytes + SLACK_BYTES), "{rings} bytes of {jobs} jobs");
        assert!(self.agent.delivery.outbox_bytes() <= self.limits.outbox_bytes);
    }

    /// Ends the session, delivers everything and checks that every sample has one fate.
    fn end(mut self) -> RingCollector {
        self.connect();
        self.agent.act_on_triggers();
        self.agent.has_ended = true;
        self.now_us += SECOND_US;
        self.agent.flush(10, &[], &mut self.random, self.now_us);
        for _ in 0..100_000 {
            let has_more = self.collector.receive(&mut self.agent, 1000, || false, self.now_us);
            if !has_more && self.agent.delivery.is_empty() && !self.agent.delivery.has_unreported() {
                break;
            }
            self.now_us += SECOND_US;
            self.agent.advance(self.now_us);
        }
        assert!(self.agent.delivery.is_empty(), "frames are left");
        for (source, tally) in &self.agent.tallies {
            let collector = &self.collector;
            let reported = collector.tallies[source];
            let stored = collector.stored.get(source).copied().unwrap_or_default();
            let lost = collector.lost.get(source).copied().unwrap_or_default();
            assert_eq!(reported.due, reported.taken + reported.missed + reported.absent, "{source:?}");
            assert_eq!((reported.due, reported.taken), (tally.due, tally.taken), "{source:?}");
            let known = stored + reported.dropped + reported.not_kept + lost;
            assert_eq!(reported.taken, known, "{source:?}: {reported:?}, {stored} stored, {lost} lost");
        }
        if self.agent.delivery.counts().events_dropped == 0 {
            let promised: Vec<_> = self.agent.promised.keys().collect();
            assert_eq!(self.collector.kept.keys().collect::<Vec<_>>(), promised, "a promise is broken");
        }
        self.collector
    }
}

/// Checks a session that may go on or be killed: what the collector has is true, and nothing has two fates.
fn check_part(agent: &RingAgent, collector: &RingCollector) {
    for (source, tally) in &agent.tallies {
        let reported = collector.tallies.get(source).copied().unwrap_or_default();
        let stored = collector.stored.get(source).copied().unwrap_or_default();
        let lost = collector.lost.get(source).copied().unwrap_or_default();
        assert_eq!(reported.due, reported.taken + reported.missed + reported.absent, "{source:?}");
        assert!(reported.taken <= tally.taken, "{source:?}: {reported:?} of {tally:?}");
        let known = stored + lost + reported.not_kept + reported.dropped;
        assert!(known <= tally.taken, "{source:?}: {known} of {} samples have a fate", tally.taken);
    }
}

fn run(seed: u64) {
    let mut scenario = Scenario::new(Random::new(seed));
    for _ in 0..STEPS {
        scenario.step();
    }
    drop(scenario.end());
}

#[test]
fn every_sample_of_a_ring_has_one_fate() {
    super::for_each_seed(SEEDS, &[], run);
}

#[test]
fn five_hundred_jobs_have_rings_in_small_memory() {
    const MANY: usize = 500;
    let limits = RingLimits {
        keep_us: 20 * SECOND_US,
        after_end_us: 5 * SECOND_US,
        settle_us: SECOND_US,
        memory_bytes: 8 * 1024,
        bytes_per_s: 256 * 1024,
        outbox_bytes: 512 * 1024,
    };
    let mut scenario = Scenario::with(Random::new(500), limits);
    (0..MANY).for_each(|_| scenario.agent.begin_job(BEGIN_US));
    let mut refused = 0;
    for step in 0..16 {
        scenario.now_us += 50 * PERIOD_US;
        scenario.is_away = (4..10).contains(&step);
        if step % 5 == 3 {
            // All of them at once, and each is wanted by a user besides.
            (0..MANY).for_each(|number| scenario.agent.kill_process(number));
            for job in 1..=MANY {
                let handle = JobHandle(u32::try_from(2 * job).unwrap());
                let interval = (scenario.now_us - 2 * SECOND_US, scenario.now_us + SECOND_US);
                refused += usize::from(scenario.agent.keep(handle, interval, "a user").is_err());
            }
        }
        let ending: Vec<usize> = if step == 12 { (0..MANY).step_by(2).collect() } else { Vec::new() };
        scenario.agent.flush(50, &ending, &mut scenario.random, scenario.now_us);
        scenario.agent.act_on_triggers();
        if !scenario.is_away {
            scenario.collector.receive(&mut scenario.agent, 50, || false, scenario.now_us);
        }
        scenario.check_bounds();
    }
    assert!(refused > 0 && !scenario.agent.promised.is_empty(), "a storm of requests is bounded");
    check_part(&scenario.agent, &scenario.collector);
    let collector = scenario.end();
    let not_kept: u64 = collector.tallies.values().map(|tally| tally.not_kept).sum();
    assert!(not_kept > 0 && !collector.kept.is_empty(), "{not_kept} not kept, {:?}", collector.kept.keys());
}
