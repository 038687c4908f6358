//! Mock agents whose outboxes are full.

use std::error::Error;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;

use crate::clock::wall_us;
use crate::mock::{MockAgent, Script};

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub agents: u32,
    /// Frames of each agent.
    pub frames: u32,
    /// Ticks in each frame.
    pub ticks: u16,
}

impl Load {
    /// Creates agents whose outboxes are full of samples up to the current time. Fails if the ticks do not
    /// fit into one frame.
    pub fn sampled(self, script: &Script) -> Result<Vec<MockAgent>, Box<dyn Error>> {
        self.sampled_as(script, 0)
    }

    /// Does the same, with session ids after `last_session`.
    pub fn sampled_as(self, script: &Script, last_session: u64) -> Result<Vec<MockAgent>, Box<dyn Error>> {
        let mut encoder = Encoder::default();
        let frame_us = i64::from(self.ticks) * 1_000;
        let begin_us = wall_us() - i64::from(self.frames) * frame_us;
        (0..self.agents)
            .map(|number| {
                let node = format!("mock{number}").try_into()?;
                let session = SessionId(last_session + u64::from(number) + 1);
                let mut agent = MockAgent::new(session, node, "mock".try_into()?, begin_us);
                for frame in 1..=i64::from(self.frames) {
                    agent.sample(script, &mut encoder, begin_us + frame * frame_us, self.ticks)?;
                }
                Ok(agent)
            })
            .collect()
    }
}
