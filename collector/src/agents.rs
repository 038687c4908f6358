//! Directory of connected agents and their jobs, in which control finds the nodes of a job.
//!
//! The writers update it with the reports of agents. For each node the newest session counts, since a
//! restarted agent may still send samples of its previous session.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_store::accepted::Accepted;
use tokio::sync::Notify;

use crate::limits;
use crate::session_messages::Peer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    pub session: SessionId,
    pub peer: Peer,
    pub node: Identifier,
    /// Start of the session, in microseconds since the epoch.
    pub started_us: i64,
    /// Tracked jobs, each with its owner's numeric id, if known.
    pub jobs: Vec<(Identifier, Option<u32>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNode {
    pub node: Identifier,
    pub session: SessionId,
    pub peer: Peer,
    /// Numeric id of the job's owner, as this node reports it.
    pub owner_uid: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    info: AgentInfo,
    /// Number of its last change.
    change: u64,
    /// Time of its newest committed frame, in microseconds since the epoch; none before the first.
    heard_us: Option<i64>,
    has_ended: bool,
    /// Jobs that ended last on the node, each with its owner's numeric id: their agent may still hold rings.
    ended_jobs: VecDeque<(Identifier, Option<u32>)>,
}

/// Ended jobs of a node that are remembered.
const ENDED_JOBS: usize = 32;

impl Entry {
    fn remember_ended(&mut self, before: Vec<(Identifier, Option<u32>)>) {
        let ended = before.into_iter().filter(|(job, _)| self.info.jobs.iter().all(|(id, _)| id != job));
        for (job, owner_uid) in ended {
            self.ended_jobs.retain(|(id, _)| *id != job);
            self.ended_jobs.push_back((job, owner_uid));
        }
        let excess = self.ended_jobs.len().saturating_sub(ENDED_JOBS);
        self.ended_jobs.drain(..excess);
    }

    fn ended_job(&self, job: &Identifier) -> Option<JobNode> {
        let (_, owner_uid) = self.ended_jobs.iter().find(|(id, _)| id == job)?;
        Some(self.info.node_with(*owner_uid))
    }

    /// Frames of the agent arrive here, not at another collector.
    fn is_connected(&self, now_us: i64) -> bool {
        !self.has_ended
            && self
                .heard_us
                .is_none_or(|heard_us| now_us.saturating_sub(heard_us) <= limits::AGENT_SILENCE_US)
    }
}

/// Connected agents, shared by the writers and control.
#[derive(Debug, Clone, Default)]
pub struct AgentDirectory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<Identifier, Entry>,
    jobs: usize,
    changes: u64,
    /// Nodes that changed since control last took the changes.
    changed: BTreeSet<Identifier>,
}

impl AgentDirectory {
    pub fn update(&self, agent: AgentInfo) {
        if self.lock().update(agent) {
            self.0.changed.notify_one();
        }
    }

    /// Nodes of a job, sorted by name.
    pub fn nodes_of(&self, job: &Identifier) -> Vec<JobNode> {
        self.nodes_where(|entry| entry.info.job_node(job))
    }

    /// Nodes of a job, also those on which it has ended a while ago, sorted by name.
    pub fn nodes_of_ended(&self, job: &Identifier) -> Vec<JobNode> {
        self.nodes_where(|entry| entry.info.job_node(job).or_else(|| entry.ended_job(job)))
    }

    fn nodes_where(&self, node: impl Fn(&Entry) -> Option<JobNode>) -> Vec<JobNode> {
        // This takes some microseconds per thousand nodes, and requests are rare.
        let state = self.lock();
        let mut nodes: Vec<_> = state.nodes.values().filter_map(node).collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        nodes
    }

    /// Agents whose sessions have not ended and that had a frame committed recently.
    pub fn connected(&self, now_us: i64) -> Vec<AgentInfo> {
        let state = self.lock();
        let connected = state.nodes.values().filter(|entry| entry.is_connected(now_us));
        connected.map(|entry| entry.info.clone()).collect()
    }

    /// True if an agent with this session sends on this connection.
    pub(crate) fn is_connected(&self, session: SessionId, peer: &Peer) -> bool {
        let state = self.lock();
        state.nodes.values().any(|entry| entry.info.session == session && entry.info.peer == *peer)
    }

    /// Records that frames were committed: their sessions send, or end.
    pub(crate) fn heard(&self, frames: &[Accepted]) {
        let mut state = self.lock();
        for frame in frames {
            let Some(entry) = state.nodes.get_mut(&frame.session.descriptor.node) else { continue };
            if entry.info.session == frame.session.id {
                entry.heard_us = entry.heard_us.max(Some(frame.received_us));
                // A session that sends after its end continues.
                entry.has_ended = frame.session_end_us.is_some();
            }
        }
    }

    /// Connections of the agents whose sessions have not ended, as nodes of no job.
    pub(crate) fn connections(&self) -> Vec<JobNode> {
        let state = self.lock();
        let agents = state.nodes.values().filter(|entry| !entry.has_ended).map(|entry| &entry.info);
        agents.map(|agent| agent.node_with(None)).collect()
    }

