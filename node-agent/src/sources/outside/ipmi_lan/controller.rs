//! Commands to a management controller, in a session that begins with the first one.

use std::fmt;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

use super::keys::{Block, Introduction, SessionKeys, Suite};
use super::packet::{self, Command, Payload};
use crate::clock;
use crate::sources::outside::connection::DeviceError;
use crate::sources::outside::credentials::Credentials;
use crate::sources::outside::settings::DeviceUrl;
use crate::sources::outside::stream::{address, connect_datagrams, receive_until};

const PORT: u16 = 623;

/// Attempts in one timeout: UDP loses datagrams, and controllers are busy.
const ATTEMPTS: u32 = 2;

/// Longest packet: messages of IPMI have at most some 300 bytes.
const PACKET_BYTES: usize = 1024;

/// Longest time without a command. A controller ends sessions after 60 s, some a little earlier.
const IDLE_NS: u64 = 45_000_000_000;

/// Privilege "user", which reads sensors, and may change nothing. The bit selects the user by the name only.
const ROLE: u8 = 0x02;
const BY_NAME: u8 = 1 << 4;

const KEYS: [&str; 4] = ["user", "password", "controller_key", "cipher_suite"];

/// Bytes of a password and of a controller's key, and of a user's name.
const PASSWORD_BYTES: usize = 20;
const USER_BYTES: usize = 16;

const NETFN_APPLICATION: u8 = 0x06;
const CLOSE_SESSION: u8 = 0x3c;

/// User and password.
pub(super) struct Access {
    user: Vec<u8>,
    password: Vec<u8>,
    /// Key of the controller for its sessions, if it has one beside the users' passwords.
    controller_key: Option<Vec<u8>>,
    /// Suites in the order in which they are tried.
    suites: Vec<Suite>,
}

impl Access {
    pub(super) fn read(path: Option<&Path>) -> Result<Self, DeviceError> {
        let invalid = |reason: &str| DeviceError::Credentials(reason.to_owned());
        let path =
            path.ok_or_else(|| invalid("`credentials` must name a file with `user` and `password`"))?;
        let credentials = Credentials::read(path, &KEYS)?;
        let short = |key: &str, limit: usize| match credentials.get(key) {
            Some(text) if text.len() > limit => {
                Err(invalid(&format!("{}: `{key}` has more than {limit} bytes", path.display())))
            }
            text => Ok(text.map(|text| text.as_bytes().to_vec())),
        };
        let suites = match credentials.get("cipher_suite") {
            None => vec![Suite::Sha256, Suite::Sha1],
            Some("17") => vec![Suite::Sha256],
            Some("3") => vec![Suite::Sha1],
            Some(_) => return Err(invalid("`cipher_suite` is neither \"3\" nor \"17\"")),
        };
        let password = short("password", PASSWORD_BYTES)?;
        Ok(Self {
            user: short("user", USER_BYTES)?.unwrap_or_default(),
            password: password.ok_or_else(|| invalid("the file has no `password`"))?,
            controller_key: short("controller_key", PASSWORD_BYTES)?,
            suites,
        })
    }
}

pub(super) struct Controller {
    url: DeviceUrl,
    timeout: Duration,
    access: Access,
    session: Option<Session>,
}

