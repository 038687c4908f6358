//! A stand-in for a management controller with IPMI 2.0 over UDP, which also answers wrongly. FreeIPMI reads
//! it in the tests, too: what it says is IPMI for others.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use aes::Aes128;
use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2_10::Sha256;

const GUID: [u8; 16] = *b"stand-in-of-bmc!";
const NUMBER: [u8; 16] = [0x5a; 16];
const VECTOR: [u8; 16] = [0xa5; 16];

/// How the stand-in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Honest,
    /// The code of each message of a session is wrong.
    WrongIntegrity,
    /// Messages of a session are in the clear, and nobody has signed them.
    Unsigned,
    /// The same first answer again and again.
    Replay,
    /// All packets end after so many bytes.
    CutOff(usize),
    /// Each packet states this length of its payload.
    Length(u16),
    /// Behind the last record comes the first one.
    EndlessRecords,
    /// Records have no end, and each has a new id.
    NewRecords,
    /// Parts of records are longer than asked.
    LongParts,
    /// The records change all the time.
    ChangingRecords,
    /// It proves that it knows another password.
    OtherPassword,
    /// It has no session left.
    Busy,
    /// It takes another suite than was asked for.
    OtherSuite,
    /// It knows cipher suite 3 only.
    Suite3Only,
    /// Datagrams of 60,000 bytes before each answer.
    Flood,
    Silent,
}

#[derive(Debug, Clone)]
pub struct BmcSensor {
    pub number: u8,
    pub name: &'static str,
    /// Format in the two highest bits, percent in the lowest.
    pub units: u8,
    pub base_unit: u8,
    pub factor: i16,
    pub offset: i16,
    pub exponent: i8,
    pub offset_exponent: i8,
    /// None while the sensor is not available.
    pub reading: Option<u8>,
}

impl BmcSensor {
    /// Record of the sensor without the length of its name beyond 31 bytes.
    pub fn record(&self) -> Vec<u8> {
        let [factor, factor_high] = self.factor.to_le_bytes();
        let [offset, offset_high] = self.offset.to_le_bytes();
        let mut record = vec![0; 48];
        record[..4].copy_from_slice(&[self.number, 0, 0x51, 1]);
        record[4] = u8::try_from(43 + self.name.len()).unwrap();
        record[5..14].copy_from_slice(&[0x20, 0, self.number, 3, 1, 0x7f, 0x68, 1, 1]);
        record[20..22].copy_from_slice(&[self.units, self.base_unit]);
        record[24..28].copy_from_slice(&[factor, factor_high << 6, offset, offset_high << 6]);
        record[29] = self.exponent.cast_unsigned() << 4 | self.offset_exponent.cast_unsigned() & 0xf;
        record[47] = 0xc0 | u8::try_from(self.name.len()).unwrap();
        record.extend(self.name.bytes());
        record
    }
}

#[derive(Debug)]
pub struct BmcState {
    pub manner: Manner,
    /// None if it does not measure power.
    pub watts: Option<u16>,
    pub sensors: Vec<BmcSensor>,
    pub password: String,
    sessions: BTreeMap<u32, Session>,
    next_id: u32,
    first_answer: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Session {
    is_sha256: bool,
    console_id: [u8; 4],
    console_number: Vec<u8>,
    role_and_user: Vec<u8>,
    session_key: Vec<u8>,
    sent: u32,
}

#[derive(Debug)]
pub struct Bmc {
    /// `127.0.0.1:PORT`.
    pub address: String,
    pub state: Arc<Mutex<BmcState>>,
    pub packets: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bmc {
    /// Starts one for the user `monitor` with this password.
    pub fn start(password: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(BmcState {
            manner: Manner::Honest,
            watts: Some(220),
            sensors: Vec::new(),
            password: password.to_owned(),
            sessions: BTreeMap::new(),
            next_id: 0x1000,
            first_answer: None,
        }));
        let (is_stopped, packets) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted, shared) = (Arc::clone(&is_stopped), Arc::clone(&packets), Arc::clone(&state));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Relaxed) {
                let Ok((bytes, peer)) = socket.recv_from(&mut buffer) else { continue };
                counted.fetch_add(1, Relaxed);
                for datagram in shared.lock().unwrap().answers(&buffer[..bytes]) {
                    socket.send_to(&datagram, peer).unwrap();
                }
            }
        });
        Self { address, state, packets, is_stopped, thread: Some(thread) }
    }

    pub fn sessions(&self) -> usize {
        self.state.lock().unwrap().sessions.len()
    }

    /// Forgets all sessions, as a restart does.
    pub fn restart(&self) {
        self.state.lock().unwrap().sessions.clear();
    }

    pub fn change(&self, change: impl FnOnce(&mut BmcState)) {
        change(&mut self.state.lock().unwrap());
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn code(is_sha256: bool, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    fn of<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut mac = <M as Mac>::new_from_slice(key).unwrap();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().to_vec()
    }
    if is_sha256 { of::<Hmac<Sha256>>(key, parts) } else { of::<Hmac<Sha1>>(key, parts) }
}

