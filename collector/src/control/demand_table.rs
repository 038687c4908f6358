//! Demands of jobs on devices outside the nodes, by the agents that poll them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use polymeter_proto::control::{DeviceReport, JobDemand, PlanFields};
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, SessionId};

use crate::agents::AgentInfo;
use crate::limits;

/// A job and its owner, as its nodes report it: jobs of several clusters may have one id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct JobOwner {
    pub(super) job: Identifier,
    pub(super) uid: u32,
}

/// A demand of one job at one agent of devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DemandKey {
    pub(super) owner: JobOwner,
    /// Session of the agent that polls the devices.
    pub(super) session: SessionId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Nodes of the job that the devices serve.
    pub(super) nodes: BTreeSet<String>,
    /// Shortest period of any of these nodes, by selector.
    pub(super) plan: BTreeMap<String, Sampling>,
    /// End of the last lease, in microseconds since the epoch.
    pub(super) until_us: i64,
}

impl Demand {
    pub(super) fn plan_fields(&self) -> PlanFields {
        self.plan.iter().map(|(selector, sampling)| (selector.clone(), sampling.to_string())).collect()
    }

    /// True if the agent of the devices must know of a change.
    pub(super) fn differs(&self, other: &Self) -> bool {
        (&self.nodes, &self.plan) != (&other.nodes, &other.plan)
    }

    fn add(&mut self, node: &str, plan: &BTreeMap<String, Sampling>, until_us: i64) {
        if self.nodes.len() < limits::DEMAND_NODES {
            self.nodes.insert(node.to_owned());
        }
        for (selector, sampling) in plan {
            let shortest = self.plan.entry(selector.clone()).or_insert(*sampling);
            *shortest = (*shortest).min(*sampling);
        }
        self.until_us = until_us.max(self.until_us);
    }
}

/// Returns the demands of the jobs on connected agents, by the reports of these agents; `now_us` is in
/// microseconds since the epoch. An agent asks for its own node only, and for the jobs that it tracks.
pub(super) fn reported(
    reports: &HashMap<SessionId, DeviceReport>,
    agents: &[AgentInfo],
    now_us: i64,
) -> Vec<(JobOwner, Demand)> {
    let mut all = Vec::new();
    for agent in agents {
        let demands = reports.get(&agent.session).into_iter().flat_map(|report| &report.demands);
        for JobDemand { job, plan, until_us } in demands.filter(|demand| demand.until_us > now_us) {
            let tracked = agent.jobs.iter().find(|(id, _)| id.as_str() == job);
            let Some((job, owner_uid)) = tracked else { continue };
            let plan =
                plan.iter().filter_map(|(selector, period)| Some((selector.clone(), period.parse().ok()?)));
            let (plan, nodes) = (plan.collect(), BTreeSet::from([agent.node.to_string()]));
            let owner = JobOwner { job: job.clone(), uid: owner_uid.unwrap_or_default() };
            all.push((owner, Demand { nodes, plan, until_us: *until_us }));
        }
    }
    all
}

/// Demands by the agents that poll the devices.
pub(super) fn demands<'a>(
    wanted: impl Iterator<Item = (&'a JobOwner, &'a Demand)>,
    reports: &HashMap<SessionId, DeviceReport>,
    agents: &[AgentInfo],
) -> BTreeMap<DemandKey, Demand> {
    let mut serving: HashMap<&str, Vec<SessionId>> = HashMap::new();
    for agent in agents {
        for node in reports.get(&agent.session).into_iter().flat_map(|report| &report.serves) {
            serving.entry(node).or_default().push(agent.session);
        }
    }
    let mut all: BTreeMap<DemandKey, Demand> = BTreeMap::new();
    for (owner, demand) in wanted {
        for node in &demand.nodes {
            for session in serving.get(node.as_str()).into_iter().flatten() {
                let key = DemandKey { owner: owner.clone(), session: *session };
                all.entry(key).or_default().add(node, &demand.plan, demand.until_us);
            }
        }
    }
    all.retain(|_, demand| !demand.plan.is_empty());
    all
}