struct Session {
    socket: UdpSocket,
    own_id: [u8; 4],
    controller_id: [u8; 4],
    keys: SessionKeys,
    sent: u32,
    received: u32,
    /// Number of the last message, 0 to 63.
    number: u8,
    used_ns: u64,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Controller {
    pub(super) const fn new(url: DeviceUrl, timeout: Duration, access: Access) -> Self {
        Self { url, timeout, access, session: None }
    }

    /// Returns the completion code and the data of the answer.
    ///
    /// # Errors
    ///
    /// Fails without an answer.
    pub(super) fn ask(&mut self, command: &Command<'_>) -> Result<Vec<u8>, DeviceError> {
        let now_ns = clock::monotonic_ns();
        if self.session.as_ref().is_some_and(|open| now_ns.saturating_sub(open.used_ns) > IDLE_NS) {
            self.session = None;
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => self.open()?,
        };
        let session = self.session.insert(session);
        session.ask(command, self.timeout)
    }

    fn open(&self) -> Result<Session, DeviceError> {
        for suite in &self.access.suites {
            let socket = connect_datagrams(address(&self.url, Some(PORT))?)?;
            if let Some((introduction, keys)) = self.introduce(&socket, *suite)? {
                let Introduction { own_id, controller_id, .. } = introduction;
                let used_ns = clock::monotonic_ns();
                return Ok(Session {
                    socket,
                    own_id,
                    controller_id,
                    keys,
                    sent: 0,
                    received: 0,
                    number: 0,
                    used_ns,
                });
            }
        }
        Err(DeviceError::Refused("it has none of the cipher suites; 17 and 3 are known".to_owned()))
    }

    /// Opens a session, in which both sides have proved that they know the password. Returns none if the
    /// controller lacks the suite.
    fn introduce(
        &self,
        socket: &UdpSocket,
        suite: Suite,
    ) -> Result<Option<(Introduction, SessionKeys)>, DeviceError> {
        let own_id: [u8; 4] = random()?;
        let exchange = |step: Step, body: &[u8]| step.exchange(socket, self.timeout, own_id, body);
        let answer = match exchange(OPEN, &open_request(own_id, suite))? {
            (0, answer) => answer,
            (status, _) if lacks_suite(status) => return Ok(None),
            (status, _) => return Err(refusal(status)),
        };
        let controller_id = controller_id(&answer, suite)?;
        let role_and_user = [&[ROLE | BY_NAME, length(&self.access.user)], &*self.access.user].concat();
        let own_number: Block = random()?;
        // The role has two reserved bytes behind it here.
        let (role, user) = role_and_user.split_at(1);
        let first = [&controller_id[..], &own_number, role, &[0, 0], user].concat();
        let answer = accepted(exchange(FIRST, &first)?)?;
        let Some((controller_number, rest)) = answer.split_first_chunk() else { return Err(cut_off()) };
        let Some((controller_guid, code)) = rest.split_first_chunk() else { return Err(cut_off()) };
        let introduction = Introduction {
            suite,
            own_id,
            controller_id,
            own_number,
            controller_number: *controller_number,
            controller_guid: *controller_guid,
            role_and_user,
        };
        let password = &self.access.password;
        // Before it has proved that it knows the password, a stranger gets nothing that was made with it.
        if !is_same(&introduction.controller_code(password), code) {
            return Err(wrong_password());
        }
        let session_key = introduction.session_key(self.access.controller_key.as_ref().unwrap_or(password));
        let second = [&controller_id[..], &introduction.own_code(password)].concat();
        let code = accepted(exchange(SECOND, &second)?)?;
        if !is_same(&introduction.final_code(&session_key), &code) {
            return Err(DeviceError::Refused("check `controller_key`".to_owned()));
        }
        Ok(Some((introduction, SessionKeys::new(suite, &session_key))))
    }
}

/// One of the messages that open a session, with its answer.
#[derive(Debug, Clone, Copy)]
struct Step {
    tag: u8,
    request: Payload,
    answer: Payload,
    /// Bytes behind the tag.
    head: [u8; 3],
}

/// Asks for the privilege.
const OPEN: Step =
    Step { tag: 0, request: Payload::OpenRequest, answer: Payload::OpenAnswer, head: [ROLE, 0, 0] };
const FIRST: Step = Step { tag: 1, request: Payload::Rakp1, answer: Payload::Rakp2, head: [0; 3] };
const SECOND: Step = Step { tag: 2, request: Payload::Rakp3, answer: Payload::Rakp4, head: [0; 3] };

impl Step {
    /// Returns the status, and what follows the session id of this side.
    fn exchange(
        self,
        socket: &UdpSocket,
        timeout: Duration,
        own_id: [u8; 4],
        body: &[u8],
    ) -> Result<(u8, Vec<u8>), DeviceError> {
        let packet = packet::plain(self.request, &[&[self.tag][..], &self.head, body].concat());
        let take = |received: &[u8]| {
            let payload = packet::plain_payload(self.answer, received)?;
            let (&[tag, status], rest) = payload.split_first_chunk()?;
            // Some controllers refuse with two bytes.
            let refused = (&own_id, &[][..]);
            let whole = rest.get(2..).and_then(|rest| rest.split_first_chunk());
            let (id, rest) = whole.or((status != 0).then_some(refused))?;
            (tag == self.tag && *id == own_id).then(|| (status, rest.to_vec()))
        };
        exchange(socket, timeout, || Ok(packet.clone()), take)
    }
}

fn accepted((status, answer): (u8, Vec<u8>)) -> Result<Vec<u8>, DeviceError> {
    if status == 0 { Ok(answer) } else { Err(refusal(status)) }
}

/// The id of this side, and the algorithms, each with its type and length.
fn open_request(own_id: [u8; 4], suite: Suite) -> Vec<u8> {
    let mut request = own_id.to_vec();
    for (kind, algorithm) in (0..).zip(suite.algorithms()) {
        request.extend([kind, 0, 0, 8, algorithm, 0, 0, 0]);
    }
    request
}

/// Id that the controller gives to the session, if it has chosen the algorithms that were asked for.
fn controller_id(answer: &[u8], suite: Suite) -> Result<[u8; 4], DeviceError> {
    let (id, chosen) = answer.split_first_chunk().ok_or_else(cut_off)?;
    let algorithms: Vec<u8> = chosen.chunks(8).filter_map(|choice| choice.get(4).copied()).collect();
    if algorithms != suite.algorithms() {
        return Err(DeviceError::Malformed("it chooses another cipher suite"));
    }
    Ok(*id)
}

/// Statuses of a controller without these algorithms.
const fn lacks_suite(status: u8) -> bool {
    matches!(status, 0x04 | 0x05 | 0x10 | 0x11 | 0x12)
}

fn refusal(status: u8) -> DeviceError {
    match status {
        0x01 | 0x0b => DeviceError::Busy,
        0x09 | 0x0a => DeviceError::Refused("its user has not the privilege `user`".to_owned()),
        0x0d | 0x0f => wrong_password(),
        _ => DeviceError::Refused(format!("status {status:#04x} of RMCP+")),
    }
}

fn wrong_password() -> DeviceError {
    DeviceError::Refused("check `user` and `password`".to_owned())
}

fn cut_off() -> DeviceError {
    DeviceError::Malformed("it opens a session with too few bytes")
}

fn is_same(expected: &[u8], code: &[u8]) -> bool {
    expected.ct_eq(code).into()
}

fn length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap_or(u8::MAX)
}