impl Session {
    fn short_code(&self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut code = code(self.is_sha256, key, parts);
        code.truncate(if self.is_sha256 { 16 } else { 12 });
        code
    }

    fn cipher_key(&self) -> [u8; 16] {
        code(self.is_sha256, &self.session_key, &[&[2; 20]])[..16].try_into().unwrap()
    }

    fn decrypt(&self, payload: &[u8]) -> Vec<u8> {
        let cipher = cbc::Decryptor::<Aes128>::new_from_slices(&self.cipher_key(), &payload[..16]).unwrap();
        let mut message = cipher.decrypt_padded_vec_mut::<NoPadding>(&payload[16..]).unwrap();
        let pad = usize::from(message.pop().unwrap());
        message.truncate(message.len() - pad);
        message
    }

    fn seal(&self, message: &[u8]) -> Vec<u8> {
        let mut padded = message.to_vec();
        let pad = u8::try_from(15 - message.len() % 16).unwrap();
        padded.extend((1..=pad).chain([pad]));
        let cipher = cbc::Encryptor::<Aes128>::new_from_slices(&self.cipher_key(), &VECTOR).unwrap();
        let payload = [&VECTOR[..], &cipher.encrypt_padded_vec_mut::<NoPadding>(&padded)].concat();
        let mut packet = packet(0xc0, self.console_id, self.sent, &payload);
        // Both parts are multiples of four: two bytes of padding, their number, and the next header.
        packet.extend([0xff, 0xff, 2, 7]);
        let key = code(self.is_sha256, &self.session_key, &[&[1; 20]]);
        let code = self.short_code(&key, &[&packet[4..]]);
        [packet, code].concat()
    }
}

fn packet(kind: u8, session: [u8; 4], sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_le_bytes();
    [&[6, 0, 0xff, 7, 6, kind][..], &session, &sequence.to_le_bytes(), &length, payload].concat()
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte))
}

impl BmcState {
    fn answers(&mut self, received: &[u8]) -> Vec<Vec<u8>> {
        let Some(mut answer) = self.answer(received) else { return Vec::new() };
        if self.manner == Manner::Silent {
            return Vec::new();
        }
        if let Manner::CutOff(bytes) = self.manner {
            answer.truncate(bytes);
        }
        if let Manner::Length(length) = self.manner {
            answer[14..16].copy_from_slice(&length.to_le_bytes());
        }
        if self.manner == Manner::Flood {
            return vec![vec![7; 60_000], vec![6; 60_000], answer];
        }
        vec![answer]
    }

