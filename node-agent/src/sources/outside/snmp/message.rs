//! Requests of SNMP as bytes. Pure.

use super::object_id::ObjectId;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const NULL: [u8; 2] = [0x05, 0];
const OBJECT_ID: u8 = 0x06;

/// Longest answer that this side takes: what UDP can carry.
const ANSWER_BYTES: i64 = 65_507;

/// Flag of a message whose errors the agent reports.
const REPORTABLE: u8 = 4;

/// User-based security.
const SECURITY_MODEL: i64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    /// Up to so many objects behind each identifier.
    GetBulk(u8),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) id: i32,
    pub(super) operation: Operation,
    pub(super) objects: &'a [ObjectId],
}

impl Request<'_> {
    /// Message of version 2c.
    pub(super) fn with_community(&self, community: &[u8]) -> Vec<u8> {
        element(SEQUENCE, &[integer(1), element(OCTETS, &[community]), self.pdu()])
    }

    /// Message of version 3 without authentication, for the engine with this id.
    pub(super) fn without_authentication(&self, engine_id: &[u8], user: &[u8]) -> Vec<u8> {
        let header = [
            integer(self.id.into()),
            integer(ANSWER_BYTES),
            element(OCTETS, &[[REPORTABLE]]),
            integer(SECURITY_MODEL),
        ];
        let octets = |content: &[u8]| element(OCTETS, &[content]);
        let of_user = [octets(engine_id), integer(0), integer(0), octets(user), octets(b""), octets(b"")];
        let scoped = [octets(engine_id), octets(b""), self.pdu()];
        let parts = [
            integer(3),
            element(SEQUENCE, &header),
            octets(&element(SEQUENCE, &of_user)),
            element(SEQUENCE, &scoped),
        ];
        element(SEQUENCE, &parts)
    }

    fn pdu(&self) -> Vec<u8> {
        let (tag, repetitions) = match self.operation {
            Operation::Get => (0xa0, 0),
            Operation::GetBulk(repetitions) => (0xa5, repetitions),
        };
        let variable =
            |object: &ObjectId| element(SEQUENCE, &[element(OBJECT_ID, &[object.to_bytes()]), NULL.to_vec()]);
        let variables: Vec<Vec<u8>> = self.objects.iter().map(variable).collect();
        let parts =
            [integer(self.id.into()), integer(0), integer(repetitions.into()), element(SEQUENCE, &variables)];
        element(tag, &parts)
    }
}

pub(super) fn element<T: AsRef<[u8]>>(tag: u8, parts: &[T]) -> Vec<u8> {
    let content_bytes: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    let mut bytes = vec![tag];
    match u8::try_from(content_bytes) {
        Ok(short) if short < 0x80 => bytes.push(short),
        Ok(_) | Err(_) => {
            let length = content_bytes.to_be_bytes();
            let zeros = length.iter().take_while(|byte| **byte == 0).count();
            let (_, digits) = length.split_at(zeros);
            bytes.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            bytes.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part.as_ref()));
    bytes
}

/// Integer in as few bytes as have its sign.
pub(super) fn integer(value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let is_filler = |pair: &[u8]| {
        matches!(pair, [0, next] if *next < 0x80) || matches!(pair, [0xff, next] if *next >= 0x80)
    };
    let fillers = bytes.windows(2).take_while(|pair| is_filler(pair)).count();
    let (_, digits) = bytes.split_at(fillers);
    element(INTEGER, &[digits])
}

#[cfg(test)]
mod tests {
    use snmp2::{MessageType, Pdu, Value};

    use super::*;

    #[test]
    fn another_implementation_reads_requests() {
        let objects: Vec<ObjectId> = (0..40)
            .map(|number| format!("1.3.6.1.2.1.31.1.1.1.6.{}", number << 20).parse().unwrap())
            .collect();
        for (operation, kind) in [
            (Operation::Get, MessageType::GetRequest),
            (Operation::GetBulk(200), MessageType::GetBulkRequest),
        ] {
            for id in [0, 1, 127, 128, -1, -129, i32::MAX, i32::MIN] {
                let bytes = Request { id, operation, objects: &objects }.with_community(b"public");
                let pdu = Pdu::from_bytes(&bytes).unwrap();
                assert_eq!((pdu.community, pdu.message_type, pdu.req_id), (&b"public"[..], kind, id));
                let repetitions = if operation == Operation::Get { 0 } else { 200 };
                assert_eq!((pdu.error_status, pdu.error_index), (0, repetitions));
                let asked = pdu.varbinds.map(|(id, value)| {
                    assert!(matches!(value, Value::Null));
                    ObjectId::from_bytes(id.as_bytes()).unwrap()
                });
                assert_eq!(asked.collect::<Vec<_>>(), objects);
            }
        }
    }
}
