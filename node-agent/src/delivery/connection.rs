//! The socket to the collector, encrypted if keys are configured. It is recreated after a refusal: libzmq
//! reconnects after a network fault, but never after a refusal, and the keys may be corrected at any time.

use std::os::fd::AsRawFd;

use polymeter_proto::key::KeyPair;
use polymeter_proto::series::SessionId;
use zmq::{Context, DONTWAIT, POLLIN, PollEvents, PollItem, Socket, SocketEvent};

use tracing::{info, warn};

use super::collectors::CollectorAddress;
use crate::event_fd::EventFd;

/// The first wait before a refused connection is retried, in nanoseconds; it doubles each time.
const RETRY_NS: u64 = 2_000_000_000;
/// The longest wait before a refused connection is retried, in nanoseconds.
const RETRY_MAX_NS: u64 = 30_000_000_000;

/// The events of a connection that are monitored.
const MONITORED: [SocketEvent; 6] = [
    SocketEvent::DISCONNECTED,
    SocketEvent::MONITOR_STOPPED,
    SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
    SocketEvent::HANDSHAKE_SUCCEEDED,
    SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
    SocketEvent::HANDSHAKE_FAILED_AUTH,
];

/// libzmq's detail of a handshake that failed because only one side has keys.
const MECHANISM_MISMATCH: u32 = 0x1100_0002;

/// The endpoint and the identity of a connection.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) collector: CollectorAddress,
    /// The agent's own keys. The connection is encrypted if the collector has a key, too.
    pub(crate) own: Option<KeyPair>,
    /// The session of the frames.
    pub(crate) session: SessionId,
}

/// The socket, and the monitor of its connections.
pub(crate) struct Connection {
    context: Context,
    destination: Destination,
    socket: Socket,
    monitor: Socket,
    /// Its descriptor tells nothing before the first attempt to read it.
    is_monitor_new: bool,
    /// Monitors of earlier sockets that are not closed yet: libzmq's own thread waits until their last event
    /// is read.
    closing_monitors: Vec<Socket>,
    /// The number of earlier sockets.
    generation: u64,
    /// The time at which a new socket is created; none if no retry is due.
    retry_at_ns: Option<u64>,
    retry_after_ns: u64,
    /// The refusal that was logged last; none once a connection is established.
    logged: Option<RefusalCause>,
    is_connected: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    /// It was established.
    Connected,
    /// It was closed.
    Disconnected,
    Refused(RefusalCause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalCause {
    /// The collector does not know the agent's key.
    Key,
    /// Only one side has keys.
    Mechanism,
    /// The peer closed the connection during the handshake.
    Ended,
    /// The peer is not a collector.
    Protocol,
}

impl RefusalCause {
    /// Returns the cause in words, and its remedy. `own` is the key of an agent that encrypts.
    pub(super) fn explain(self, own: Option<&KeyPair>) -> (&'static str, String) {
        match (self, own) {
            (RefusalCause::Key, Some(own)) => (
                "the collector refuses this agent's key",
                format!(
                    "its administrator can accept the agent with a file NODE.pub that has the line `public {}`",
                    own.public
                ),
            ),
            (RefusalCause::Mechanism, Some(_)) => (
                "the collector does not use encryption, but this agent has keys",
                "set `key` and `authorised_agents` in the collector's configuration".to_owned(),
            ),
            (RefusalCause::Key | RefusalCause::Mechanism, None) => (
                "the collector requires encryption, but this agent has no keys",
                "set `key` and `collector_key` in the agent's configuration".to_owned(),
            ),
            (RefusalCause::Ended, Some(_)) => (
                "the collector closed the connection during the handshake",
                "check that `collector_key` is the collector's public key".to_owned(),
            ),
            (RefusalCause::Ended, None) => (
                "the collector closed the connection during the handshake",
                "check that a polymeter-collector listens there".to_owned(),
            ),
            (RefusalCause::Protocol, _) => {
                ("the peer is not a polymeter-collector", "check `collector` in the configuration".to_owned())
            }
        }
    }
}

/// The changes of the connection since the last call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Polled {
    /// A connection was established. Messages sent over an earlier one may be lost.
    pub(crate) connected: bool,
}

/// Causes of the end of a wait; none after the timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Woken {
    pub(crate) by_socket: bool,
    pub(crate) by_monitor: bool,
    pub(crate) by_event: bool,
}

impl Woken {
    pub(crate) const BY_ALL: Self = Self { by_socket: true, by_monitor: true, by_event: true };
}