    fn answer(&mut self, received: &[u8]) -> Option<Vec<u8>> {
        if received.len() < 16 || received[4] != 6 {
            return received.get(4).filter(|format| **format == 0).and_then(|_| capabilities(received));
        }
        let (kind, session) = (received[5], u32::from_le_bytes(received[6..10].try_into().unwrap()));
        let length = usize::from(u16::from_le_bytes([received[14], received[15]]));
        let payload = &received[16..16 + length];
        match kind & 0x3f {
            0x10 => Some(packet(0x11, [0; 4], 0, &self.opened(payload))),
            0x12 => Some(packet(0x13, [0; 4], 0, &self.second(payload)?)),
            0x14 => Some(packet(0x15, [0; 4], 0, &self.fourth(payload)?)),
            _ => {
                let message = self.sessions.get(&session)?.decrypt(payload);
                let answer = self.message(session, &message);
                self.sealed(session, &answer)
            }
        }
    }

    fn opened(&mut self, request: &[u8]) -> Vec<u8> {
        let (tag, console_id) = (request[0], &request[4..8]);
        let is_sha256 = request[12] == 3;
        let mut status = 0;
        if self.manner == Manner::Busy {
            status = 1;
        } else if self.manner == Manner::Suite3Only && is_sha256 {
            status = 0x11;
        }
        if status != 0 {
            return [&[tag, status, 0, 0], console_id].concat();
        }
        let id = self.next_id;
        self.next_id += 1;
        let console_id: [u8; 4] = console_id.try_into().unwrap();
        let session = Session { is_sha256, console_id, ..Session::default() };
        self.sessions.insert(id, session);
        let mut algorithms = request[8..32].to_vec();
        if self.manner == Manner::OtherSuite {
            algorithms[12] = 0;
        }
        [&[tag, 0, request[1], 0][..], &console_id, &id.to_le_bytes(), &algorithms].concat()
    }

    fn second(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let id: [u8; 4] = request[4..8].try_into().unwrap();
        let session = self.sessions.get_mut(&u32::from_le_bytes(id))?;
        let user = &request[28..];
        session.console_number = request[8..24].to_vec();
        session.role_and_user = [&request[24..25], &[request[27]], user].concat();
        let head = |status| [&[request[0], status, 0, 0][..], &session.console_id].concat();
        if user != b"monitor" {
            return Some(head(0x0d));
        }
        let password = if self.manner == Manner::OtherPassword { "other" } else { &self.password };
        let parts: [&[u8]; 6] =
            [&session.console_id, &id, &session.console_number, &NUMBER, &GUID, &session.role_and_user];
        let proof = code(session.is_sha256, password.as_bytes(), &parts);
        Some([&head(0)[..], &NUMBER, &GUID, &proof].concat())
    }

    fn fourth(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let id: [u8; 4] = request[4..8].try_into().unwrap();
        let session = self.sessions.get_mut(&u32::from_le_bytes(id))?;
        let password = self.password.as_bytes();
        let parts: [&[u8]; 3] = [&NUMBER, &session.console_id, &session.role_and_user];
        let is_known = code(session.is_sha256, password, &parts) == request[8..];
        let status = if request[1] == 0 && is_known { 0 } else { 0x0f };
        let parts: [&[u8]; 3] = [&session.console_number, &NUMBER, &session.role_and_user];
        session.session_key = code(session.is_sha256, password, &parts);
        let proof = session.short_code(&session.session_key, &[&session.console_number, &id, &GUID]);
        let head = [&[request[0], status, 0, 0][..], &session.console_id].concat();
        Some(if status == 0 { [head, proof].concat() } else { head })
    }

