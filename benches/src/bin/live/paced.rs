//! Mock agents that sample once a second.

use std::error::Error;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use polymeter_proto::wire::message::ToAgent;

/// Sends a frame of each agent every second. Returns the number of samples.
pub(crate) fn send(
    context: &zmq::Context,
    endpoint: &str,
    script: &Script,
    nodes: u32,
    seconds: u32,
) -> Result<u64, Box<dyn Error>> {
    let connect = |number: u32| -> Result<_, Box<dyn Error>> {
        let node = format!("paced{number}").try_into()?;
        let agent = MockAgent::new(SessionId(u64::from(number) + 1), node, "mock".try_into()?, wall_us());
        let socket = context.socket(zmq::DEALER)?;
        socket.set_linger(0)?;
        socket.connect(endpoint)?;
        Ok((agent, socket))
    };
    let mut agents: Vec<_> = (0..nodes).map(connect).collect::<Result<_, _>>()?;
    let (mut encoder, begin_ns) = (Encoder::default(), now_ns());
    for second in 1..=u64::from(seconds) {
        for (agent, socket) in &mut agents {
            socket.send(agent.sample(script, &mut encoder, wall_us(), 1)?, 0)?;
        }
        sleep_until(begin_ns + second * SECOND_NS);
        for (agent, socket) in &mut agents {
            while socket.poll(zmq::POLLIN, 0)? > 0 {
                for message in agent.hear(script, &ToAgent::decode(&socket.recv_bytes(0)?)?)? {
                    socket.send(message, 0)?;
                }
            }
        }
    }
    Ok(agents.iter().map(|(agent, _)| agent.samples()).sum())
}
