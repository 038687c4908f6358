//! Agents, a network, collectors with one store, and random faults.

mod invariants;

use std::collections::{HashMap, HashSet};

use polymeter_agent::delivery::session::{DeliverySession, SessionNotice};
use polymeter_collector::session_messages::Peer;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::ToAgent;

use crate::agent::{Agent, peer};
use crate::collector::{Answer, Collector};
use crate::disk::{Disk, SpooledFrame};
use crate::store::Store;
use polymeter_e2e::random::Random;

/// Maximum number of messages in transit in each direction: a socket's queue has no room for more.
const IN_TRANSIT_MAX: usize = 40;

/// One-second rounds after the faults in which everything must arrive: more than the longest wait for an
/// acknowledgement.
const SETTLE_SECONDS: u32 = 200;

/// How often one frame is damaged at most. After one more, an agent might rightly give up on it.
const DAMAGES_MAX: u32 = 2;

pub(crate) struct World {
    random: Random,
    now_ns: u64,
    agents: Vec<Agent>,
    writers: u64,
    collectors: Vec<Collector>,
    /// Collectors that do not run for a while, and lose nothing.
    frozen: HashSet<usize>,
    store: Store,
    /// True while nothing is committed, and the collectors receive nothing.
    database_unavailable: bool,
    /// Messages in transit, each with the number of its collector.
    to_collectors: Vec<(usize, Peer, Vec<u8>)>,
    to_agents: Vec<Answer>,
    connections: u64,
    sessions: u64,
    /// Frames that the collectors refuse every time.
    poisoned: HashSet<(SessionId, u64)>,
    seen: HashSet<(SessionId, u64)>,
    damaged: HashMap<(SessionId, u64), u32>,
    /// Samples of killed agents, by session.
    killed: HashMap<SessionId, u64>,
    backup: Store,
    /// Frames on the disk of an agent when it was killed or ended.
    spooled: Vec<SpooledFrame>,
    /// Events of agents that ended and left everything on the disk.
    ended: HashMap<SessionId, Vec<i64>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (writers, collectors) = (1 + random.below(3), 1 + random.below(3));
        let mut world = Self {
            // Not 0, which the collector's clock might take for "never".
            now_ns: 1_790_000_000_000_000_000,
            agents: Vec::new(),
            writers,
            collectors: (0..collectors).map(|_| Collector::new(writers)).collect(),
            frozen: HashSet::new(),
            store: Store::default(),
            database_unavailable: false,
            to_collectors: Vec::new(),
            to_agents: Vec::new(),
            connections: 0,
            sessions: 0,
            poisoned: HashSet::new(),
            seen: HashSet::new(),
            damaged: HashMap::new(),
            killed: HashMap::new(),
            backup: Store::default(),
            spooled: Vec::new(),
            ended: HashMap::new(),
            random,
        };
        for _ in 0..1 + world.random.below(3) {
            let agent = world.new_agent();
            world.agents.push(agent);
        }
        world
    }

    fn new_agent(&mut self) -> Agent {
        self.sessions += 1;
        self.connections += 1;
        // Room for a few frames up to all of them.
        let outbox_bytes = 1700 << self.random.below(4);
        let disk = self.random.percent(35).then(|| Disk::new(2048 << self.random.below(6)));
        let mut agent = Agent::new(self.sessions, self.connections, outbox_bytes, disk, self.now_ns);
        agent.collector = self.any_collector();
        agent
    }

    fn any_collector(&mut self) -> usize {
        self.random.below(self.collectors.len() as u64) as usize
    }

    pub(crate) fn step(&mut self) {
        let agent = self.random.below(self.agents.len() as u64) as usize;
        self.now_ns += self.random.below(200_000_000);
        match self.random.below(100) {
            0..27 => self.flush(agent),
            27..28 => self.move_agent(agent),
            28..29 => self.toggle_frozen(),
            29..45 => self.send(agent),
            45..65 => self.transmit_to_collector(),
            65..80 => self.transmit_to_agent(),
            80..88 => self.commit(),
            88..91 => self.break_connection(agent),
            91..93 => self.restart_any_collector(),
            93..95 => self.database_unavailable = !self.database_unavailable,
            95..96 => self.kill_agent(agent),
            96..97 => self.commit_without_acknowledgement(),
            97..98 => self.toggle_disk_fault(agent),
            98..99 => self.replace_store(),
            _ => self.advance_clock(),
        }
    }

    fn flush(&mut self, agent: usize) {
        self.agents[agent].flush(&mut self.random, self.now_ns);
    }

    fn send(&mut self, agent: usize) {
        let (agent, now_ns) = (&mut self.agents[agent], self.now_ns);
        agent.deliveries().for_each(|delivery| delivery.advance(now_ns));
        agent.sync_disk(false, now_ns);
        while self.to_collectors.len() < IN_TRANSIT_MAX
            && let Some(bytes) = agent.next_send(now_ns)
        {
            if let Some(name) = Frame::peek(&bytes)
                && self.seen.insert(name)
                && self.random.percent(1)
            {
                self.poisoned.insert(name);
            }
            self.to_collectors.push((agent.collector, agent.peer.clone(), bytes));
        }
    }

    /// Delivers one of the messages, or loses, repeats or damages it.
    fn transmit_to_collector(&mut self) {
        if self.database_unavailable || self.to_collectors.is_empty() {
            return;
        }
        let (collector, peer, mut bytes) = take_random(&mut self.random, &mut self.to_collectors);
        if self.frozen.contains(&collector) {
            return self.to_collectors.push((collector, peer, bytes));
        }
        match self.random.below(20) {
            0 => return,
            1 => self.to_collectors.push((collector, peer.clone(), bytes.clone())),
            2 if bytes.starts_with(&frame::MAGIC) => {
                let times = Frame::peek(&bytes).map(|name| self.damaged.entry(name).or_default());
                if let Some(times) = times.filter(|times| **times < DAMAGES_MAX) {
                    *times += 1;
                    *bytes.last_mut().unwrap() ^= 1;
                }
            }
            _ => {}
        }
        self.deliver_to_collector(collector, &peer, &bytes);
    }

    fn deliver_to_collector(&mut self, collector: usize, peer: &Peer, bytes: &[u8]) {
        let poisoned = &self.poisoned;
        let answer =
            self.collectors[collector].take(&self.store, peer, bytes, self.now_ns, |session, sequence| {
                poisoned.contains(&(session, sequence))
            });
        self.to_agents.extend(answer);
    }

    fn transmit_to_agent(&mut self) {
        if self.to_agents.is_empty() {
            return;
        }
        let (peer, answer) = take_random(&mut self.random, &mut self.to_agents);
        match self.random.below(10) {
            0 => return,
            // A repeated refusal would count as several.
            1 if !matches!(answer, ToAgent::Refused { .. }) => {
                self.to_agents.push((peer.clone(), answer.clone()));
            }
            _ => {}
        }
        self.deliver_to_agent(&peer, answer);
    }

    fn deliver_to_agent(&mut self, peer: &Peer, answer: ToAgent) {
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.peer == *peer) else { return };
        let before = agent.delivery.outbox_bytes();
        for delivery in agent.deliveries() {
            if let SessionNotice::GivenUp { sequence, .. } = delivery.handle(answer.clone(), self.now_ns) {
                let name = (delivery.session(), sequence);
                assert!(self.poisoned.contains(&name), "{name:?} is given up although it is not poisoned");
            }
        }
        agent.taken_back_bytes += agent.delivery.outbox_bytes().saturating_sub(before);
    }

    fn commit(&mut self) {
        let collector = self.any_collector();
        if !self.database_unavailable && !self.frozen.contains(&collector) {
            let (writer, times) = (self.random.next_u64(), 1 + self.random.below(2));
            let frames = if self.random.percent(50) { usize::MAX } else { self.random.below(4) as usize };
            let answers = self.collectors[collector].commit(&mut self.store, writer, frames, times);
            self.to_agents.extend(answers);
        }
    }

    /// A collector is restarted between the commit and the acknowledgement.
    fn commit_without_acknowledgement(&mut self) {
        let collector = self.any_collector();
        if !self.database_unavailable && !self.frozen.contains(&collector) {
            self.collectors[collector].commit_all(&mut self.store);
            self.restart_collector(collector);
        }
    }

    fn restart_any_collector(&mut self) {
        let collector = self.any_collector();
        self.restart_collector(collector);
    }

    fn restart_collector(&mut self, collector: usize) {
        self.collectors[collector] = Collector::new(self.writers);
        self.frozen.remove(&collector);
        self.to_collectors.retain(|(to, _, _)| *to != collector);
        for agent in 0..self.agents.len() {
            if self.agents[agent].collector == collector {
                self.break_connection(agent);
            }
        }
    }

    fn toggle_frozen(&mut self) {
        let collector = self.any_collector();
        if !self.frozen.remove(&collector) {
            self.frozen.insert(collector);
        }
    }

    /// An agent leaves its collector for another one. Its messages may still arrive, and their answers are
    /// lost.
    fn move_agent(&mut self, agent: usize) {
        self.agents[agent].collector = self.any_collector();
        self.connect(agent);
    }

    /// Replaces a connection; the messages in transit on the old one are lost.
    fn break_connection(&mut self, agent: usize) {
        let lost = &self.agents[agent].peer;
        self.to_collectors.retain(|(_, peer, _)| peer != lost);
        self.to_agents.retain(|(peer, _)| peer != lost);
        self.connect(agent);
    }

    fn connect(&mut self, agent: usize) {
        let agent = &mut self.agents[agent];
        self.connections += 1;
        agent.peer = peer(self.connections);
        agent.deliveries().for_each(DeliverySession::connected);
    }

    /// Replaces an agent. The data in its memory are lost unless it ends in an orderly way; its messages in
    /// transit may still arrive, and the data on its disk must.
    fn kill_agent(&mut self, agent: usize) {
        let ends = self.random.percent(30);
        if let Some(disk) = self.agents[agent].disk.as_mut().filter(|_| ends) {
            disk.is_faulty = false;
        }
        self.agents[agent].sync_disk(ends, self.now_ns);
        let mut killed = self.new_agent();
        std::mem::swap(&mut self.agents[agent], &mut killed);
        self.killed.insert(killed.session, killed.samples);
        if let Some(disk) = killed.disk {
            if ends && killed.delivery.is_spooled() {
                assert!(!killed.delivery.has_unreported(), "events or tallies are in no frame");
                self.ended.insert(killed.session, killed.events);
            }
            self.spooled.extend(disk.frames());
            let Agent { session, outbox_bytes, .. } = self.agents[agent];
            let connection = self.connections;
            let collector = self.agents[agent].collector;
            self.agents[agent] = Agent::new(session.0, connection, outbox_bytes, Some(disk), self.now_ns);
            self.agents[agent].collector = collector;
        }
    }

    fn toggle_disk_fault(&mut self, agent: usize) {
        if let Some(disk) = &mut self.agents[agent].disk {
            disk.is_faulty = !disk.is_faulty;
        }
    }

    /// Copies the store, or replaces it with the backup or an empty one, while the collectors run or not.
    fn replace_store(&mut self) {
        match self.random.below(10) {
            0..5 => return self.backup = self.store.clone(),
            5 => self.backup = Store::default(),
            _ => {}
        }
        let is_same_file = self.random.percent(50);
        self.store.replace(&self.backup, is_same_file);
        for collector in 0..self.collectors.len() {
            if self.random.percent(30) {
                self.restart_collector(collector);
            }
        }
    }

    fn advance_clock(&mut self) {
        self.now_ns += self.random.below(70) * 1_000_000_000;
    }

    /// Stops all faults: everything must arrive, in order and in bounded time.
    pub(crate) fn settle(&mut self) {
        self.database_unavailable = false;
        self.frozen.clear();
        let now_ns = self.now_ns;
        self.agents.iter_mut().for_each(|agent| agent.end(now_ns));
        for disk in self.agents.iter_mut().filter_map(|agent| agent.disk.as_mut()) {
            disk.is_faulty = false;
        }
        for _ in 0..SETTLE_SECONDS {
            self.now_ns += 1_000_000_000;
            for agent in 0..self.agents.len() {
                self.agents[agent].sync_disk(false, self.now_ns);
                self.send(agent);
            }
            for (collector, peer, bytes) in std::mem::take(&mut self.to_collectors) {
                self.deliver_to_collector(collector, &peer, &bytes);
            }
            for collector in &mut self.collectors {
                self.to_agents.extend(collector.commit_all(&mut self.store));
            }
            for (peer, answer) in std::mem::take(&mut self.to_agents) {
                self.deliver_to_agent(&peer, answer);
            }
            if self.agents.iter().all(Agent::is_settled) {
                return self.check();
            }
        }
        let left: Vec<_> = self.agents.iter().filter(|agent| !agent.is_settled()).collect();
        panic!("not settled after {SETTLE_SECONDS} s: {left:?}");
    }
}

fn take_random<T>(random: &mut Random, from: &mut Vec<T>) -> T {
    // Mostly the oldest one, as in real networks.
    let position = if random.percent(70) { 0 } else { random.below(from.len() as u64) as usize };
    from.remove(position)
}
