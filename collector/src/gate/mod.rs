//! The gate: whose agents may connect, asked for each connection (ZAP) and again for each message.
//!
//! A thread of its own answers libzmq's questions and reads the directory of authorised keys, so that the receiver never
//! waits for a disk. Where nobody answers, libzmq lets everybody in: so a message counts only if its connection has the
//! user id that the gate gave. The user id begins with a secret of this process, since a peer may claim any other.

mod authorised;
mod knock;
mod zap;

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use polymeter_proto::key::{KeyFileError, PublicKey};
use polymeter_proto::series::Identifier;
use zmq::{Context, DONTWAIT, POLLIN, PollItem, Socket};

use self::authorised::{Directory, Names};
use self::knock::Knock;
pub(crate) use self::knock::Turned;
#[cfg(fuzzing)]
pub use self::{authorised::authorise, zap::ask};
use crate::clock::Clock;
use crate::inbox::Waker;
use crate::keys::KeysError;
use crate::metrics::Metrics;
use crate::quiet::Quiet;
use crate::{StartError, limits, log};

/// Whose connection a message came by, and whether that still counts.
#[derive(Debug)]
pub(crate) struct Admission {
    /// What the user ids begin with.
    token: String,
    names: RwLock<Arc<Names>>,
    /// Whether an agent may speak only for the node that its key is named after.
    binds_node: bool,
}

/// An agent whose key is authorised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The only node that it may speak for; none where it may speak for all.
    pub(crate) node: Option<Arc<Identifier>>,
}

impl Admission {
    fn new(binds_node: bool) -> std::io::Result<Self> {
        let mut secret = [0_u8; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        let mut token = String::new();
        for byte in secret {
            // Writing to a string cannot fail.
            write!(token, "{byte:02x}").ok();
        }
        Ok(Self { token, names: RwLock::default(), binds_node })
    }

    /// Who sends messages with this user id, if that is somebody whose key is authorised now.
    pub(crate) fn who(&self, user_id: Option<&str>) -> Option<Admitted> {
        let key = user_id?.strip_prefix(&self.token)?.parse().ok()?;
        let name = self.name(&key)?;
        Some(Admitted { node: self.binds_node.then_some(name) })
    }

    fn name(&self, key: &PublicKey) -> Option<Arc<Identifier>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn user_id(&self, key: &PublicKey) -> String {
        format!("{}{key}", self.token)
    }

    fn authorise(&self, names: Names) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }
}

