//! The measurement of the agents' clocks: now and then each agent is asked for its time.

use std::sync::Arc;

use polymeter_proto::control::{Request, TimeRequest, Verb};
use polymeter_proto::wire::control::ControlLine;
use polymeter_service::clock::Clock;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::agent_requests::AgentRequests;
use super::permission::ROOT;
use crate::agents::{AgentDirectory, JobNode};
use crate::clock_offsets::{ClockOffsets, offset_between};
use crate::limits;

/// A time in the past: the request takes effect at once, however wrong the clock of the node is.
const AT_ONCE_US: i64 = 0;

/// The measurement of the agents' clocks.
#[derive(Debug, Clone)]
pub(super) struct ClockProbe {
    pub(super) requests: Arc<AgentRequests>,
    pub(super) directory: AgentDirectory,
    pub(super) clock: Clock,
}

impl ClockProbe {
    /// Measures the clocks until the runtime ends.
    pub(super) async fn run(self, offsets: ClockOffsets) {
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let request = Request::Time(TimeRequest { collector_version: version });
        let Ok(request) = serde_json::to_string(&request) else { return };
        // Agents of earlier releases refuse a request that tells the version.
        let lines = [request.as_str(), TimeRequest::EXAMPLE].map(ControlLine::try_from);
        let [Ok(line), Ok(earlier)] = lines else { return };
        let lines = Arc::new([line, earlier]);
        let mut interval = tokio::time::interval(limits::CLOCK_TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for agent in offsets.due(self.directory.connections(), self.clock.now().since_start) {
                let (probe, offsets, lines) = (self.clone(), offsets.clone(), Arc::clone(&lines));
                tokio::spawn(async move { probe.measure(&agent, lines.as_slice(), &offsets).await });
            }
        }
    }

    /// Asks one agent with the first line that it knows. An agent that refuses all, since it is too old or accepts no requests, has no
    /// offset.
    async fn measure(&self, agent: &JobNode, lines: &[ControlLine], offsets: &ClockOffsets) {
        for line in lines {
            let sent = self.clock.now();
            let answers = self.requests.send(std::slice::from_ref(agent), ROOT, AT_ONCE_US, line).await;
            let received = self.clock.now();
            let Some(answer) = answers.into_iter().next().flatten() else { return };
            if let Some(now_us) = answer.get("now_us").and_then(Value::as_i64) {
                return offsets.record(agent.session, offset_between(sent, received, now_us));
            }
            if answer.get("code").and_then(Value::as_str) != Some("invalid") {
                return;
            }
        }
    }
}
