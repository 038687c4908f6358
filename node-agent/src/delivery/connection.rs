//! The socket to the collector, encrypted where there are keys, and made anew when the collector turned it away: libzmq
//! tries again after a fault of the network, and never after a refusal, though keys may be put right at any time.

use polymeter_proto::series::SessionId;
use zmq::{Context, DONTWAIT, PollItem, Socket};

use tracing::{info, warn};

use crate::keys::Keys;

/// The first wait before a refused connection is tried again; it doubles each time.
const AGAIN_NS: u64 = 2_000_000_000;
/// The longest such wait.
const AGAIN_MOST_NS: u64 = 30_000_000_000;

/// libzmq's events, from its header zmq.h.
const DISCONNECTED: u16 = 0x0200;
const STOPPED: u16 = 0x0400;
const FAILED_NO_DETAIL: u16 = 0x0800;
const SUCCEEDED: u16 = 0x1000;
const FAILED_PROTOCOL: u16 = 0x2000;
const FAILED_AUTH: u16 = 0x4000;

/// libzmq's detail of [`FAILED_PROTOCOL`] where one side has keys and the other has not.
const MECHANISM_MISMATCH: u32 = 0x1100_0002;

/// Where to connect, and as whom.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The collector's endpoint.
    pub(crate) collector: String,
    /// For encryption.
    pub(crate) keys: Option<Keys>,
    /// The session that is to travel.
    pub(crate) session: SessionId,
}

/// The socket, and what libzmq tells of its connections.
pub(crate) struct Connection {
    context: Context,
    destination: Destination,
    socket: Socket,
    monitor: Socket,
    /// Monitors of earlier sockets that are not quite closed. libzmq's own thread waits for whoever must hear its last
    /// word.
    fading: Vec<Socket>,
    /// How many sockets there were before this one.
    generation: u64,
    /// When a new socket is to be made, if at all.
    again_at_ns: Option<u64>,
    again_after_ns: u64,
    /// What the log was told last, until a connection comes about.
    told: Option<Refused>,
    is_connected: bool,
}

/// What libzmq tells of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    /// It came about.
    Connected,
    /// It is no more.
    Disconnected,
    /// It did not come about.
    Refused(Refused),
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The collector does not know the agent's key.
    Key,
    /// One side has keys, and the other has not.
    Mechanism,
    /// It was ended in the middle of the handshake.
    Ended,
    /// Something else is there than a collector.
    Protocol,
}

/// What became of the connection since the last look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tended {
    /// A connection came about. What went by another may be lost.
    pub(crate) connected: bool,
}

impl Connection {
    /// Makes the socket and begins to connect.
    pub(crate) fn open(context: &Context, destination: Destination) -> Result<Self, zmq::Error> {
        let (socket, monitor) = connect(context, &destination, 0)?;
        // Within one process there is a connection from the beginning, of which libzmq does not tell.
        let is_connected = destination.collector.starts_with("inproc:");
        Ok(Self {
            context: context.clone(),
            destination,
            socket,
            monitor,
            fading: Vec::new(),
            generation: 0,
            again_at_ns: None,
            again_after_ns: AGAIN_NS,
            told: None,
            is_connected,
        })
    }

    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether there is a connection now.
    pub(crate) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// To be waited for beside the socket.
    pub(crate) fn as_poll_item(&self) -> PollItem<'_> {
        self.monitor.as_poll_item(zmq::POLLIN)
    }

    /// Looks after what became of the connection, and tries again where it was refused.
    pub(crate) fn tend(&mut self, now_ns: u64) -> Tended {
        self.fading.retain(|monitor| !has_faded(monitor));
        let mut tended = Tended::default();
        while let Ok(event) = self.monitor.recv_multipart(DONTWAIT) {
            match event.first().and_then(|part| parse(part)) {
                Some(Happened::Connected) => {
                    (tended.connected, self.is_connected) = (true, true);
                    self.connected();
                }
                Some(Happened::Disconnected) => self.is_connected = false,
                Some(Happened::Refused(refused)) => {
                    self.is_connected = false;
                    self.refused(refused, now_ns);
                }
                None => {}
            }
        }
        if self.again_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.try_again();
        }
        tended
    }

    fn connected(&mut self) {
        self.again_after_ns = AGAIN_NS;
        if self.told.take().is_some() {
            info!("connected to the collector at {}", self.destination.collector);
        }
    }

    fn refused(&mut self, refused: Refused, now_ns: u64) {
        // The same refusal is sometimes seen as a mere end, when the other side closes before it is understood.
        let is_news = match self.told {
            None => true,
            Some(told) => told != refused && refused != Refused::Ended,
        };
        if is_news {
            self.told = Some(refused);
            self.warn(refused);
        }
        // After anything but a refusal libzmq tries again itself.
        if refused != Refused::Ended {
            self.again_at_ns.get_or_insert(now_ns.saturating_add(self.again_after_ns));
        }
    }

    fn try_again(&mut self) {
        self.again_at_ns = None;
        self.again_after_ns = (self.again_after_ns * 2).min(AGAIN_MOST_NS);
        self.generation += 1;
        match connect(&self.context, &self.destination, self.generation) {
            Ok((socket, monitor)) => {
                self.socket = socket;
                self.fading.push(std::mem::replace(&mut self.monitor, monitor));
            }
            Err(error) => warn!(%error, "cannot connect to the collector again"),
        }
    }

    /// Logs a refused connection.
    fn warn(&self, refused: Refused) {
        let Destination { collector, keys, .. } = &self.destination;
        let (error, remedy) = match (refused, keys) {
            (Refused::Key, Some(keys)) => (
                "the collector refuses this agent's key",
                format!(
                    "its administrator can accept the agent with a file NODE.pub that has the line `public {}`",
                    keys.own.public
                ),
            ),
            (Refused::Mechanism, Some(_)) => (
                "the collector has no keys, and this agent has",
                "set `key` and `authorised_agents` in the collector's configuration".to_owned(),
            ),
            (Refused::Key | Refused::Mechanism, None) => (
                "the collector wants encryption, and this agent has no keys",
                "set `key` and `collector_key`".to_owned(),
            ),
            (Refused::Ended, Some(_)) => (
                "the collector ends connections during the handshake",
                "is `collector_key` its public key?".to_owned(),
            ),
            (Refused::Ended, None) => (
                "the collector ends connections during the handshake",
                "check that a polymeter-collector listens there".to_owned(),
            ),
            (Refused::Protocol, _) => (
                "the peer does not use the protocol of a polymeter-collector",
                "check `collector` in the configuration".to_owned(),
            ),
        };
        warn!(
            error,
            remedy = %format_args!("{remedy}; samples are kept meanwhile, up to `outbox_bytes`"),
            "cannot connect to the collector at {collector}"
        );
    }
}