/// The gate's thread. It must outlive the socket that it guards: it ends when this is dropped and the socket is closed.
#[derive(Debug)]
pub(crate) struct Gate {
    waker: Waker,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread holds.
struct Keeper {
    /// Who asks whose key it is, and the directory that knows; none where there are no keys.
    door: Option<Door>,
    /// What tells of connections that came to nothing.
    monitor: Socket,
    quiet: Quiet,
    metrics: Arc<Metrics>,
    clock: Clock,
    waker: Waker,
    ends: Arc<AtomicBool>,
    /// The guarded socket is closed.
    closed: bool,
}

struct Door {
    zap: Socket,
    directory: Directory,
    admission: Arc<Admission>,
}

/// What a gate is made of.
pub(crate) struct Plan<'a> {
    pub(crate) context: &'a Context,
    /// The socket that is guarded, before it is bound.
    pub(crate) guarded: &'a Socket,
    /// The directory of authorised agents, and whether each may speak only for its node; none where there are no keys.
    pub(crate) authorised: Option<(PathBuf, bool)>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

impl Gate {
    /// Starts the thread; from then on connections are judged.
    ///
    /// # Errors
    /// When the directory cannot be read or is open to others, or the machine gives no thread.
    pub(crate) fn start(plan: Plan<'_>) -> Result<(Self, Option<Arc<Admission>>), StartError> {
        let socket = |source| StartError::Socket { what: "the gate", source };
        let monitor = monitor(plan.context, plan.guarded).map_err(socket)?;
        let door = match plan.authorised {
            None => None,
            Some((directory, binds_node)) => {
                let zap = plan.context.socket(zmq::REP).map_err(socket)?;
                zap.set_linger(0).map_err(socket)?;
                zap.bind(zap::ENDPOINT).map_err(socket)?;
                plan.guarded.set_zap_domain(zap::DOMAIN).map_err(socket)?;
                let admission = Arc::new(Admission::new(binds_node).map_err(StartError::Machine)?);
                Some(Door { zap, directory: Directory::new(directory), admission })
            }
        };
        let waker = Waker::new().map_err(StartError::Machine)?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut keeper = Keeper {
            door,
            monitor,
            quiet: Quiet::default(),
            metrics: plan.metrics,
            clock: plan.clock,
            waker: waker.clone(),
            ends: Arc::clone(&ends),
            closed: false,
        };
        keeper.read_keys().map_err(|error| StartError::Keys(KeysError::File(error)))?;
        let admission = keeper.door.as_ref().map(|door| Arc::clone(&door.admission));
        let thread = crate::spawn("gate", move || keeper.run())?;
        Ok((Self { waker, ends, thread: Some(thread) }, admission))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        self.waker.wake();
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Has libzmq tell what becomes of the connections of `guarded`.
fn monitor(context: &Context, guarded: &Socket) -> zmq::Result<Socket> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let endpoint = format!("inproc://polymeter-gate-{}", COUNT.fetch_add(1, Relaxed));
    guarded.monitor(&endpoint, knock::EVENTS)?;
    let monitor = context.socket(zmq::PAIR)?;
    monitor.set_linger(0)?;
    monitor.connect(&endpoint)?;
    Ok(monitor)
}

impl Keeper {
    fn run(mut self) {
        let mut since = None;
        loop {
            self.waker.rest();
            self.attend();
            if self.ends.load(Relaxed) {
                // libzmq's own thread waits for whoever hears its last word of the guarded socket, and everything with it.
                let since = *since.get_or_insert(self.now());
                if self.closed || self.now().saturating_sub(since) > limits::GATE_END {
                    return;
                }
            }
            if let Err(zmq::Error::ETERM | zmq::Error::ENOTSOCK) = self.wait() {
                return;
            }
        }
    }

    fn wait(&self) -> zmq::Result<()> {
        let mut items =
            vec![PollItem::from_fd(self.waker.raw_fd(), POLLIN), self.monitor.as_poll_item(POLLIN)];
        items.extend(self.door.as_ref().map(|door| door.zap.as_poll_item(POLLIN)));
        let patience_ms = i64::try_from(limits::KEYS_LOOK_AGAIN.as_millis()).unwrap_or(i64::MAX);
        zmq::poll(&mut items, patience_ms).map(drop)
    }

    fn attend(&mut self) {
        if let Err(error) = self.read_keys() {
            let now = self.clock.now().since_start;
            if self.quiet.may_say("directory", now) {
                log::warning(format_args!("{error}; no agent is authorised until that is put right"));
            }
        }
        for _ in 0..limits::GATE_BURST {
            let Some(knock) = self.next_knock() else { break };
            let turned = match knock {
                Some(Knock::Turned(turned)) => turned,
                Some(Knock::Closed) => {
                    self.closed = true;
                    break;
                }
                None => continue,
            };
            self.metrics.turned(turned);
            let told = turned.told(self.door.is_some());
            if let Some(told) = told.filter(|_| self.quiet.may_say(turned.as_str(), self.now())) {
                log::warning(told);
            }
        }
        for _ in 0..limits::GATE_BURST {
            if !self.answer() {
                break;
            }
        }
    }

    fn now(&self) -> std::time::Duration {
        self.clock.now().since_start
    }

    /// Authorises whom the directory names now.
    fn read_keys(&mut self) -> Result<(), KeyFileError> {
        let Some(door) = &mut self.door else { return Ok(()) };
        let read = door.directory.changed(self.clock.now());
        let (names, read) = match read {
            Ok(None) => return Ok(()),
            Ok(Some(names)) => (names, Ok(())),
            Err(error) => (Names::new(), Err(error)),
        };
        self.metrics.authorised.set(names.len() as u64);
        door.admission.authorise(names);
        read
    }

