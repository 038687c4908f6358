//! Requests to the agent of a device, and walks over its tables.

use std::hash::{BuildHasher, RandomState};
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use snmp2::{Error, Pdu, Value};

use super::access::{Access, Received};
use super::message::{Operation, Request};
use super::object_id::ObjectId;
use crate::clock;
use crate::sources::outside::connection::{DeviceError, VALUES_MAX};
use crate::sources::outside::settings::DeviceUrl;
use crate::sources::outside::stream::{address, connect_datagrams, receive_until};

const PORT: u16 = 161;

/// Attempts in one timeout: UDP loses datagrams.
const ATTEMPTS: u32 = 2;

/// Questions for the engine and its clock, and one for the objects.
const ROUNDS: u32 = 3;

/// Objects of one request, whose answer fits one Ethernet frame.
const OBJECTS: usize = 24;

/// Objects of one answer of a walk.
const REPETITIONS: u8 = 24;

/// Requests of one walk: twice as many as [`VALUES_MAX`] full answers take.
const WALK_REQUESTS: usize = 2 * VALUES_MAX / 24;

/// Longest answer: that of [`OBJECTS`] texts of 255 characters has half of it. Devices that are asked at the
/// same time take a buffer each.
const ANSWER_BYTES: usize = 16 * 1024;

/// Status of an answer that did not fit a message.
const TOO_BIG: u32 = 1;

#[derive(Debug)]
pub(super) struct Agent {
    url: DeviceUrl,
    timeout: Duration,
    access: Access,
    socket: Option<UdpSocket>,
    next_id: i32,
}

/// Objects of an answer, in the order of the agent.
type Objects<T> = Vec<(ObjectId, T)>;

impl Agent {
    pub(super) fn new(
        url: &DeviceUrl,
        timeout: Duration,
        credentials: Option<&Path>,
    ) -> Result<Self, DeviceError> {
        let access = Access::read(credentials)?;
        // Nobody who does not see the requests can guess the numbers of answers.
        let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_le_bytes();
        let next_id = i32::from_le_bytes([a, b, c, d & 0x3f]);
        Ok(Self { url: url.clone(), timeout, access, socket: None, next_id })
    }

