//! Nodes of a job with the ways to their agents: a connection to this collector, or another collector.
//! Pure.

use std::collections::BTreeMap;

use polymeter_store::{AnsweringSession, StoredJobNode};

use super::permission::may_control;
use crate::agents::JobNode;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) node: String,
    pub(super) own: Option<JobNode>,
    /// Session, if another collector serves it.
    pub(super) other: Option<AnsweringSession>,
}

impl Target {
    pub(super) const fn is_reachable(&self) -> bool {
        self.own.is_some() || self.other.is_some()
    }
}

/// Nodes to which user `uid` may send requests, sorted by name: those of the agents that this collector
/// knows, and those that the store knows. An agent that has just moved may be both; the session that it has
/// left does not answer.
pub(super) fn targets(
    uid: u32,
    own: Vec<JobNode>,
    stored: Vec<StoredJobNode>,
    collector_id: &str,
) -> Vec<Target> {
    let own = own.into_iter().filter(|node| may_control(uid, node.owner_uid));
    let mut targets: BTreeMap<String, Target> = own
        .map(|own| {
            let node = own.node.to_string();
            (node.clone(), Target { node, own: Some(own), other: None })
        })
        .collect();
    for stored in stored.into_iter().filter(|stored| may_control(uid, stored.owner_uid)) {
        let StoredJobNode { node, session, collector_id: server, is_served, .. } = stored;
        let is_elsewhere = is_served && server.is_some_and(|server| server != collector_id);
        let other = is_elsewhere.then(|| AnsweringSession { session, node: node.clone() });
        targets.entry(node.clone()).or_insert(Target { node, own: None, other: None }).other = other;
    }
    targets.into_values().collect()
}

/// First target that can answer; if none can, the first.
pub(super) fn one_reachable(targets: &[Target]) -> &[Target] {
    let first = targets.iter().position(Target::is_reachable).unwrap_or(0);
    targets.get(first..=first).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::SessionId;

    use super::*;
    use crate::session_messages::Peer;

    fn own(node: &str, session: u64) -> JobNode {
        let peer = Peer::from(node.as_bytes());
        JobNode { node: node.try_into().unwrap(), session: SessionId(session), peer, owner_uid: Some(7) }
    }

    fn stored(node: &str, session: u64, collector: Option<&str>, is_served: bool) -> StoredJobNode {
        StoredJobNode {
            node: node.to_owned(),
            session: SessionId(session),
            owner_uid: Some(7),
            collector_id: collector.map(str::to_owned),
            is_served,
        }
    }

    /// Tells for each node whether this collector asks it, and whether another does.
    fn ways(targets: &[Target]) -> Vec<(&str, bool, bool)> {
        targets
            .iter()
            .map(|target| (target.node.as_str(), target.own.is_some(), target.other.is_some()))
            .collect()
    }

    #[test]
    fn nodes_of_other_collectors_are_asked_through_them() {
        let stored = vec![
            stored("a", 1, Some("this"), true),
            stored("b", 2, Some("other"), true),
            stored("c", 3, Some("dead"), false),
            stored("d", 4, None, false),
            stored("e", 5, Some("other"), true),
        ];
        let found = targets(7, vec![own("e", 5), own("a", 1)], stored.clone(), "this");
        let expected = [
            ("a", true, false),
            ("b", false, true),
            ("c", false, false),
            ("d", false, false),
            ("e", true, true),
        ];
        assert_eq!(ways(&found), expected);
        assert!(found[1].is_reachable() && !found[2].is_reachable());
        assert_eq!(targets(8, vec![own("a", 1)], stored, "this"), [], "of another user");
    }

    fn target(node: &str, is_reachable: bool) -> Target {
        Target { node: node.to_owned(), own: is_reachable.then(|| own(node, 1)), other: None }
    }

    fn chosen(targets: &[Target]) -> Vec<String> {
        one_reachable(targets).iter().map(|target| target.node.clone()).collect()
    }

    #[test]
    fn one_node_that_can_answer_is_chosen() {
        assert_eq!(chosen(&[target("a", false), target("b", true), target("c", true)]), ["b"]);
        assert_eq!(chosen(&[target("a", false), target("b", false)]), ["a"]);
        assert_eq!(chosen(&[]), [""; 0]);
    }

    #[test]
    fn without_other_collectors_the_agents_of_this_one_are_asked() {
        let found = targets(0, vec![own("b", 2), own("a", 1)], Vec::new(), "this");
        assert_eq!(ways(&found), [("a", true, false), ("b", true, false)]);
    }
}