    /// The next thing that the monitor tells, if it tells anything; and what it means, if that is known.
    fn next_knock(&self) -> Option<Option<Knock>> {
        let event = self.monitor.recv_multipart(DONTWAIT).ok()?;
        Some(event.first().and_then(|part| knock::parse(part)))
    }

    /// Answers a question whose key it is, if there is one.
    fn answer(&mut self) -> bool {
        let Some(door) = &self.door else { return false };
        let Ok(parts) = door.zap.recv_multipart(DONTWAIT) else { return false };
        let request = zap::parse(&parts);
        let known = request.as_ref().filter(|request| door.admission.name(&request.key).is_some());
        let user_id = known.map(|request| door.admission.user_id(&request.key));
        // Who is gone meanwhile needs no answer.
        door.zap.send_multipart(zap::answer(&parts, user_id.as_deref()), DONTWAIT).ok();
        if user_id.is_some() {
            self.metrics.admitted.add(1);
            return true;
        }
        self.metrics.turned(Turned::UnknownKey);
        let Some(request) = request else { return true };
        let directory = door.directory.path().display().to_string();
        if self.quiet.may_say(&request.key.to_string(), self.clock.now().since_start) {
            log::warning(format_args!(
                "the agent at {} is refused: its key {} is not authorised; to let it in, put its public key into {directory}/NODE.pub",
                place(&request.address),
                request.key
            ));
        }
        true
    }
}

/// Where a peer is, for a person to read.
fn place(address: &str) -> String {
    match address.parse::<IpAddr>() {
        // An IPv4 address in the clothes that an IPv6 socket gives it.
        Ok(address) => address.to_canonical().to_string(),
        Err(_) if address.is_empty() => "this machine".to_owned(),
        Err(_) => log::printable(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_gate_said_itself_counts() {
        let (key, other) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
        let node = Arc::new(Identifier::try_from("n1").unwrap());
        let admission = Admission::new(true).unwrap();
        admission.authorise(Names::from([(key, Arc::clone(&node))]));
        let user_id = admission.user_id(&key);
        assert_eq!(admission.who(Some(&user_id)), Some(Admitted { node: Some(node) }));
        assert_eq!(admission.who(None), None);
        assert_eq!(admission.who(Some("")), None);
        assert_eq!(admission.who(Some(&key.to_string())), None, "anybody can say that");
        assert_eq!(admission.who(Some(&admission.user_id(&other))), None);
        let elsewhere = Admission::new(true).unwrap();
        assert_eq!(admission.who(Some(&elsewhere.user_id(&key))), None);
        admission.authorise(Names::new());
        assert_eq!(admission.who(Some(&user_id)), None, "the key was removed");
    }

    #[test]
    fn libzmq_lets_strangers_in_when_nobody_is_asked_and_the_gate_does_not() {
        let (context, server) = (Context::new(), zmq::CurveKeyPair::new().unwrap());
        let router = context.socket(zmq::ROUTER).unwrap();
        router.set_curve_server(true).unwrap();
        router.set_curve_secretkey(&server.secret_key).unwrap();
        router.set_zap_domain(zap::DOMAIN).unwrap();
        router.bind("tcp://127.0.0.1:*").unwrap();
        let stranger = zmq::CurveKeyPair::new().unwrap();
        let dealer = context.socket(zmq::DEALER).unwrap();
        dealer.set_linger(0).unwrap();
        dealer.set_curve_serverkey(&server.public_key).unwrap();
        dealer.set_curve_publickey(&stranger.public_key).unwrap();
        dealer.set_curve_secretkey(&stranger.secret_key).unwrap();
        dealer.connect(&router.get_last_endpoint().unwrap().unwrap()).unwrap();
        dealer.send("anything", 0).unwrap();
        router.set_rcvtimeo(30_000).unwrap();
        router.recv_msg(0).unwrap();
        let mut message = router.recv_msg(0).unwrap();
        assert_eq!(&*message, b"anything");
        let admission = Admission::new(false).unwrap();
        admission.authorise(Names::from([(
            PublicKey::new(stranger.public_key),
            Arc::new(Identifier::try_from("n1").unwrap()),
        )]));
        assert_eq!(admission.who(message.gets("User-Id")), None);
    }
}