fn random<const N: usize>() -> Result<[u8; N], DeviceError> {
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    Ok(bytes)
}

impl Session {
    fn ask(&mut self, command: &Command<'_>, timeout: Duration) -> Result<Vec<u8>, DeviceError> {
        self.number = (self.number + 1) % 64;
        let (number, message) = (self.number, command.message(self.number));
        let Self { socket, own_id, controller_id, keys, sent, received, .. } = self;
        let seal = || {
            *sent = sent.wrapping_add(1).max(1);
            Ok(packet::seal(keys, *controller_id, *sent, &random()?, &message))
        };
        let answer = exchange(socket, timeout, seal, |packet| {
            let (sequence, message) = packet::open(keys, *own_id, packet)?;
            // An answer of the past, which somebody sends again.
            if !(1..1 << 31).contains(&sequence.wrapping_sub(*received)) {
                return None;
            }
            *received = sequence;
            command.answer(number, &message).map(<[u8]>::to_vec)
        })?;
        self.used_ns = clock::monotonic_ns();
        Ok(answer)
    }
}

impl Drop for Session {
    /// Controllers have few sessions, and keep a lost one for a minute. The answer is not awaited.
    fn drop(&mut self) {
        let command =
            Command { netfn: NETFN_APPLICATION, unit: 0, command: CLOSE_SESSION, data: &self.controller_id };
        let message = command.message((self.number + 1) % 64);
        let sequence = self.sent.wrapping_add(1).max(1);
        if let Ok(vector) = random() {
            self.socket.send(&packet::seal(&self.keys, self.controller_id, sequence, &vector, &message)).ok();
        }
    }
}

/// Sends a packet, again if no answer comes, and waits for what `take` accepts. Whatever else arrives is
/// ignored, since anybody can send it.
fn exchange<T>(
    socket: &UdpSocket,
    timeout: Duration,
    mut packet: impl FnMut() -> Result<Vec<u8>, DeviceError>,
    mut take: impl FnMut(&[u8]) -> Option<T>,
) -> Result<T, DeviceError> {
    let wait_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX) / u64::from(ATTEMPTS);
    let mut buffer = [0; PACKET_BYTES];
    for _ in 0..ATTEMPTS {
        socket.send(&packet()?)?;
        let until_ns = clock::monotonic_ns().saturating_add(wait_ns);
        while let Some(packet) = receive_until(socket, &mut buffer, until_ns)? {
            if let Some(taken) = take(packet) {
                return Ok(taken);
            }
        }
    }
    Err(DeviceError::Timeout)
}

/// Any packet is one of a session or none, and no packet of others is accepted.
pub(super) fn check(data: &[u8]) {
    for suite in [Suite::Sha1, Suite::Sha256] {
        let keys = SessionKeys::new(suite, &[1; 20]);
        assert!(packet::open(&keys, [1, 2, 3, 4], data).is_none(), "it is not signed");
        keys.decrypt(data);
        controller_id(data, suite).ok();
    }
    for kind in [Payload::OpenAnswer, Payload::Rakp2, Payload::Rakp4] {
        let payload = packet::plain_payload(kind, data).unwrap_or_default();
        assert!(payload.len() <= data.len());
    }
    let command = Command { netfn: 0x0a, unit: 0, command: 0x23, data: &[] };
    let answer = (0..64).find_map(|number| command.answer(number, data));
    assert!(answer.is_none_or(|answer| answer.len() + 7 == data.len()));
}