impl Connection {
    /// Creates the socket and begins to connect.
    pub(crate) fn open(context: &Context, destination: Destination) -> Result<Self, zmq::Error> {
        let (socket, monitor) = connect(context, &destination, 0)?;
        // An in-process connection exists from the beginning, and libzmq reports no event for it.
        let is_connected = destination.collector.endpoint.starts_with("inproc:");
        Ok(Self {
            context: context.clone(),
            destination,
            socket,
            monitor,
            is_monitor_new: true,
            closing_monitors: Vec::new(),
            generation: 0,
            retry_at_ns: None,
            retry_after_ns: RETRY_NS,
            logged: None,
            is_connected,
        })
    }

    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// True while there is a connection.
    pub(crate) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Waits until the socket is ready for `wanted`, its connection changes, or another thread notifies
    /// `event`. Before the next wait, [`Self::poll_events`] must have read the monitor if it ended this one.
    ///
    /// Given the sockets, `zmq::poll` would have libzmq look for commands in both of them before and after: 38
    /// system calls for a frame and its acknowledgement instead of 18.
    pub(crate) fn wait(&self, wanted: PollEvents, event: &EventFd, timeout_ms: i64) -> Woken {
        if self.is_monitor_new {
            return Woken { by_socket: false, by_monitor: true, by_event: false };
        }
        // Handles libzmq's commands. The descriptor of the socket is readable when there are new ones.
        if self.socket.get_events().is_ok_and(|ready| ready.intersects(wanted)) {
            return Woken { by_socket: true, by_monitor: false, by_event: false };
        }
        let (Ok(socket), Ok(monitor)) = (self.socket.get_fd(), self.monitor.get_fd()) else {
            return Woken::BY_ALL;
        };
        let mut items =
            [socket, monitor, event.as_raw_fd()].map(|descriptor| PollItem::from_fd(descriptor, POLLIN));
        // An interrupted wait is a wake-up like any other.
        zmq::poll(&mut items, timeout_ms).ok();
        let [by_socket, by_monitor, by_event] = items.map(|item| item.is_readable());
        Woken { by_socket, by_monitor, by_event }
    }

    /// Retries a refused connection, and reads the events of the connection if there are any.
    pub(crate) fn poll_events(&mut self, has_events: bool, now_ns: u64) -> Polled {
        self.closing_monitors.retain(|monitor| !is_stopped(monitor));
        let mut polled = Polled::default();
        let has_events = std::mem::take(&mut self.is_monitor_new) || has_events;
        while has_events && let Ok(event) = self.monitor.recv_multipart(DONTWAIT) {
            match event.first().and_then(|part| parse(part)) {
                Some(ConnectionEvent::Connected) => {
                    (polled.connected, self.is_connected) = (true, true);
                    self.connected();
                }
                Some(ConnectionEvent::Disconnected) => self.is_connected = false,
                Some(ConnectionEvent::Refused(refused)) => {
                    self.is_connected = false;
                    self.refused(refused, now_ns);
                }
                None => {}
            }
        }
        if self.retry_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.reconnect();
        }
        polled
    }

    /// Leaves the collector and begins to connect to another one.
    pub(crate) fn redirect(&mut self, to: CollectorAddress) {
        self.destination.collector = to;
        (self.is_connected, self.logged) = (false, None);
        self.reconnect();
        self.retry_after_ns = RETRY_NS;
    }

    fn connected(&mut self) {
        self.retry_after_ns = RETRY_NS;
        if self.logged.take().is_some() {
            info!("connected to the collector at {}", self.destination.collector.endpoint);
        }
    }

    fn refused(&mut self, refused: RefusalCause, now_ns: u64) {
        // The same refusal sometimes appears as a plain disconnect, if the peer closes the connection before
        // the refusal is read.
        let is_news = match self.logged {
            None => true,
            Some(logged) => logged != refused && refused != RefusalCause::Ended,
        };
        if is_news {
            self.logged = Some(refused);
            self.warn(refused);
        }
        // libzmq itself retries after everything but a refusal.
        if refused != RefusalCause::Ended {
            self.retry_at_ns.get_or_insert(now_ns.saturating_add(self.retry_after_ns));
        }
    }

    fn reconnect(&mut self) {
        self.retry_at_ns = None;
        self.retry_after_ns = (self.retry_after_ns * 2).min(RETRY_MAX_NS);
        self.generation += 1;
        match connect(&self.context, &self.destination, self.generation) {
            Ok((socket, monitor)) => {
                (self.socket, self.is_monitor_new) = (socket, true);
                self.closing_monitors.push(std::mem::replace(&mut self.monitor, monitor));
            }
            Err(error) => warn!(%error, "cannot reconnect to the collector"),
        }
    }

    /// Logs a refused connection.
    fn warn(&self, refused: RefusalCause) {
        let Destination { collector, own, .. } = &self.destination;
        let own = own.as_ref().filter(|_| collector.key.is_some());
        let (error, remedy) = refused.explain(own);
        warn!(
            error,
            remedy = %format_args!("{remedy}; samples are buffered until then, up to `outbox_bytes`"),
            "cannot connect to the collector at {}",
            collector.endpoint
        );
    }
}

