//! Measures the agents' clocks: now and then each agent is asked for its time.

use std::sync::Arc;

use polymeter_proto::wire::control::ControlLine;
use polymeter_service::clock::Clock;
use tokio::time::MissedTickBehavior;

use super::agent_requests::{AT_ONCE_US, AgentRequests};
use super::demands::{Demands, time_request};
use super::permission::ROOT;
use crate::agents::{AgentDirectory, JobNode};
use crate::clock_offsets::{ClockOffsets, offset_between};
use crate::limits;

#[derive(Debug, Clone)]
pub(super) struct ClockProbe {
    pub(super) requests: Arc<AgentRequests>,
    pub(super) demands: Arc<Demands>,
    pub(super) directory: AgentDirectory,
    pub(super) clock: Clock,
}

impl ClockProbe {
    pub(super) async fn run(self, offsets: ClockOffsets) {
        let Some(line) = time_request().map(Arc::new) else { return };
        let mut interval = tokio::time::interval(limits::CLOCK_TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for agent in offsets.due(self.directory.connections(), self.clock.now().since_start) {
                let (probe, offsets, line) = (self.clone(), offsets.clone(), Arc::clone(&line));
                tokio::spawn(async move { probe.measure(&agent, &line, &offsets).await });
            }
        }
    }

    /// An agent that accepts no requests has no offset.
    async fn measure(&self, agent: &JobNode, line: &ControlLine, offsets: &ClockOffsets) {
        let sent = self.clock.now();
        let answers = self.requests.send(std::slice::from_ref(agent), ROOT, AT_ONCE_US, line).await;
        let received = self.clock.now();
        let answer = answers.into_iter().next().flatten();
        let time = |name: &str| answer.as_ref()?.get(name)?.as_i64();
        if let Some((now_us, clock_us)) = time("now_us").zip(time("clock_us")) {
            let [dates, clock] = [now_us, clock_us].map(|node_us| offset_between(sent, received, node_us));
            offsets.record(agent.session, dates, clock);
        }
        if let Some(answer) = answer {
            self.demands.take_report(agent.session, answer);
        }
    }
}