/// What an event's first part tells: its number and its value, as the machine writes them.
fn parse(part: &[u8]) -> Option<Happened> {
    let (event, value) = part.split_first_chunk::<2>()?;
    match (u16::from_ne_bytes(*event), u32::from_ne_bytes(*value.first_chunk()?)) {
        (SUCCEEDED, _) => Some(Happened::Connected),
        (DISCONNECTED, _) => Some(Happened::Disconnected),
        (FAILED_AUTH, _) => Some(Happened::Refused(Refused::Key)),
        (FAILED_PROTOCOL, MECHANISM_MISMATCH) => Some(Happened::Refused(Refused::Mechanism)),
        (FAILED_PROTOCOL, _) => Some(Happened::Refused(Refused::Protocol)),
        (FAILED_NO_DETAIL, _) => Some(Happened::Refused(Refused::Ended)),
        _ => None,
    }
}

/// Whether a monitor has nothing more to tell.
fn has_faded(monitor: &Socket) -> bool {
    let mut faded = false;
    while let Ok(event) = monitor.recv_multipart(DONTWAIT) {
        faded |= event.first().is_some_and(|part| part.starts_with(&STOPPED.to_ne_bytes()));
    }
    faded
}

/// A socket that is connecting, and what tells of it.
fn connect(context: &Context, to: &Destination, generation: u64) -> Result<(Socket, Socket), zmq::Error> {
    let socket = context.socket(zmq::DEALER)?;
    socket.set_linger(0)?;
    // Frames wait in the outbox, which knows them, and not in the socket.
    socket.set_sndhwm(64)?;
    socket.set_rcvhwm(1000)?;
    socket.set_immediate(true)?;
    socket.set_ipv6(true)?;
    socket.set_maxmsgsize(i64::try_from(polymeter_proto::limits::MESSAGE_BYTES).unwrap_or(i64::MAX))?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(5_000)?;
    socket.set_heartbeat_ivl(10_000)?;
    socket.set_heartbeat_timeout(30_000)?;
    if let Some(keys) = &to.keys {
        socket.set_curve_serverkey(keys.collector.as_bytes())?;
        socket.set_curve_publickey(keys.own.public.as_bytes())?;
        socket.set_curve_secretkey(keys.own.secret.as_bytes())?;
    }
    let endpoint = format!("inproc://polymeter-connection-{}-{generation}", to.session);
    socket.monitor(
        &endpoint,
        i32::from(DISCONNECTED | STOPPED | FAILED_NO_DETAIL | SUCCEEDED | FAILED_PROTOCOL | FAILED_AUTH),
    )?;
    let monitor = context.socket(zmq::PAIR)?;
    monitor.set_linger(0)?;
    monitor.connect(&endpoint)?;
    socket.connect(&to.collector)?;
    Ok((socket, monitor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_understood() {
        let event = |number: u16, value: u32| [&number.to_ne_bytes()[..], &value.to_ne_bytes()[..]].concat();
        let refused = |refused| Some(Happened::Refused(refused));
        assert_eq!(parse(&event(0x1000, 0)), Some(Happened::Connected));
        assert_eq!(parse(&event(0x0200, 7)), Some(Happened::Disconnected));
        assert_eq!(parse(&event(0x4000, 400)), refused(Refused::Key));
        assert_eq!(parse(&event(0x2000, 0x1100_0002)), refused(Refused::Mechanism));
        assert_eq!(parse(&event(0x2000, 0x1000_0000)), refused(Refused::Protocol));
        assert_eq!(parse(&event(0x0800, 104)), refused(Refused::Ended));
        assert_eq!(parse(&event(1, 0)), None);
        assert_eq!(parse(&[0; 5]), None);
    }
}