/// Parses the first part of an event: its number and its value, in the machine's byte order.
pub(super) fn parse(part: &[u8]) -> Option<ConnectionEvent> {
    let (event, value) = part.split_first_chunk::<2>()?;
    let (event, value) = (u16::from_ne_bytes(*event), u32::from_ne_bytes(*value.first_chunk()?));
    let refused = |cause| Some(ConnectionEvent::Refused(cause));
    let is = |known: SocketEvent| known.to_raw() == event;
    if is(SocketEvent::HANDSHAKE_SUCCEEDED) {
        Some(ConnectionEvent::Connected)
    } else if is(SocketEvent::DISCONNECTED) {
        Some(ConnectionEvent::Disconnected)
    } else if is(SocketEvent::HANDSHAKE_FAILED_AUTH) {
        refused(RefusalCause::Key)
    } else if is(SocketEvent::HANDSHAKE_FAILED_PROTOCOL) && value == MECHANISM_MISMATCH {
        refused(RefusalCause::Mechanism)
    } else if is(SocketEvent::HANDSHAKE_FAILED_PROTOCOL) {
        refused(RefusalCause::Protocol)
    } else if is(SocketEvent::HANDSHAKE_FAILED_NO_DETAIL) {
        refused(RefusalCause::Ended)
    } else {
        None
    }
}

/// True if a monitor has reported its last event.
fn is_stopped(monitor: &Socket) -> bool {
    let mut stopped = false;
    while let Ok(event) = monitor.recv_multipart(DONTWAIT) {
        stopped |= event
            .first()
            .is_some_and(|part| part.starts_with(&SocketEvent::MONITOR_STOPPED.to_raw().to_ne_bytes()));
    }
    stopped
}