    /// Reads objects. Those that the agent lacks are left out.
    pub(super) fn get<T>(
        &mut self,
        objects: &[ObjectId],
        convert: fn(&Value<'_>) -> Option<T>,
    ) -> Result<Objects<T>, DeviceError> {
        let mut all = Vec::new();
        for part in objects.chunks(OBJECTS) {
            let answer = self.ask(Operation::Get, part, convert)?;
            let Some(answer) = answer else {
                // Each alone may fit.
                for object in part {
                    let one = self.ask(Operation::Get, std::slice::from_ref(object), convert)?;
                    all.extend(one.unwrap_or_default());
                }
                continue;
            };
            all.extend(answer);
        }
        all.retain(|(object, _)| objects.contains(object));
        Ok(all.into_iter().filter_map(|(object, value)| Some((object, value?))).collect())
    }

    /// Reads the objects below `base`, at most [`VALUES_MAX`].
    pub(super) fn walk<T>(
        &mut self,
        base: &ObjectId,
        convert: fn(&Value<'_>) -> Option<T>,
    ) -> Result<Objects<T>, DeviceError> {
        let mut all = Vec::new();
        let mut last = base.clone();
        let mut repetitions = REPETITIONS;
        for _ in 0..WALK_REQUESTS {
            let asked = std::slice::from_ref(&last);
            let Some(answer) = self.ask(Operation::GetBulk(repetitions), asked, convert)? else {
                if repetitions == 1 {
                    return Err(DeviceError::Malformed("one object is too big"));
                }
                repetitions = 1;
                continue;
            };
            let before = last.clone();
            for (object, value) in answer {
                if object.below(base).is_none() {
                    return Ok(all);
                }
                if object <= last {
                    return Err(DeviceError::Malformed("its objects are not in order"));
                }
                all.extend(value.map(|value| (object.clone(), value)));
                last = object;
                if all.len() >= VALUES_MAX {
                    return Ok(all);
                }
            }
            // The end of everything has no identifiers behind it.
            if last == before {
                return Ok(all);
            }
        }
        Ok(all)
    }

    /// Asks, again if the answer is lost. Returns none if the answer does not fit a message.
    fn ask<T>(
        &mut self,
        operation: Operation,
        objects: &[ObjectId],
        convert: fn(&Value<'_>) -> Option<T>,
    ) -> Result<Option<Objects<Option<T>>>, DeviceError> {
        let mut attempts = 0;
        let mut rounds = 0;
        loop {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            let request = Request { id: self.next_id, operation, objects };
            let message = self.access.encode(&request).map_err(device_error)?;
            match self.exchange(&message, request.id, |pdu| taken(pdu, convert))? {
                Some(Received::Answer(answer)) => return answer,
                Some(Received::Again | Received::Other) if rounds < ROUNDS => rounds += 1,
                Some(Received::Again | Received::Other) => {
                    return Err(DeviceError::Refused("its clock is never the same".to_owned()));
                }
                None => {
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        self.access.forget_engine();
                        return Err(DeviceError::Timeout);
                    }
                }
            }
        }
    }

    /// Sends a message, and waits for the answer to it. Returns none if there is none in time.
    fn exchange<T>(
        &mut self,
        message: &[u8],
        id: i32,
        take: impl Fn(Pdu<'_>) -> T,
    ) -> Result<Option<Received<T>>, DeviceError> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect_datagrams(address(&self.url, Some(PORT))?)?,
        };
        socket.send(message)?;
        let wait_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX) / u64::from(ATTEMPTS);
        let until_ns = clock::monotonic_ns().saturating_add(wait_ns);
        let mut buffer = vec![0; ANSWER_BYTES];
        while let Some(received) = receive_until(&socket, &mut buffer, until_ns)? {
            // The kernel cuts off what does not fit.
            if received.len() == ANSWER_BYTES {
                return Err(DeviceError::Malformed("it has more than 16 KiB"));
            }
            match self.access.decode(received, id, &take).map_err(device_error)? {
                // An answer to an earlier request that came late, or was made up.
                Received::Other => {}
                received @ (Received::Answer(_) | Received::Again) => {
                    self.socket = Some(socket);
                    return Ok(Some(received));
                }
            }
        }
        self.socket = Some(socket);
        Ok(None)
    }
}

/// Objects of an answer; none if they did not fit.
fn taken<T>(
    pdu: Pdu<'_>,
    convert: fn(&Value<'_>) -> Option<T>,
) -> Result<Option<Objects<Option<T>>>, DeviceError> {
    match pdu.error_status {
        0 => {}
        TOO_BIG => return Ok(None),
        _ => return Err(DeviceError::Refused("it answers with an error".to_owned())),
    }
    let mut objects = Vec::new();
    for (object, value) in pdu.varbinds.take(VALUES_MAX) {
        if matches!(value, Value::EndOfMibView) {
            break;
        }
        let object = ObjectId::from_bytes(object.as_bytes())
            .map_err(|_invalid| DeviceError::Malformed("an identifier is invalid"))?;
        objects.push((object, convert(&value)));
    }
    Ok(Some(objects))
}

fn device_error(error: Error) -> DeviceError {
    match error {
        Error::AuthFailure(_) | Error::Crypto(_) | Error::CommunityMismatch => {
            DeviceError::Refused("check user, passwords and protocols".to_owned())
        }
        Error::AsnParse
        | Error::AsnInvalidLen
        | Error::AsnWrongType
        | Error::AsnUnsupportedType
        | Error::AsnEof
        | Error::AsnIntOverflow
        | Error::UnsupportedVersion
        | Error::RequestIdMismatch
        | Error::ValueOutOfRange
        | Error::BufferOverflow
        | Error::AuthUpdated
        | Error::Send
        | Error::Receive
        | Error::Mib(_) => DeviceError::Malformed("it is no SNMP"),
    }
}

pub(super) fn check(data: &[u8]) {
    let number = super::value::number;
    let mut access = Access::read(None).unwrap_or(Access::Community(Vec::new()));
    for id in [1, 2] {
        if let Ok(Received::Answer(Ok(Some(objects)))) = access.decode(data, id, |pdu| taken(pdu, number)) {
            assert!(objects.len() <= data.len());
        }
    }
    super::access::check(data);
}
