//! Two collectors with one database: each is killed in turn, and every sample is stored once.

use std::collections::BTreeSet;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, require, stored, wait_until};

tests![killed_collectors_of_one_database_lose_and_repeat_nothing,];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
/// No metric of the node: all samples belong to the job, which all agents sample.
const BASELINE: [(&str, &str); 3] = [("memory.*", "20ms"), ("cpu.*", "20ms"), ("pids.*", "20ms")];
const JOB: &str = "1";
/// The collectors take turns.
const KILLS: usize = 4;

fn killed_collectors_of_one_database_lose_and_repeat_nothing() {
    require(&NEEDS);
    let (mut env, cgroups) = (TestEnvironment::best_postgres(), TestCgroups::new());
    let mut collectors: [Option<(Daemon, String)>; 2] =
        [(); 2].map(|()| Some(collector(&env, "tcp://127.0.0.1:*")));
    let endpoints = collectors.each_ref().map(|running| running.as_ref().unwrap().1.clone());
    let job = cgroups.job(JOB);
    // Two agents of each collector.
    let nodes = [(); 4].map(|()| TestEnvironment::new());
    let agents: Vec<Agent> = nodes
        .iter()
        .zip(endpoints.iter().cycle())
        .map(|(node, endpoint)| {
            let plan = Plan { collector: endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
            Agent::start(node, &plan)
        })
        .collect();
    for agent in &agents {
        agent.wait_until_tracked(JOB, &["v1/memory.stat", "v2/cpu.stat", "v1/pids.current"]);
    }
    for kill in 0..KILLS {
        let which = kill % collectors.len();
        wait_for_more(&agents, "frames_acknowledged", 3);
        collectors[which].take().unwrap().0.kill();
        // The agents of the other collector deliver meanwhile.
        let others: Vec<&Agent> = agents.iter().skip(1 - which).step_by(2).collect();
        wait_for_more(others, "frames_acknowledged", 3);
        wait_for_more(&agents, "taken", 500);
        collectors[which] = Some(collector(&env, &endpoints[which]));
    }
    wait_for_more(&agents, "frames_acknowledged", 3);
    job.remove();
    wait_until("the store knows on all nodes that the job has ended", || {
        env.server().query("SELECT count(*) FROM job_node WHERE ended IS NOT NULL")
            == agents.len().to_string()
    });
    let mut taken_by_node = BTreeSet::new();
    for (node, agent) in nodes.iter().zip(&agents) {
        wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
        assert_eq!(agent.count("dropped"), 0);
        taken_by_node.insert(format!("{}|{}", node.node, agent.count("taken")));
    }
    assert!(stored::job(&mut env.reader(), JOB).is_some());
    let mut rows =
        |sql: &str| -> BTreeSet<String> { env.server().query(sql).lines().map(str::to_owned).collect() };
    let distinct = "SELECT node, count(*) FROM (SELECT DISTINCT time, series_id FROM samples) AS one
         JOIN series USING (series_id) GROUP BY node";
    assert_eq!(
        rows("SELECT node, count(*) FROM samples JOIN series USING (series_id) GROUP BY node"),
        taken_by_node
    );
    assert_eq!(rows(distinct), taken_by_node);
    assert_eq!(rows("SELECT node, sum(stored) FROM session GROUP BY node"), taken_by_node);
    assert_eq!(rows("SELECT * FROM loss"), BTreeSet::new());
    assert_eq!(rows("SELECT count(*) FROM session"), BTreeSet::from([agents.len().to_string()]));
    for agent in agents {
        agent.daemon.terminate();
    }
    for (running, _) in collectors.into_iter().flatten() {
        running.terminate();
    }
}

fn wait_for_more<'a>(agents: impl IntoIterator<Item = &'a Agent>, counter: &str, growth: u64) {
    let before: Vec<_> = agents.into_iter().map(|agent| (agent, agent.count(counter))).collect();
    for (agent, before) in before {
        wait_until(&format!("{counter} grows"), || agent.count(counter) > before + growth);
    }
}