/// Creates a socket that connects, and its monitor.
pub(super) fn connect(
    context: &Context,
    to: &Destination,
    generation: u64,
) -> Result<(Socket, Socket), zmq::Error> {
    let socket = context.socket(zmq::DEALER)?;
    socket.set_linger(0)?;
    // Frames wait in the outbox, which tracks them, and not in the socket.
    socket.set_sndhwm(64)?;
    socket.set_rcvhwm(1000)?;
    socket.set_immediate(true)?;
    socket.set_ipv6(true)?;
    socket.set_maxmsgsize(i64::try_from(polymeter_proto::limits::MESSAGE_BYTES).unwrap_or(i64::MAX))?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(5_000)?;
    // Not ZeroMQ's heartbeats: libzmq aborts the collector if it has stopped reading, and finds a heartbeat
    // among the messages of a connection that is gone.
    let (idle_s, interval_s, probes) = polymeter_proto::limits::KEEPALIVE;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(idle_s)?;
    socket.set_tcp_keepalive_intvl(interval_s)?;
    socket.set_tcp_keepalive_cnt(probes)?;
    if let (Some(own), Some(key)) = (&to.own, &to.collector.key) {
        socket.set_curve_serverkey(key.as_bytes())?;
        socket.set_curve_publickey(own.public.as_bytes())?;
        socket.set_curve_secretkey(own.secret.as_bytes())?;
    }
    let endpoint = format!("inproc://polymeter-connection-{}-{generation}", to.session);
    let events = MONITORED.iter().fold(0, |events, event| events | event.to_raw());
    socket.monitor(&endpoint, i32::from(events))?;
    let monitor = context.socket(zmq::PAIR)?;
    monitor.set_linger(0)?;
    monitor.connect(&endpoint)?;
    socket.connect(&to.collector.endpoint)?;
    Ok((socket, monitor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed_by_tcp_and_not_by_heartbeats() {
        let collector = CollectorAddress { endpoint: "tcp://127.0.0.1:1".to_owned(), key: None };
        let to = Destination { collector, own: None, session: SessionId(1) };
        let (socket, _monitor) = connect(&Context::new(), &to, 0).unwrap();
        assert_eq!(socket.get_heartbeat_ivl(), Ok(0));
        assert_eq!(socket.get_tcp_keepalive(), Ok(1));
    }

    /// Longer than any test waits for a wake-up that comes.
    const LONG_MS: i64 = 60_000;

    /// Waits until `is_wanted`, and reads the monitor.
    fn wait_for(connection: &mut Connection, event: &EventFd, is_wanted: impl Fn(Woken) -> bool) -> Polled {
        loop {
            let woken = connection.wait(POLLIN, event, LONG_MS);
            assert!(woken.by_socket || woken.by_monitor || woken.by_event, "nothing woke it");
            let polled = connection.poll_events(woken.by_monitor, 0);
            if is_wanted(woken) {
                return polled;
            }
            // What libzmq does in the background wakes it, too.
            while connection.socket().recv_bytes(DONTWAIT).is_ok() {}
        }
    }

    #[test]
    fn a_wait_ends_for_messages_connections_room_and_other_threads() {
        let context = Context::new();
        let collector = context.socket(zmq::ROUTER).unwrap();
        collector.set_rcvtimeo(i32::try_from(LONG_MS).unwrap()).unwrap();
        collector.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = collector.get_last_endpoint().unwrap().unwrap();
        let to = CollectorAddress { endpoint, key: None };
        let destination = Destination { collector: to, own: None, session: SessionId(2) };
        let mut connection = Connection::open(&context, destination).unwrap();
        let event = EventFd::new().unwrap();
        while !wait_for(&mut connection, &event, |woken| woken.by_monitor).connected {}
        assert!(connection.is_connected());
        assert!(connection.wait(zmq::POLLOUT, &event, LONG_MS).by_socket, "there is room");

        connection.socket().send("frame", DONTWAIT).unwrap();
        let [peer, frame] = collector.recv_multipart(0).unwrap().try_into().unwrap();
        assert_eq!(frame, b"frame");
        let answer = |text: &str| collector.send_multipart([&peer[..], text.as_bytes()], 0).unwrap();
        answer("first");
        wait_for(&mut connection, &event, |woken| woken.by_socket);
        let received = |connection: &Connection| loop {
            if let Ok(bytes) = connection.socket().recv_bytes(DONTWAIT) {
                return bytes;
            }
            assert!(connection.wait(POLLIN, &event, LONG_MS).by_socket);
        };
        assert_eq!(received(&connection), b"first");

        // The look for commands that is part of a send takes the signal of the message.
        assert!(!connection.socket().get_events().unwrap().contains(POLLIN));
        answer("second");
        let descriptor = connection.socket().get_fd().unwrap();
        assert_eq!(zmq::poll(&mut [PollItem::from_fd(descriptor, POLLIN)], LONG_MS), Ok(1));
        connection.socket().send("another", DONTWAIT).unwrap();
        assert!(connection.wait(POLLIN, &event, LONG_MS).by_socket);
        assert_eq!(received(&connection), b"second");

        event.notify();
        wait_for(&mut connection, &event, |woken| woken.by_event);
        event.clear();
        let standby = context.socket(zmq::ROUTER).unwrap();
        standby.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = standby.get_last_endpoint().unwrap().unwrap();
        connection.redirect(CollectorAddress { endpoint, key: None });
        while !wait_for(&mut connection, &event, |woken| woken.by_monitor).connected {}
        drop(standby);
        while connection.is_connected() {
            wait_for(&mut connection, &event, |woken| woken.by_monitor);
        }
    }

    #[test]
    fn events_are_understood() {
        let event = |number: u16, value: u32| [&number.to_ne_bytes()[..], &value.to_ne_bytes()[..]].concat();
        let refused = |refused| Some(ConnectionEvent::Refused(refused));
        assert_eq!(parse(&event(0x1000, 0)), Some(ConnectionEvent::Connected));
        assert_eq!(parse(&event(0x0200, 7)), Some(ConnectionEvent::Disconnected));
        assert_eq!(parse(&event(0x4000, 400)), refused(RefusalCause::Key));
        assert_eq!(parse(&event(0x2000, 0x1100_0002)), refused(RefusalCause::Mechanism));
        assert_eq!(parse(&event(0x2000, 0x1000_0000)), refused(RefusalCause::Protocol));
        assert_eq!(parse(&event(0x0800, 104)), refused(RefusalCause::Ended));
        assert_eq!(parse(&event(1, 0)), None);
        assert_eq!(parse(&[0; 5]), None);
    }
}
