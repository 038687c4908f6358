//! Mock agents that sample once a second.

use std::error::Error;

use polymeter_collector::limits::SESSIONS_PER_PEER;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use polymeter_proto::wire::message::ToAgent;

use crate::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use crate::mock::{MockAgent, Script, session_of};

/// Sends a frame of each agent every second. Returns the number of samples.
pub fn send(
    context: &zmq::Context,
    endpoint: &str,
    script: &Script,
    nodes: u32,
    seconds: u32,
) -> Result<u64, Box<dyn Error>> {
    send_working(context, &[endpoint], std::slice::from_ref(script), nodes, seconds, |_, _| None)
}

/// Does the same for agents that share the collectors at `endpoints`, and in turn send the jobs of `scripts`.
/// `work_ns` returns the CPU time that the job takes on a node in a second, by their numbers, in nanoseconds;
/// none for that of the recording.
pub fn send_working(
    context: &zmq::Context,
    endpoints: &[&str],
    scripts: &[Script],
    nodes: u32,
    seconds: u32,
    mut work_ns: impl FnMut(u64, u64) -> Option<u64>,
) -> Result<u64, Box<dyn Error>> {
    let agent = |number: u32| -> Result<_, Box<dyn Error>> {
        let node = format!("paced{number:04}").try_into()?;
        Ok(MockAgent::new(SessionId(u64::from(number) + 1), node, "mock".try_into()?, wall_us()))
    };
    let mut agents: Vec<_> = (0..nodes).map(agent).collect::<Result<_, _>>()?;
    let sockets =
        (0..agents.len().div_ceil(SESSIONS_PER_PEER)).zip(endpoints.iter().cycle()).map(|(_, endpoint)| {
            let socket = context.socket(zmq::DEALER)?;
            socket.set_linger(0)?;
            socket.connect(endpoint)?;
            Ok(socket)
        });
    let sockets = sockets.collect::<Result<Vec<_>, zmq::Error>>()?;
    let script_of = |number: usize| scripts.get(number % scripts.len().max(1)).ok_or("there is no script");
    let (mut encoder, begin_ns) = (Encoder::default(), now_ns());
    for second in 1..=u64::from(seconds) {
        for (number, agent) in (0..).zip(&mut agents) {
            if let Some(work_ns) = work_ns(number, second) {
                agent.work(work_ns);
            }
        }
        let mut numbers = 0..;
        for (socket, agents) in sockets.iter().zip(agents.chunks_mut(SESSIONS_PER_PEER)) {
            for (agent, number) in agents.iter_mut().zip(&mut numbers) {
                socket.send(agent.sample(script_of(number)?, &mut encoder, wall_us(), 1)?, 0)?;
            }
        }
        sleep_until(begin_ns + second * SECOND_NS);
        for socket in &sockets {
            while socket.poll(zmq::POLLIN, 0)? > 0 {
                let answer = ToAgent::decode(&socket.recv_bytes(0)?)?;
                let number = session_of(&answer).map_or(0, |session| session.0).saturating_sub(1);
                let number = usize::try_from(number)?;
                let Some(agent) = agents.get_mut(number) else { continue };
                for message in agent.hear(script_of(number)?, &answer)? {
                    socket.send(message, 0)?;
                }
            }
        }
    }
    Ok(agents.iter().map(MockAgent::samples).sum())
}
