//! Packets of RMCP+ and the messages of IPMI in them. Source: "Intelligent Platform Management Interface
//! Specification" 2.0, sections 13.1 to 13.8. Pure.

use subtle::ConstantTimeEq;

use super::keys::{Block, SessionKeys};

/// Version 1.0 of RMCP, reserved, no acknowledgement, class IPMI.
const HEADER: [u8; 4] = [6, 0, 0xff, 7];

/// Format of the session header: that of IPMI 2.0.
const FORMAT: u8 = 6;

const ENCRYPTED: u8 = 1 << 7;
const AUTHENTICATED: u8 = 1 << 6;

/// Behind the padding for the code.
const NEXT_HEADER: u8 = 7;

/// Bytes of the session header: format, type, session id, sequence number, length.
const SESSION_HEADER_BYTES: usize = 12;

/// Addresses of the controller and of software that asks it.
const CONTROLLER: u8 = 0x20;
const SOFTWARE: u8 = 0x81;

/// Type of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    Message = 0x00,
    OpenRequest = 0x10,
    OpenAnswer = 0x11,
    Rakp1 = 0x12,
    Rakp2 = 0x13,
    Rakp3 = 0x14,
    Rakp4 = 0x15,
}

fn packet(kind: u8, session: [u8; 4], sequence: u32, payload: &[u8]) -> Vec<u8> {
    // Payloads of this side have some dozens of bytes.
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let sequence = sequence.to_le_bytes();
    [&HEADER[..], &[FORMAT, kind], &session, &sequence, &length.to_le_bytes(), payload].concat()
}

/// Packet outside of a session.
pub(super) fn plain(kind: Payload, payload: &[u8]) -> Vec<u8> {
    packet(kind as u8, [0; 4], 0, payload)
}

/// Payload of a packet outside of a session, unless it is of another type.
pub(super) fn plain_payload(kind: Payload, packet: &[u8]) -> Option<&[u8]> {
    let (header, rest) = header(packet)?;
    (header.kind == kind as u8 && header.session == [0; 4]).then(|| rest.get(..header.length)).flatten()
}

/// Packet of a session, encrypted and authenticated.
pub(super) fn seal(
    keys: &SessionKeys,
    session: [u8; 4],
    sequence: u32,
    vector: &Block,
    message: &[u8],
) -> Vec<u8> {
    let kind = Payload::Message as u8 | ENCRYPTED | AUTHENTICATED;
    let mut packet = packet(kind, session, sequence, &keys.encrypt(vector, message));
    let mut pad = 0;
    while !(packet.len() - HEADER.len() + 2).is_multiple_of(4) {
        pad += 1;
        packet.push(0xff);
    }
    packet.extend([pad, NEXT_HEADER]);
    let code = keys.code(packet.get(HEADER.len()..).unwrap_or_default());
    packet.extend(code);
    packet
}

/// Sequence number and message of a packet of this session; none if it is not encrypted and authenticated
/// with these keys.
pub(super) fn open(keys: &SessionKeys, session: [u8; 4], packet: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (header, rest) = header(packet)?;
    if header.kind != Payload::Message as u8 | ENCRYPTED | AUTHENTICATED || header.session != session {
        return None;
    }
    let (before, code) = packet.split_at_checked(packet.len().checked_sub(keys.code_bytes())?)?;
    if !bool::from(keys.code(before.get(HEADER.len()..)?).ct_eq(code)) {
        return None;
    }
    // What the code covers has a payload of the stated length, and at least the two bytes behind it.
    let covered = rest.len().checked_sub(keys.code_bytes())?;
    let payload = rest.get(..header.length).filter(|_| header.length + 2 <= covered)?;
    Some((header.sequence, keys.decrypt(payload)?))
}

struct SessionHeader {
    kind: u8,
    session: [u8; 4],
    sequence: u32,
    length: usize,
}

/// Session header, and what is behind it.
fn header(packet: &[u8]) -> Option<(SessionHeader, &[u8])> {
    let [6, _, _, 7, rest @ ..] = packet else { return None };
    let (header, rest) = rest.split_first_chunk::<SESSION_HEADER_BYTES>()?;
    let [FORMAT, kind, s0, s1, s2, s3, q0, q1, q2, q3, low, high] = *header else { return None };
    let sequence = u32::from_le_bytes([q0, q1, q2, q3]);
    let length = usize::from(u16::from_le_bytes([low, high]));
    Some((SessionHeader { kind, session: [s0, s1, s2, s3], sequence, length }, rest))
}

/// Command to the controller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command<'a> {
    pub(super) netfn: u8,
    /// Logical unit of the controller.
    pub(super) unit: u8,
    pub(super) command: u8,
    pub(super) data: &'a [u8],
}

impl Command<'_> {
    /// Message with the number 0 to 63, which the answer has, too.
    pub(super) fn message(&self, number: u8) -> Vec<u8> {
        let first = [CONTROLLER, self.netfn << 2 | self.unit];
        let second = [&[SOFTWARE, number << 2, self.command], self.data].concat();
        [&first[..], &[checksum(&first)], &second, &[checksum(&second)]].concat()
    }

    /// Completion code and data of the answer to the message of this number; none for any other message.
    pub(super) fn answer<'m>(&self, number: u8, message: &'m [u8]) -> Option<&'m [u8]> {
        let (first, second) = message.split_at_checked(3)?;
        let &[SOFTWARE, netfn, _] = first else { return None };
        let [CONTROLLER, n, command, answer @ .., _] = second else { return None };
        let is_whole = [first, second].iter().all(|part| checksum(part) == 0) && !answer.is_empty();
        let is_for = netfn >> 2 == self.netfn | 1 && n >> 2 == number && *command == self.command;
        (is_whole && is_for).then_some(answer)
    }
}

/// Byte that makes the sum of all bytes 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte))
}