/// Demands of each job as a whole.
pub(super) fn by_job(reported: Vec<(JobOwner, Demand)>) -> BTreeMap<JobOwner, Demand> {
    let mut all: BTreeMap<JobOwner, Demand> = BTreeMap::new();
    for (owner, demand) in reported {
        let of_job = all.entry(owner).or_default();
        demand.nodes.iter().for_each(|node| of_job.add(node, &demand.plan, demand.until_us));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_messages::Peer;

    fn agent(number: u64, node: &str, jobs: &[(&str, Option<u32>)]) -> AgentInfo {
        AgentInfo {
            session: SessionId(number),
            peer: Peer::from(node.as_bytes()),
            node: node.try_into().unwrap(),
            started_us: 1,
            jobs: jobs.iter().map(|(job, uid)| ((*job).try_into().unwrap(), *uid)).collect(),
        }
    }

    fn plan(fields: &[(&str, &str)]) -> PlanFields {
        fields.iter().map(|(selector, period)| ((*selector).to_owned(), (*period).to_owned())).collect()
    }

    fn asks(job: &str, fields: &[(&str, &str)], until_us: i64) -> DeviceReport {
        let demands = vec![JobDemand { job: job.to_owned(), plan: plan(fields), until_us }];
        DeviceReport { demands, ..DeviceReport::default() }
    }

    fn serves(nodes: &[&str]) -> DeviceReport {
        DeviceReport {
            serves: nodes.iter().map(|node| (*node).to_owned()).collect(),
            ..DeviceReport::default()
        }
    }

    type Row = (String, u32, u64, Vec<String>, PlanFields);

    fn rows(reports: Vec<(u64, DeviceReport)>, agents: &[AgentInfo], now_us: i64) -> Vec<Row> {
        let reports = reports.into_iter().map(|(number, report)| (SessionId(number), report)).collect();
        let wanted = reported(&reports, agents, now_us);
        let wanted = wanted.iter().map(|(owner, demand)| (owner, demand));
        let row = |(key, demand): (DemandKey, Demand)| {
            let nodes = demand.nodes.iter().cloned().collect();
            (key.owner.job.to_string(), key.owner.uid, key.session.0, nodes, demand.plan_fields())
        };
        demands(wanted, &reports, agents).into_iter().map(row).collect()
    }

    #[test]
    fn each_agent_of_devices_gets_the_nodes_that_it_serves_and_the_shortest_periods() {
        let agents = [
            agent(1, "n1", &[("7", Some(1000))]),
            agent(2, "n2", &[("7", Some(1000)), ("8", Some(1001))]),
            agent(3, "n3", &[("7", Some(1000))]),
            agent(8, "rack1", &[]),
            agent(9, "rack2", &[]),
        ];
        let reports = vec![
            (1, asks("7", &[("device.*", "1s"), ("device.a.*", "20ms")], 100)),
            (2, asks("7", &[("device.*", "100ms")], 50)),
            (3, asks("7", &[("device.*", "10ms")], 100)),
            (8, serves(&["n1", "n2", "n9"])),
            (9, serves(&["n2"])),
        ];
        let of = |session, nodes: &[&str], fields: &[(&str, &str)]| -> Row {
            (
                "7".to_owned(),
                1000,
                session,
                nodes.iter().map(|node| (*node).to_owned()).collect(),
                plan(fields),
            )
        };
        let both = of(8, &["n1", "n2"], &[("device.*", "100ms"), ("device.a.*", "20ms")]);
        assert_eq!(rows(reports.clone(), &agents, 10), [both, of(9, &["n2"], &[("device.*", "100ms")])]);
        let one = of(8, &["n1"], &[("device.*", "1s"), ("device.a.*", "20ms")]);
        assert_eq!(rows(reports.clone(), &agents, 50), [one], "the lease on n2 has ended");
        assert_eq!(rows(reports.clone(), &agents, 100), []);
        assert_eq!(rows(reports, &agents[..2], 10), [], "the agents of the devices are away");
    }

    #[test]
    fn an_agent_asks_only_for_its_node_and_its_jobs() {
        let agents = [agent(1, "n1", &[("7", None)]), agent(2, "n2", &[]), agent(8, "rack1", &[])];
        let hostile = vec![
            (1, asks("9", &[("device.*", "1ms")], i64::MAX)),
            (2, asks("7", &[("device.*", "1ms")], i64::MAX)),
            (8, serves(&["n1", "n2"])),
        ];
        assert_eq!(rows(hostile, &agents, 0), []);
        let unreadable = vec![(1, asks("7", &[("device.*", "often")], 1)), (8, serves(&["n1"]))];
        assert_eq!(rows(unreadable, &agents, 0), []);
    }

    #[test]
    fn nodes_are_bounded() {
        let plan = BTreeMap::from([("device.*".to_owned(), "1s".parse().unwrap())]);
        let of_node = |number: usize| Demand {
            nodes: BTreeSet::from([format!("n{number}")]),
            plan: plan.clone(),
            until_us: 1,
        };
        let owner = JobOwner { job: "7".try_into().unwrap(), uid: 1 };
        let many = (0..2 * limits::DEMAND_NODES).map(|number| (owner.clone(), of_node(number)));
        let all = by_job(many.collect());
        assert_eq!(
            (all.len(), all[&owner].nodes.len(), all[&owner].plan.len()),
            (1, limits::DEMAND_NODES, 1)
        );
    }
}
