//! A layer between agents and collector: a relay gathers the messages of its agents on one connection. It
//! forwards them as they are: a collector does not accept a frame with samples of several sessions.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use zmq::{DONTWAIT, POLLIN, Socket};

use crate::mock::session_of;

/// Time after which a relay notices that it has to end.
const ATTENTION_MS: i64 = 20;

/// A relay in a thread of its own.
#[derive(Debug)]
pub struct Relay {
    endpoint: String,
    must_end: Arc<AtomicBool>,
    thread: JoinHandle<zmq::Result<()>>,
}

impl Relay {
    /// Listens at `endpoint`, and connects to the collector.
    pub fn start(endpoint: String, collector: &str) -> zmq::Result<Self> {
        let context = zmq::Context::new();
        let (agents, upstream) = (context.socket(zmq::ROUTER)?, context.socket(zmq::DEALER)?);
        agents.set_linger(0)?;
        upstream.set_linger(0)?;
        agents.bind(&endpoint)?;
        upstream.connect(collector)?;
        let must_end = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&must_end);
        let thread = thread::spawn(move || {
            let mut connections = HashMap::new();
            while !end.load(Ordering::Relaxed) {
                forward(&agents, &upstream, &mut connections)?;
            }
            Ok(())
        });
        Ok(Self { endpoint, must_end, thread })
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Ends the thread. Returns the error that ended it before.
    pub fn stop(self) -> Result<(), Box<dyn Error>> {
        self.must_end.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_panic| "a relay broke")??)
    }
}

/// Forwards what has arrived. `connections` has the routing ids of the agents.
fn forward(
    agents: &Socket,
    upstream: &Socket,
    connections: &mut HashMap<SessionId, Vec<u8>>,
) -> zmq::Result<()> {
    zmq::poll(&mut [agents.as_poll_item(POLLIN), upstream.as_poll_item(POLLIN)], ATTENTION_MS)?;
    while let Some(answer) = arrived(upstream)? {
        let session = ToAgent::decode(&answer).ok().as_ref().and_then(session_of);
        if let Some(connection) = session.and_then(|session| connections.get(&session)) {
            agents.send_multipart([connection, &answer], 0)?;
        }
    }
    if let Some(connection) = arrived(agents)? {
        let message = agents.recv_bytes(0)?;
        let of_frame = Frame::peek(&message).map(|(session, _)| session);
        if let Some(session) = of_frame.or_else(|| ToCollector::peek(&message).ok().flatten()) {
            connections.insert(session, connection);
        }
        upstream.send(message, 0)?;
    }
    Ok(())
}

/// Returns the next part of a message; none if there is no message.
fn arrived(socket: &Socket) -> zmq::Result<Option<Vec<u8>>> {
    match socket.recv_bytes(DONTWAIT) {
        Err(zmq::Error::EAGAIN) => Ok(None),
        part => part.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use polymeter_proto::period::Period;

    use super::*;
    use crate::delivery::deliver_all;
    use crate::load::Load;
    use crate::mock::Script;
    use crate::recording::RECORDED;

    #[test]
    fn agents_share_a_connection_and_each_gets_its_answers() {
        let scratch = tempfile::tempdir().unwrap();
        let endpoint = |name: &str| format!("ipc://{}/{name}", scratch.path().display());
        let collector = zmq::Context::new().socket(zmq::ROUTER).unwrap();
        collector.bind(&endpoint("collector")).unwrap();
        let script = Script::read(Path::new(RECORDED), Period::MILLISECOND).unwrap();
        let agents = Load { agents: 3, frames: 20, ticks: 1 }.sampled(&script).unwrap();
        let relay = Relay::start(endpoint("relay"), &endpoint("collector")).unwrap();
        let endpoints = [relay.endpoint().to_owned()];
        let mut connections = HashSet::new();
        thread::scope(|scope| {
            let sender =
                scope.spawn(|| deliver_all(&endpoints, &script, agents).map(drop).map_err(|e| e.to_string()));
            for _frame in 0..3 * 20 {
                let connection = collector.recv_bytes(0).unwrap();
                let (session, through) = Frame::peek(&collector.recv_bytes(0).unwrap()).unwrap();
                let ack = ToAgent::Ack { session, through }.encode();
                collector.send_multipart([&connection, &ack], 0).unwrap();
                connections.insert(connection);
            }
            sender.join().unwrap().unwrap();
        });
        relay.stop().unwrap();
        assert_eq!(connections.len(), 1);
    }
}
