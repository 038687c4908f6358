//! A stand-in for an agent, which also answers wrongly. The end-to-end tests ask a real one.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::JoinHandle;

use proptest::prelude::*;
use snmp2::{MessageType, Pdu};

use super::message::{element, integer};
use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Long enough for a datagram on this machine, and short enough to wait for several times.
const SHORT: Duration = Duration::from_millis(300);

const END_OF_VIEW: &[u8] = &[0x82, 0];
const NO_INSTANCE: &[u8] = &[0x81, 0];

/// Encoded values by identifier.
type Objects = BTreeMap<ObjectId, Vec<u8>>;

/// Objects of an answer.
type Answer = Vec<(ObjectId, Vec<u8>)>;

struct StandIn {
    url: DeviceUrl,
    requests: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// `answer` returns the datagrams for a request.
    fn start(answer: impl Fn(&Pdu<'_>) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let url = format!("snmp://{}", socket.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let counted = Arc::clone(&requests);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stopped.load(Relaxed) {
                let Ok((bytes, peer)) = socket.recv_from(&mut buffer) else { continue };
                counted.fetch_add(1, Relaxed);
                for datagram in answer(&Pdu::from_bytes(&buffer[..bytes]).unwrap()) {
                    socket.send_to(&datagram, peer).unwrap();
                }
            }
        });
        Self { url, requests, is_stopped, thread: Some(thread) }
    }

    fn of(objects: Objects) -> Self {
        Self::start(move |request| vec![response(request.req_id, &answer(request, &objects))])
    }

    fn device(&self, timeout: Duration) -> Snmp {
        Snmp::new(&self.url, timeout, None).unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn id(text: &str) -> ObjectId {
    text.parse().unwrap()
}

fn response(id: i32, objects: &[(ObjectId, Vec<u8>)]) -> Vec<u8> {
    message(b"public", 0xa2, id, 0, objects)
}

fn message(community: &[u8], tag: u8, id: i32, status: i64, objects: &[(ObjectId, Vec<u8>)]) -> Vec<u8> {
    let variable =
        |(id, value): &(ObjectId, Vec<u8>)| element(0x30, &[element(6, &[id.to_bytes()]), value.clone()]);
    let variables: Vec<Vec<u8>> = objects.iter().map(variable).collect();
    let pdu = [integer(id.into()), integer(status), integer(0), element(0x30, &variables)];
    element(0x30, &[integer(1), element(4, &[community]), element(tag, &pdu)])
}

fn asked(request: &Pdu<'_>) -> Vec<ObjectId> {
    request.varbinds.clone().map(|(id, _)| ObjectId::from_bytes(id.as_bytes()).unwrap()).collect()
}

fn answer(request: &Pdu<'_>, objects: &Objects) -> Answer {
    let asked = asked(request);
    if request.message_type == MessageType::GetRequest {
        let value = |id: &ObjectId| objects.get(id).cloned().unwrap_or(NO_INSTANCE.to_vec());
        return asked.iter().map(|id| (id.clone(), value(id))).collect();
    }
    let behind = objects.iter().filter(|(id, _)| **id > asked[0]);
    let mut found: Vec<_> = behind.map(|(id, value)| (id.clone(), value.clone())).collect();
    found.truncate(request.error_index as usize);
    if found.is_empty() {
        found.push((asked[0].clone(), END_OF_VIEW.to_vec()));
    }
    found
}

fn octets(text: &str) -> Vec<u8> {
    element(4, &[text])
}

fn counter64(value: u64) -> Vec<u8> {
    element(0x46, &[value.to_be_bytes()])
}

fn counter32(value: u32) -> Vec<u8> {
    element(0x41, &[value.to_be_bytes()])
}

fn metric(name: &'static str, address: &str) -> DeviceMetric {
    DeviceMetric::new(MetricName::new(name).unwrap(), address.to_owned())
}

fn switch() -> Objects {
    let mut objects = Objects::new();
    for (port, name) in [(1, "Ethernet1"), (2, "Ethernet2"), (40_000, "mgmt0")] {
        objects.insert(id(&format!("1.3.6.1.2.1.31.1.1.1.1.{port}")), octets(name));
        objects.insert(id(&format!("1.3.6.1.2.1.31.1.1.1.6.{port}")), counter64(u64::MAX - port));
        objects.insert(id(&format!("1.3.6.1.2.1.2.2.1.16.{port}")), counter32(u32::MAX));
    }
    for (sensor, of_type, scale, precision, value) in
        [(5, 6, 9, 1, 2_215), (6, 8, 8, 0, 31_500), (7, 6, 8, 0, -5)]
    {
        let columns = [of_type, scale, precision, value];
        for (column, number) in (1..).zip(columns) {
            objects.insert(id(&format!("1.3.6.1.2.1.99.1.1.1.{column}.{sensor}")), integer(number));
        }
    }
    objects.insert(id("1.3.6.1.2.1.47.1.1.1.1.7.5"), octets("PSU 1 input"));
    objects.insert(id("1.3.6.1.4.1.318.1.7.0"), octets("98.5"));
    objects.insert(id(UPTIME), element(0x43, &[[1, 2]]));
    objects
}

/// Values by the labels of the series.
fn read(device: &mut Snmp, found: &[Found]) -> BTreeMap<String, (Number, DeviceValue)> {
    let wanted: Vec<&str> = found.iter().map(|found| &*found.address).collect();
    let mut numbers = vec![None; wanted.len()];
    device.read(&wanted, &mut numbers).unwrap();
    let label =
        |found: &Found| found.labels.first().map_or(String::new(), |(key, value)| format!("{key}={value}"));
    let scaled = |found: &Found, number| match number {
        Number::Whole(_) if found.factor == 1.0 => number,
        Number::Whole(_) | Number::Double(_) => Number::Double(number.to_f64() * found.factor),
    };
    let values = found.iter().zip(numbers);
    values
        .filter_map(|(found, number)| Some((label(found), (scaled(found, number?), found.of_type))))
        .collect()
}

#[test]
fn ports_sensors_and_named_objects_are_found_and_read() {
    let stand_in = StandIn::of(switch());
    let mut device = stand_in.device(LONG);
    let mut values = |address: &str| {
        let found = device.find(&[metric("x", address)]).unwrap();
        read(&mut device, &found)
    };
    let of = |values: &[(&str, Number, DeviceValue)]| {
        values.iter().map(|(label, number, kind)| ((*label).to_owned(), (*number, *kind))).collect()
    };
    let received = |port: u64| Number::Whole(u64::MAX - port);
    let expected: BTreeMap<_, _> = of(&[
        ("port=Ethernet1", received(1), DeviceValue::Count),
        ("port=Ethernet2", received(2), DeviceValue::Count),
        ("port=mgmt0", received(40_000), DeviceValue::Count),
    ]);
    assert_eq!(values("ports.receive"), expected);
    let sent = ["port=Ethernet1", "port=Ethernet2", "port=mgmt0"]
        .map(|port| (port, Number::Whole(u32::MAX.into()), DeviceValue::Count32));
    assert_eq!(values("ports.transmit"), of(&sent), "without the counter of 64 bits");
    let power = values("sensors.power");
    assert_eq!(power.keys().collect::<Vec<_>>(), ["sensor=7", "sensor=PSU 1 input"]);
    assert!((power["sensor=PSU 1 input"].0.to_f64() - 221.5).abs() < 1e-9);
    assert!((values("sensors.temperature")["sensor=6"].0.to_f64() - 31.5).abs() < 1e-9);
    assert_eq!(values("sensors.fan"), BTreeMap::new());
    let outlet = of(&[("", Number::Double(98.5), DeviceValue::Gauge)]);
    assert_eq!(values("1.3.6.1.4.1.318.1.7.0"), outlet);
    assert_eq!(values("1.3.6.1.4.1.318.1.*").keys().collect::<Vec<_>>(), ["index=7.0"]);
    assert_eq!(values("1.3.6.1.4.1.318.9.0"), BTreeMap::new());
    let offers = device.offers().unwrap();
    let addresses: Vec<&str> = offers.iter().map(|offer| offer.address.as_str()).collect();
    assert_eq!(addresses, ["ports.receive", "ports.transmit", "sensors.power", "sensors.temperature"]);
}

#[test]
fn many_objects_take_several_requests() {
    let objects = (1..=500).map(|port| (id(&format!("1.3.6.1.4.1.7.1.{port}")), counter64(port)));
    let stand_in = StandIn::of(objects.collect());
    let mut device = stand_in.device(LONG);
    let found = device.find(&[metric("x", "1.3.6.1.4.1.7.1.*")]).unwrap();
    assert_eq!((found.len(), read(&mut device, &found).len()), (500, 500));
    let before = stand_in.requests.load(Relaxed);
    read(&mut device, &found[..7]);
    assert_eq!(stand_in.requests.load(Relaxed) - before, 1, "only what is wanted is asked for");
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_in_parts() {
    let objects = switch();
    let stand_in = StandIn::start(move |request| {
        let is_big = asked(request).len() > 1 || request.error_index > 1;
        let objects = if is_big { Vec::new() } else { answer(request, &objects) };
        vec![message(b"public", 0xa2, request.req_id, i64::from(is_big), &objects)]
    });
    let mut device = stand_in.device(LONG);
    let found = device.find(&[metric("x", "ports.receive")]).unwrap();
    assert_eq!(read(&mut device, &found).len(), 3);
}

#[test]
fn answers_to_other_requests_are_passed_over() {
    let objects = switch();
    let stand_in = StandIn::start(move |request| {
        let right = answer(request, &objects);
        let wrong: Vec<_> = right.iter().map(|(id, _)| (id.clone(), counter64(666))).collect();
        vec![
            response(request.req_id.wrapping_sub(1), &wrong),
            response(request.req_id.wrapping_add(1), &wrong),
            message(b"private", 0xa2, request.req_id, 0, &wrong),
            message(b"public", 0xa0, request.req_id, 0, &wrong),
            response(request.req_id, &right),
        ]
    });
    let mut device = stand_in.device(LONG);
    let found = device.find(&[metric("x", "1.3.6.1.4.1.318.1.7.0")]).unwrap();
    assert_eq!(read(&mut device, &found)[""].0, Number::Double(98.5));
}

#[test]
fn values_of_other_objects_and_duplicates_are_no_values() {
    let stand_in = StandIn::start(|request| {
        let asked = asked(request);
        let twice = [(asked[0].clone(), counter64(7)), (asked[0].clone(), counter64(7))];
        let others = [(id("1.3.6.1.4.1.999.1"), counter64(666)), (id("1.3"), counter64(667))];
        vec![response(request.req_id, &[twice, others].concat())]
    });
    let mut device = stand_in.device(LONG);
    let objects = [id("1.3.6.1.4.1.7.1.0"), id("1.3.6.1.4.1.7.2.0")];
    let read = device.agent.get(&objects, value::number).unwrap();
    assert!(read.iter().all(|(object, (number, _))| *object == objects[0] && *number == Number::Whole(7)));
}

#[test]
fn a_walk_ends_whatever_the_device_answers() {
    let column = id("1.3.6.1.4.1.7.1");
    let walk = |answer: fn(&ObjectId) -> Answer| {
        let stand_in =
            StandIn::start(move |request| vec![response(request.req_id, &answer(&asked(request)[0]))]);
        let result = stand_in.device(LONG).agent.walk(&column, value::number).map(|read| read.len());
        (result, stand_in.requests.load(Relaxed))
    };
    let next = |asked: &ObjectId| {
        let behind = asked.below(&"1.3.6.1.4.1.7".parse().unwrap()).unwrap();
        let number = behind.get(1).copied().unwrap_or(0) + 1;
        vec![(id(&format!("1.3.6.1.4.1.7.1.{number}")), counter64(1))]
    };
    let (endless, requests) = walk(next);
    assert!(endless.is_ok_and(|read| read <= VALUES_MAX) && requests <= VALUES_MAX, "{requests}");
    let (same, requests) = walk(|_| vec![(id("1.3.6.1.4.1.7.1.5"), counter64(1)); 2]);
    assert!(matches!(same, Err(DeviceError::Malformed(_))) && requests == 1);
    let (back, _) =
        walk(|_| vec![(id("1.3.6.1.4.1.7.1.5"), counter64(1)), (id("1.3.6.1.4.1.7.1.4"), counter64(1))]);
    assert!(matches!(back, Err(DeviceError::Malformed(_))));
    assert_eq!(walk(|_| Vec::new()).0.ok(), Some(0));
    assert_eq!(walk(|asked| vec![(asked.clone(), END_OF_VIEW.to_vec())]).0.ok(), Some(0));
    assert_eq!(walk(|_| vec![(id("1.3.6.1.5"), counter64(1))]).0.ok(), Some(0));
}

#[test]
fn malformed_answers_are_errors() {
    let right = response(1, &[(id(UPTIME), counter64(7))]);
    let cut = (0..right.len()).map(|end| right[..end].to_vec());
    let lengths = (1..right.len()).map(|at| {
        let mut bytes = right.clone();
        bytes[at] = 0x84;
        bytes
    });
    for bytes in cut.chain(lengths).chain([vec![0xff; 65_000], vec![0x30, 0x80], b"HTTP/1.1 400".to_vec()]) {
        let sent = bytes.clone();
        let stand_in = StandIn::start(move |_| vec![sent.clone()]);
        let read = stand_in.device(SHORT).agent.get(&[id(UPTIME)], value::number);
        // Some are answers to another request, or have a value that is no number.
        assert!(read.as_ref().map_or(true, Vec::is_empty), "{bytes:?}: {read:?}");
    }
    let refusing = StandIn::start(|request| vec![message(b"public", 0xa2, request.req_id, 5, &[])]);
    let refused = refusing.device(LONG).agent.get(&[id(UPTIME)], value::number);
    assert!(matches!(refused, Err(DeviceError::Refused(_))), "{refused:?}");
}

#[test]
fn a_lost_answer_is_asked_for_again_and_a_dead_device_given_up() {
    let objects = switch();
    let lost = AtomicUsize::new(0);
    let stand_in = StandIn::start(move |request| {
        let is_lost = lost.fetch_add(1, Relaxed) == 0;
        if is_lost { Vec::new() } else { vec![response(request.req_id, &answer(request, &objects))] }
    });
    let mut device = stand_in.device(Duration::from_secs(4));
    assert_eq!(device.find(&[metric("x", UPTIME)]).unwrap().len(), 1);
    let silent = StandIn::start(|_| Vec::new());
    let error = silent.device(SHORT).find(&[metric("x", UPTIME)]);
    assert!(matches!(error, Err(DeviceError::Timeout)), "{error:?}");
    assert_eq!(silent.requests.load(Relaxed), 2);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }
}
