//! Messages of generic netlink for taskstats. Source: `Documentation/accounting/taskstats.rst`,
//! `include/uapi/linux/netlink.h`, `genetlink.h` and `taskstats.h` of Linux. Pure.

use super::record::{Record, array};

/// Family of the controller, which knows the numbers of the other families.
pub(super) const CONTROLLER: u16 = 16;

/// Type of an answer that is an error, or 0 for success.
const ERROR: u16 = 2;

const REQUEST_AND_ACK: u16 = 1 | 4;
const HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// Bits of an attribute's type that are no flags.
const TYPE_MASK: u16 = 0x3fff;

/// Asks for the number of the family `TASKSTATS`.
pub(super) fn family_request() -> Vec<u8> {
    const GET_FAMILY: u8 = 3;
    const FAMILY_NAME: u16 = 2;
    message(CONTROLLER, GET_FAMILY, FAMILY_NAME, b"TASKSTATS\0")
}

/// Asks for the records of all threads that end on these CPUs: `0-3`.
pub(super) fn register_request(family: u16, cpus: &str) -> Vec<u8> {
    const GET: u8 = 1;
    const REGISTER_CPUMASK: u16 = 3;
    message(family, GET, REGISTER_CPUMASK, &[cpus.as_bytes(), b"\0"].concat())
}

fn message(family: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
    let mut body = vec![command, 1, 0, 0];
    body.extend(length(ATTRIBUTE_HEADER_BYTES + value.len()).to_ne_bytes());
    body.extend(attribute.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    let mut message = Vec::new();
    message.extend(u32::from(length(HEADER_BYTES + body.len())).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    // The sequence number and the port of the sender are not needed: there is one request at a time.
    message.extend([0; 8]);
    message.extend(body);
    message
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done(Result<(), i32>),
    Family(u16),
    Ended(Box<Record>),
    Unreadable,
}

/// Answers in received bytes. What is of another kind is left out.
pub(super) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((header, _)) = bytes.split_at_checked(HEADER_BYTES) {
        let length = array(header, 0)
            .map(u32::from_ne_bytes)
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0);
        let kind = array(header, 4).map_or(0, u16::from_ne_bytes);
        let Some(body) = bytes.get(HEADER_BYTES..length) else { break };
        if kind == ERROR {
            let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
            answers.push(Answer::Done(if code == 0 { Ok(()) } else { Err(code.saturating_neg()) }));
        } else if let Some(attributes) = body.get(GENERIC_HEADER_BYTES..) {
            add_answers(kind, attributes, &mut answers);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

fn add_answers(kind: u16, bytes: &[u8], answers: &mut Vec<Answer>) {
    const FAMILY_ID: u16 = 1;
    const STATS: u16 = 3;
    /// A thread and its record. The sum over a process, number 5, has the delays only.
    const AGGREGATE_PID: u16 = 4;
    for (attribute, value) in Attributes(bytes) {
        match (kind, attribute) {
            (CONTROLLER, FAMILY_ID) => {
                answers.extend(array(value, 0).map(u16::from_ne_bytes).map(Answer::Family))
            }
            (CONTROLLER, _) => {}
            (_, AGGREGATE_PID) => {
                let record = Attributes(value).find(|(attribute, _)| *attribute == STATS);
                let record = record.and_then(|(_, record)| Record::parse(record));
                answers.push(record.map_or(Answer::Unreadable, |record| Answer::Ended(Box::new(record))));
            }
            (_, _) => {}
        }
    }
}

/// Attributes in bytes: type and value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(array(self.0, 0)?));
        let kind = u16::from_ne_bytes(array(self.0, 2)?) & TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER_BYTES..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}