    /// Takes the agents with jobs that have changed since the last call.
    pub fn take_changes(&self) -> Vec<AgentInfo> {
        let mut state = self.lock();
        let changed = std::mem::take(&mut state.changed);
        changed.iter().filter_map(|node| Some(state.nodes.get(node)?.info.clone())).collect()
    }

    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic leaves it in an inconsistent state.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentInfo {
    fn job_node(&self, job: &Identifier) -> Option<JobNode> {
        let (_, owner_uid) = self.jobs.iter().find(|(id, _)| id == job)?;
        Some(self.node_with(*owner_uid))
    }

    pub(crate) fn node_with(&self, owner_uid: Option<u32>) -> JobNode {
        JobNode { node: self.node.clone(), session: self.session, peer: self.peer.clone(), owner_uid }
    }
}

impl State {
    /// Returns true if control must be notified.
    fn update(&mut self, agent: AgentInfo) -> bool {
        if self.nodes.get(&agent.node).is_some_and(|known| known.info.started_us > agent.started_us) {
            return false;
        }
        let of_session = self.forget(&agent.node).filter(|known| known.info.session == agent.session);
        let (heard_us, has_ended, ended_jobs, jobs_before) = of_session
            .map_or_else(Default::default, |known| {
                (known.heard_us, known.has_ended, known.ended_jobs, known.info.jobs)
            });
        let has_jobs = !agent.jobs.is_empty();
        if has_jobs {
            self.changed.insert(agent.node.clone());
        }
        self.changes += 1;
        self.jobs += agent.jobs.len();
        let mut entry = Entry { info: agent, change: self.changes, heard_us, has_ended, ended_jobs };
        entry.remember_ended(jobs_before);
        self.nodes.insert(entry.info.node.clone(), entry);
        while self.nodes.len() > limits::NODES || self.jobs > limits::JOBS {
            let oldest = self.nodes.iter().min_by_key(|(_, entry)| entry.change);
            let Some(oldest) = oldest.map(|(node, _)| node.clone()) else { break };
            self.forget(&oldest);
        }
        has_jobs
    }

    fn forget(&mut self, node: &Identifier) -> Option<Entry> {
        let entry = self.nodes.remove(node)?;
        self.jobs -= entry.info.jobs.len();
        self.changed.remove(node);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Identifier {
        text.try_into().unwrap()
    }

    fn agent(node: &str, started_us: i64, jobs: &[(&str, u32)]) -> AgentInfo {
        AgentInfo {
            session: SessionId(started_us.cast_unsigned()),
            peer: Peer::from(node.as_bytes()),
            node: name(node),
            started_us,
            jobs: jobs.iter().map(|(job, uid)| (name(job), Some(*uid))).collect(),
        }
    }

    #[test]
    fn nodes_of_a_job_are_those_whose_newest_session_tracks_it() {
        let directory = AgentDirectory::default();
        directory.update(agent("n2", 1, &[("7", 1000), ("8", 1001)]));
        directory.update(agent("n1", 2, &[("7", 1000)]));
        let nodes = |job| -> Vec<_> {
            directory.nodes_of(&name(job)).into_iter().map(|found| found.node.to_string()).collect()
        };
        assert_eq!(nodes("7"), ["n1", "n2"]);
        assert_eq!(nodes("9"), [""; 0]);
        assert_eq!(directory.nodes_of(&name("8"))[0].owner_uid, Some(1001));
        directory.update(agent("n2", 3, &[]));
        assert_eq!(nodes("7"), ["n1"]);
        directory.update(agent("n2", 1, &[("7", 1000)]));
        assert_eq!(nodes("7"), ["n1"], "the predecessor's outbox drains");
        directory.update(agent("n2", 3, &[("7", 1000)]));
        assert_eq!(nodes("7"), ["n1", "n2"]);
    }

    #[test]
    fn ended_jobs_of_a_session_are_remembered_for_a_while() {
        let directory = AgentDirectory::default();
        directory.update(agent("n1", 1, &[("7", 1000), ("8", 1001)]));
        directory.update(agent("n2", 1, &[("7", 1000)]));
        directory.update(agent("n1", 1, &[("8", 1001)]));
        let nodes = |job: &str| -> Vec<(String, Option<u32>)> {
            let found = directory.nodes_of_ended(&name(job)).into_iter();
            found.map(|found| (found.node.to_string(), found.owner_uid)).collect()
        };
        let both = [("n1".to_owned(), Some(1000)), ("n2".to_owned(), Some(1000))];
        assert_eq!(nodes("7"), both);
        assert_eq!(directory.nodes_of(&name("7")).len(), 1);
        for number in 0..ENDED_JOBS {
            let job = format!("m{number}");
            directory.update(agent("n1", 1, &[(&job, 1)]));
        }
        directory.update(agent("n1", 1, &[]));
        assert_eq!(nodes("7"), both[1..], "{ENDED_JOBS} others ended since");
        assert_eq!(nodes("m9").len(), 1);
        directory.update(agent("n1", 2, &[]));
        assert_eq!(nodes("m9"), [], "another session has other rings");
    }

    #[test]
    fn changes_are_reported_once_and_memory_is_bounded() {
        let directory = AgentDirectory::default();
        directory.update(agent("n1", 1, &[("7", 1000)]));
        directory.update(agent("n1", 1, &[("7", 1000), ("8", 1000)]));
        directory.update(agent("n2", 1, &[]));
        assert_eq!(directory.take_changes(), [agent("n1", 1, &[("7", 1000), ("8", 1000)])]);
        assert_eq!(directory.take_changes(), []);
        for number in 0..limits::NODES {
            directory.update(agent(&format!("m{number}"), 1, &[("7", 1000)]));
        }
        assert_eq!(directory.nodes_of(&name("7")).len(), limits::NODES);
        assert_eq!(directory.nodes_of(&name("8")), [], "n1 has not changed for the longest time");
        assert_eq!(directory.take_changes().len(), limits::NODES);
        let many = vec![("9", 1000); limits::JOBS / 2];
        for node in ["l1", "l2"] {
            directory.update(agent(node, 1, &many));
        }
        assert_eq!(directory.nodes_of(&name("9")).len(), 2);
        assert_eq!(directory.nodes_of(&name("7")), [], "two nodes with many jobs use the whole limit");
    }
}