    fn message(&mut self, session: u32, message: &[u8]) -> Vec<u8> {
        let (netfn, command) = (message[1] >> 2, message[5]);
        let data = &message[6..message.len() - 1];
        let answer = match (netfn, command) {
            (0x06, 0x3c) => {
                self.sessions.remove(&session);
                vec![0]
            }
            // Device id, and the privilege.
            (0x06, 0x01) => [&[0, 0x20, 1, 1, 0x10, 2, 0x80][..], &[0; 5]].concat(),
            (0x06, 0x3b) => vec![0, data[0]],
            (0x2c, 0x02) => self.power(),
            // Capabilities of DCMI: version 1.5, with power.
            (0x2c, 0x01) => vec![0, 0xdc, 1, 5, 2, 0, 1, 0],
            (0x0a, 0x20) => {
                let count = u16::try_from(self.sensors.len()).unwrap().to_le_bytes();
                [&[0, 0x51][..], &count, &[0xff, 0xff], &[1, 0, 0, 0, 1, 0, 0, 0], &[0x02]].concat()
            }
            (0x0a, 0x22) => vec![0, 1, 0],
            (0x0a, 0x23) => self.record_part(data),
            (0x04, 0x2d) => {
                let sensor = self.sensors.iter().find(|sensor| sensor.number == data[0]);
                match sensor.map(|sensor| sensor.reading) {
                    Some(Some(reading)) => vec![0, reading, 0x40, 0xc0],
                    Some(None) => vec![0, 0, 0x60],
                    None => vec![0xcb],
                }
            }
            _ => vec![0xc1],
        };
        let first = [message[3], (netfn | 1) << 2];
        let second = [&[0x20, message[4], command], &answer[..]].concat();
        [&first[..], &[checksum(&first)], &second, &[checksum(&second)]].concat()
    }

    fn power(&self) -> Vec<u8> {
        let Some(watts) = self.watts else { return vec![0xc1] };
        let watts = watts.to_le_bytes();
        [&[0, 0xdc][..], &watts, &watts, &watts, &watts, &[0x20, 0x5f, 0x3d, 0x65, 0xe8, 3, 0, 0, 0x40]]
            .concat()
    }

    fn record_part(&self, request: &[u8]) -> Vec<u8> {
        let asked = usize::from(u16::from_le_bytes([request[2], request[3]]));
        let has_number = |sensor: &BmcSensor| usize::from(sensor.number) == asked;
        let index = self.sensors.iter().position(has_number).unwrap_or(0);
        let Some(sensor) = self.sensors.get(index) else { return vec![0xcb] };
        let next = match (self.manner, self.sensors.get(index + 1)) {
            (Manner::ChangingRecords, _) => return vec![0xc5],
            (Manner::NewRecords, _) => u16::try_from(asked + 1).unwrap(),
            (_, Some(next)) => next.number.into(),
            (Manner::EndlessRecords, None) => self.sensors[0].number.into(),
            (_, None) => 0xffff,
        };
        let record = sensor.record();
        let (from, count) = (usize::from(request[4]), usize::from(request[5]));
        let to = if count == 0xff { record.len() } else { record.len().min(from + count) };
        let mut part = record[from.min(to)..to].to_vec();
        if self.manner == Manner::LongParts {
            part.resize(count + 1, 0);
        }
        [&[0][..], &next.to_le_bytes(), &part].concat()
    }

    fn sealed(&mut self, session: u32, message: &[u8]) -> Option<Vec<u8>> {
        // A closed session needs no answer.
        let session = self.sessions.get_mut(&session)?;
        session.sent += 1;
        let mut sealed = session.seal(message);
        if self.manner == Manner::Unsigned {
            return Some(packet(0, session.console_id, session.sent, message));
        }
        if self.manner == Manner::WrongIntegrity {
            *sealed.last_mut().unwrap() ^= 1;
        }
        if self.manner == Manner::Replay {
            return Some(self.first_answer.get_or_insert(sealed).clone());
        }
        Some(sealed)
    }
}

/// Answer of version 1.5, with which FreeIPMI begins: it has version 2.0, and users with names.
fn capabilities(received: &[u8]) -> Option<Vec<u8>> {
    let message = received.get(14..)?;
    let first = [message[3], 0x07 << 2];
    let second = [0x20, message[4], message[5], 0, 1, 0x80, 0x04, 0x02, 0, 0, 0, 0];
    let answer = [&first[..], &[checksum(&first)], &second, &[checksum(&second)]].concat();
    let length = u8::try_from(answer.len()).unwrap();
    Some([&[6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, length][..], &answer].concat())
}
