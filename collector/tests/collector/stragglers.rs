//! A job on many nodes of which one is slow: what is stored, and what its agents are asked for.

use std::sync::Arc;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::series::SessionId;
use polymeter_proto::trigger::{RuleFields, StragglerRule};
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use serde_json::Value;

use crate::support::agent::{Agent, job, shape};
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios![one_slow_node_of_64_is_found_once];

const NODES: u64 = 64;
const SLOW: u64 = 17;
const PERIOD_S: i64 = 5;
const SECOND_US: i64 = 1_000_000;
/// Time since which the node is slow, and that for which the job is sampled.
const SLOW_S: i64 = 75;
const SECONDS: i64 = 180;

struct Node {
    agent: Agent,
    number: u64,
    shape: Arc<Shape>,
    job: Arc<Job>,
    counter: u64,
    /// Requests to keep an interval.
    kept: Vec<Value>,
}

impl Node {
    fn new(environment: &TestEnvironment, collector: &Collector, number: u64, begin_us: i64) -> Self {
        let job = job(1, "7", begin_us);
        Self {
            agent: Agent::to(&environment.context, collector, &format!("n{number}"), number),
            number,
            shape: shape(1, Some(&job)),
            job,
            counter: 0,
            kept: Vec::new(),
        }
    }

    fn send(&mut self, at_s: i64) {
        let percent = if self.number == SLOW && at_s > SLOW_S { 90 } else { 100 };
        // No two nodes are equal.
        self.counter += 480_000_000 * PERIOD_S.unsigned_abs() * percent + self.number * 1_000_000;
        let row = [Some(self.counter), Some(0), Some(1.0_f64.to_bits())];
        let time_us = self.job.descriptor.started_us + at_s * SECOND_US;
        let frame = self.agent.frame(&[(&self.shape, time_us, &row)], &[], &[]);
        self.agent.send(frame);
    }

    /// Takes one message, and answers it if it is a request.
    fn receive(&mut self, timeout_ms: i64) {
        match self.agent.receive(timeout_ms) {
            Some(ToAgent::Ack { through, .. }) => {
                self.agent.outbox = self.agent.outbox.split_off(&(through + 1));
            }
            Some(ToAgent::Request { request, line, .. }) => {
                self.kept.push(serde_json::from_str(line.as_str()).unwrap());
                let line = r#"{"answer":"keeps","begin_us":0,"end_us":1,"samples":0}"#.try_into().unwrap();
                let answer = ToCollector::Answer { session: SessionId(self.number), request, line };
                self.agent.send_bytes(&answer.encode());
            }
            None => {}
            other => panic!("{other:?}"),
        }
    }
}

fn one_slow_node_of_64_is_found_once(environment: &mut TestEnvironment) {
    let fields = RuleFields {
        name: "slow".to_owned(),
        when: "straggler(cpu.usage)".to_owned(),
        ..RuleFields::default()
    };
    let stragglers = vec![StragglerRule::parse(&fields).unwrap()];
    let config = CollectorConfig { stragglers, ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let begin_us = (now_us() - 600 * SECOND_US) / (60 * SECOND_US) * (60 * SECOND_US);
    let mut nodes: Vec<Node> =
        (1..=NODES).map(|number| Node::new(environment, &collector, number, begin_us)).collect();
    for step in 1..=SECONDS / PERIOD_S {
        nodes.iter_mut().for_each(|node| node.send(step * PERIOD_S));
        wait_until("all samples are stored", || {
            nodes.iter_mut().for_each(|node| node.receive(0));
            nodes.iter().all(|node| node.agent.outbox.is_empty())
        });
    }
    wait_until("all nodes were asked", || {
        nodes.iter_mut().for_each(|node| node.receive(0));
        let asked = format!("SELECT count(*) FROM trigger_firing WHERE nodes_asked = {NODES}");
        nodes.iter().all(|node| !node.kept.is_empty()) && environment.number(&asked) == 1
    });
    let select =
        "SELECT node || '|' || rule || '|' || actions || '|' || CAST(nodes_missing AS text) || '|' ||
                  CAST(trigger_id AS text) FROM trigger_firing";
    let lines = environment.lines(select);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let (described, trigger) = line.rsplit_once('|').unwrap();
    assert_eq!(described, format!("n{SLOW}|slow|asks all nodes to keep 35 s|{{}}"));
    let why = environment.lines("SELECT why FROM trigger_firing").remove(0);
    let expected = format!("cpu.usage was below 95 % of the median of {NODES} nodes for 15 s, lastly 90.0 %");
    assert_eq!(why, expected);
    for node in &nodes {
        let [keep] = node.kept.as_slice() else { panic!("{:?}", node.kept) };
        assert_eq!((&keep["verb"], &keep["job"]), (&Value::from("keep"), &Value::from("7")));
        assert_eq!(keep["trigger"].to_string(), trigger);
        let (begin_us, end_us) = (keep["begin_us"].as_i64().unwrap(), keep["end_us"].as_i64().unwrap());
        assert_eq!(end_us - begin_us, 35 * SECOND_US);
        // Within 30 s, the slow samples among those that are kept.
        let fired_s = (end_us - node.job.descriptor.started_us) / SECOND_US - 5;
        assert!((SLOW_S..=SLOW_S + 30).contains(&fired_s), "{fired_s}");
    }
    collector.stop().unwrap();
}
