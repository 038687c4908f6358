//! Which agents speak, and which jobs run where: what control needs to find the nodes of a job.
//!
//! The writers say what they learn; nobody is asked. Of a node the newest session counts, since an agent that was started
//! anew may still be sending what its predecessor sampled.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_proto::series::{Identifier, SessionId};
use tokio::sync::Notify;

use crate::inbox::Peer;
use crate::limits;

/// What a session says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Its id.
    pub session: SessionId,
    /// Where its agent is connected.
    pub peer: Peer,
    /// Its node.
    pub node: Identifier,
    /// When it began, in microseconds since the epoch.
    pub started_us: i64,
    /// The jobs that it follows, each with its owner's numeric id where that is known.
    pub jobs: Vec<(Identifier, Option<u32>)>,
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub node: Identifier,
    /// The session that follows the job.
    pub session: SessionId,
    /// Where its agent is connected.
    pub peer: Peer,
    /// The job's owner, as this node says.
    pub owner_uid: Option<u32>,
}

/// The directory, shared by the writers and control.
#[derive(Debug, Clone, Default)]
pub struct Directory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By node, with the number of its last change.
    nodes: HashMap<Identifier, (Presence, u64)>,
    /// How many jobs they have together.
    jobs: usize,
    changes: u64,
    /// Nodes that control has not looked at since they changed.
    changed: BTreeSet<Identifier>,
}

impl Directory {
    /// Learns what a session says of itself.
    pub fn learn(&self, presence: Presence) {
        if self.lock().learn(presence) {
            self.0.news.notify_one();
        }
    }

    /// The nodes of a job, sorted by name.
    pub fn places(&self, job: &Identifier) -> Vec<Place> {
        // Some microseconds per thousand nodes; a person asks now and then.
        let state = self.lock();
        let mut places: Vec<_> =
            state.nodes.values().filter_map(|(presence, _)| presence.place(job)).collect();
        places.sort_by(|a, b| a.node.cmp(&b.node));
        places
    }

    /// What has changed since the last call: sessions with jobs.
    pub fn news(&self) -> Vec<Presence> {
        let mut state = self.lock();
        let changed = std::mem::take(&mut state.changed);
        changed.iter().filter_map(|node| Some(state.nodes.get(node)?.0.clone())).collect()
    }

    /// Waits until there may be news.
    pub async fn changed(&self) {
        self.0.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody leaves it half changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn place(&self, job: &Identifier) -> Option<Place> {
        let (_, owner_uid) = self.jobs.iter().find(|(id, _)| id == job)?;
        Some(Place {
            node: self.node.clone(),
            session: self.session,
            peer: self.peer.clone(),
            owner_uid: *owner_uid,
        })
    }
}

impl State {
    /// Says whether control should look.
    fn learn(&mut self, presence: Presence) -> bool {
        if self.nodes.get(&presence.node).is_some_and(|(known, _)| known.started_us > presence.started_us) {
            return false;
        }
        self.forget(&presence.node);
        let tell = !presence.jobs.is_empty();
        if tell {
            self.changed.insert(presence.node.clone());
        }
        self.changes += 1;
        self.jobs += presence.jobs.len();
        self.nodes.insert(presence.node.clone(), (presence, self.changes));
        while self.nodes.len() > limits::NODES || self.jobs > limits::JOBS {
            let oldest = self.nodes.iter().min_by_key(|(_, (_, change))| *change);
            let Some(oldest) = oldest.map(|(node, _)| node.clone()) else { break };
            self.forget(&oldest);
        }
        tell
    }

    fn forget(&mut self, node: &Identifier) {
        if let Some((presence, _)) = self.nodes.remove(node) {
            self.jobs -= presence.jobs.len();
            self.changed.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Identifier {
        text.try_into().unwrap()
    }

    fn presence(node: &str, started_us: i64, jobs: &[(&str, u32)]) -> Presence {
        Presence {
            session: SessionId(started_us.cast_unsigned()),
            peer: Peer::from(node.as_bytes()),
            node: name(node),
            started_us,
            jobs: jobs.iter().map(|(job, uid)| (name(job), Some(*uid))).collect(),
        }
    }

    #[test]
    fn a_jobs_nodes_are_those_whose_newest_session_has_it() {
        let directory = Directory::default();
        directory.learn(presence("n2", 1, &[("7", 1000), ("8", 1001)]));
        directory.learn(presence("n1", 2, &[("7", 1000)]));
        let nodes = |job| -> Vec<_> {
            directory.places(&name(job)).into_iter().map(|place| place.node.to_string()).collect()
        };
        assert_eq!(nodes("7"), ["n1", "n2"]);
        assert_eq!(nodes("9"), [""; 0]);
        assert_eq!(directory.places(&name("8"))[0].owner_uid, Some(1001));
        directory.learn(presence("n2", 3, &[]));
        assert_eq!(nodes("7"), ["n1"]);
        directory.learn(presence("n2", 1, &[("7", 1000)]));
        assert_eq!(nodes("7"), ["n1"], "the predecessor's outbox drains");
        directory.learn(presence("n2", 3, &[("7", 1000)]));
        assert_eq!(nodes("7"), ["n1", "n2"]);
    }

    #[test]
    fn news_are_told_once_and_the_memory_is_bounded() {
        let directory = Directory::default();
        directory.learn(presence("n1", 1, &[("7", 1000)]));
        directory.learn(presence("n1", 1, &[("7", 1000), ("8", 1000)]));
        directory.learn(presence("n2", 1, &[]));
        assert_eq!(directory.news(), [presence("n1", 1, &[("7", 1000), ("8", 1000)])]);
        assert_eq!(directory.news(), []);
        for number in 0..limits::NODES {
            directory.learn(presence(&format!("m{number}"), 1, &[("7", 1000)]));
        }
        assert_eq!(directory.places(&name("7")).len(), limits::NODES);
        assert_eq!(directory.places(&name("8")), [], "n1 was quiet for longest");
        assert_eq!(directory.news().len(), limits::NODES);
        let many = vec![("9", 1000); limits::JOBS / 2];
        for node in ["l1", "l2"] {
            directory.learn(presence(node, 1, &many));
        }
        assert_eq!(directory.places(&name("9")).len(), 2);
        assert_eq!(directory.places(&name("7")), [], "two nodes with many jobs need all the room");
    }
}
