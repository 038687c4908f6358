//! Frames and messages of protocol version 2, stored as files: later revisions must decode them.
//!
//! `golden/NAME.bin` contains the bytes, `golden/NAME.json` their decoded contents. The bytes are built from
//! fixed data and must be identical; `POLYMETER_BLESS=1` writes the files again after an intended change of
//! the encoding. `decoder.py` was written from `docs/reference/protocol.md` alone and must decode each file
//! to the same contents.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;
#[path = "golden/json.rs"]
mod json;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use common::{Wire, batch_of, shape};
use json::Json;
use polymeter_proto::batch::{Batch, Column, Instant, Job, Shape};
use polymeter_proto::ledger::{
    Cause, Event, JobFacts, JobFactsUpdate, JobOwner, LedgerEntry, Mark, MarkKind, PlanChange,
    RequestRefused, Tally,
};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesDescriptor, SeriesId,
    SessionDescriptor, SessionId, ShapeDescriptor, ShapeId, Unit,
};
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

polymeter_test_harness::tests![
    golden_files_match_the_encoder_and_decode,
    document_explains_the_golden_bytes,
    second_decoder_agrees,
    second_decoder_refuses_invalid_frames,
];

fn main() -> std::process::ExitCode {
    polymeter_test_harness::run(&[TESTS])
}

const T0: i64 = 1_790_000_000_000_000;
const SESSION: SessionId = SessionId(0xfeed);
/// A session id that needs all 64 bits.
const LARGE_SESSION: SessionId = SessionId(0xfedc_ba98_7654_3210);

/// The direction of a frame or message. The bytes of a message do not contain it; it follows from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Frame,
    ToCollector,
    ToAgent,
}

/// One file: its name, its direction, and its bytes.
type Golden = (&'static str, Way, Vec<u8>);

/// Returns the tick `number` on the grid of `period_us`, `late_us` after its deadline.
fn tick(number: u64, period_us: u64, late_us: i64) -> Instant {
    let deadline = T0.cast_unsigned() / period_us + number;
    Instant { deadline: Some(deadline), time_us: (deadline * period_us).cast_signed() + late_us }
}

const fn out_of_turn(time_us: i64) -> Instant {
    Instant { deadline: None, time_us }
}

/// Returns frame 1 with these columns. All ticks are 14 µs after the deadlines of a period of 1 ms.
fn columns(number: Number, columns: &[&[u64]]) -> Vec<u8> {
    let shape = shape(1, 1_000, &vec![number; columns.len()]);
    let ticks = columns.first().map_or(0, |column| column.len());
    let row = |position: usize| {
        let values = columns.iter().map(|column| column.get(position).copied()).collect();
        (tick(position as u64, 1_000, 14), values)
    };
    Wire::default().encode(&batch_of(&shape, &(0..ticks).map(row).collect::<Vec<_>>()))
}

fn unsigned(of: &[&[u64]]) -> Vec<u8> {
    columns(Number::Unsigned, of)
}

fn floats(of: &[f64]) -> Vec<u8> {
    let bits: Vec<u64> = of.iter().map(|value| value.to_bits()).collect();
    columns(Number::Float, &[&bits])
}

/// Returns frame 1 with a column of nines at these instants.
fn instants(period_us: u64, instants: &[Instant]) -> Vec<u8> {
    let shape = shape(2, period_us, &[Number::Unsigned]);
    let rows: Vec<_> = instants.iter().map(|instant| (*instant, vec![Some(9)])).collect();
    Wire::default().encode(&batch_of(&shape, &rows))
}

/// Returns a generator of reproducible pseudo-random numbers.
fn noise(bits: u32) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> (64 - bits)
    }
}

/// Returns the readings of a clock that advances by 1 ms and some noise per tick, stops for a while, and
/// continues.
fn long_packed() -> Vec<u8> {
    let mut noise = noise(10);
    let mut at = 0;
    let clock: Vec<u64> = (0..300)
        .map(|tick| {
            at += if (129..=256).contains(&tick) { 5_000 } else { 1_000_000 + noise() };
            at
        })
        .collect();
    unsigned(&[&clock])
}

fn late_by_noise() -> Vec<u8> {
    let mut noise = noise(8);
    let ticks: Vec<Instant> =
        (0..150).map(|number| tick(number, 1_000, noise().cast_signed() - 100)).collect();
    instants(1_000, &ticks)
}

/// Ten columns, of which 1 and 8 are absent in some rows, and all in one row.
fn partial() -> Vec<u8> {
    let shape = shape(3, 1_000, &[Number::Unsigned; 10]);
    let row = |number: u64| {
        let present = |column: u64| match number {
            2 | 3 => column != 1 && column != 8,
            4 => false,
            _ => true,
        };
        let values = (0..10).map(|column| present(column).then_some(column * 100 + number)).collect();
        (tick(number, 1_000, 14), values)
    };
    Wire::default().encode(&batch_of(&shape, &(0..6).map(row).collect::<Vec<_>>()))
}

/// One shape on the grid, interrupted by a read outside of the grid, and another shape.
fn several_blocks() -> Vec<u8> {
    let first = shape(1, 1_000, &[Number::Unsigned, Number::Float]);
    let second = shape(70_000, 500_000, &[Number::Signed]);
    let mut batch = Batch::default();
    let (a, b) = (batch.add_shape(&first), batch.add_shape(&second));
    let float = |number: u32| (f64::from(number) / 4.0).to_bits();
    for number in 0..4 {
        let values = [Some(u64::from(number) * 4096), Some(float(number))];
        batch.push(a, tick(u64::from(number), 1_000, 20), values.into_iter()).unwrap();
    }
    batch.push(b, tick(0, 500_000, 9), [Some((-5_i64).cast_unsigned())].into_iter()).unwrap();
    batch.push(a, out_of_turn(T0 + 3_700), [Some(1), Some(float(1))].into_iter()).unwrap();
    batch.push(a, tick(4, 1_000, 21), [Some(5), Some(float(5))].into_iter()).unwrap();
    let mut bytes = Vec::new();
    Encoder::default().encode(&mut bytes, LARGE_SESSION, 300, &batch, Extras::default()).unwrap();
    bytes
}

fn session_descriptor() -> SessionDescriptor {
    SessionDescriptor {
        node: "node17".try_into().unwrap(),
        agent_version: "0.1.0".try_into().unwrap(),
        started_us: T0 - 1,
    }
}

fn jobs() -> [Job; 2] {
    [
        JobDescriptor {
            job_id: "4711".try_into().unwrap(),
            cluster: Some("grisou".try_into().unwrap()),
            owner_uid: Some(100_000),
            owner: Some("zoë".try_into().unwrap()),
            started_us: T0,
        },
        JobDescriptor {
            job_id: "4712_[3]".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: -1,
        },
    ]
    .map(|descriptor| Job { handle: JobHandle(if descriptor.started_us < 0 { 251 } else { 1 }), descriptor })
}

/// Entries of every kind, unit, kind of metric and number.
fn dictionary() -> Vec<Entry> {
    let units = [
        Unit::Bytes,
        Unit::Nanoseconds,
        Unit::Percent,
        Unit::Pages,
        Unit::Sectors,
        Unit::Cycles,
        Unit::Count,
    ];
    let metric = |(id, unit): (u32, &Unit)| {
        let (kind, number) = match id % 3 {
            0 => (Kind::Counter, Number::Unsigned),
            1 => (Kind::Gauge, Number::Signed),
            _ => (Kind::Gauge, Number::Float),
        };
        let name = MetricName::new(format!("test.{}", unit.as_str())).unwrap();
        Entry::Metric(MetricId(id), MetricDescriptor { name, unit: *unit, kind, number })
    };
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let series = |id, metric, job: Option<u32>, labels| {
        let labels = Labels::new(labels).unwrap();
        let descriptor = SeriesDescriptor { metric: MetricId(metric), job: job.map(JobHandle), labels };
        Entry::Series(SeriesId(id), descriptor)
    };
    let mut entries = vec![Entry::Session(session_descriptor())];
    entries.extend((0..).zip(&units).map(metric));
    entries.extend(jobs().map(|job| Entry::Job(job.handle, job.descriptor)));
    entries.extend([
        series(0, 0, None, vec![]),
        series(250, 1, Some(1), vec![label("cpu", "3"), label("node", "1")]),
        series(251, 6, Some(251), vec![label("device", "dm-0 größe")]),
        series(65_536, 2, Some(251), vec![]),
        Entry::Shape(
            ShapeId(u32::MAX),
            ShapeDescriptor {
                source: "proc/stat".try_into().unwrap(),
                series: [0, 250, 251, 65_536].map(SeriesId).into(),
            },
        ),
        Entry::Shape(ShapeId(0), ShapeDescriptor { source: "größe".try_into().unwrap(), series: vec![] }),
    ]);
    entries
}

/// Returns the first frame of a session, as an agent sends it: session, dictionary and samples.
fn first_frame() -> Vec<u8> {
    let name = MetricName::new("memory.current").unwrap();
    let metric = MetricDescriptor { name, unit: Unit::Bytes, kind: Kind::Gauge, number: Number::Unsigned };
    let column = Column { series: SeriesId(1), metric: (MetricId(1), metric), labels: Labels::default() };
    let [job, _] = jobs();
    let period = Period::SECOND;
    let source = "memory.stat".try_into().unwrap();
    let shape =
        Arc::new(Shape { id: ShapeId(1), job: Some(Arc::new(job)), source, period, columns: vec![column] });
    let mut wire = Wire::default();
    let mut entries = vec![Entry::Session(session_descriptor())];
    wire.announced.announce(&shape, &mut entries);
    let rows = [(tick(0, 1_000_000, 14), vec![Some(8192)]), (tick(1, 1_000_000, 15), vec![Some(12288)])];
    wire.encode_with(&batch_of(&shape, &rows), Extras { dictionary: &entries, ..Extras::default() })
}

fn ledger() -> Vec<LedgerEntry> {
    let entry = |job: Option<u32>, source: &str, tally| LedgerEntry {
        job: job.map(JobHandle),
        source: source.try_into().unwrap(),
        tally,
    };
    vec![
        entry(None, "meminfo", Tally::default()),
        entry(
            Some(1),
            "memory.stat",
            Tally { due: 250, taken: 251, late: 65_535, missed: 65_536, absent: 1 << 32, dropped: u64::MAX },
        ),
    ]
}

fn events() -> Vec<Event> {
    let change = |cause, old: Option<u64>, new: Option<u64>| PlanChange {
        at_us: T0,
        job: None,
        metric: MetricName::new("cpu.usage").unwrap(),
        old: old.map(|period_us| Period::from_micros(period_us).unwrap()),
        new: new.map(|period_us| Period::from_micros(period_us).unwrap()),
        cause,
        by: None,
        until_us: None,
    };
    vec![
        Event::PlanChange(change(Cause::Baseline, None, Some(1_000_000))),
        Event::PlanChange(PlanChange {
            job: Some(JobHandle(1)),
            by: Some("zoë".try_into().unwrap()),
            until_us: Some(T0 + 60_000_000),
            ..change(Cause::Registration, Some(1_000_000), Some(100))
        }),
        Event::PlanChange(change(Cause::JobEnd, Some(86_400_000_000), None)),
        Event::PlanChange(change(Cause::Reload, Some(100), Some(86_400_000_000))),
        Event::PlanChange(change(Cause::Governor, Some(1_000), Some(2_000))),
        Event::JobEnded { job: JobHandle(1), at_us: -1 },
        Event::Mark(Mark {
            at_us: T0 + 1,
            job: Some(JobHandle(1)),
            name: "solver".try_into().unwrap(),
            kind: MarkKind::Begin,
            by: Some("uid 1000".try_into().unwrap()),
        }),
        Event::JobFacts(JobFactsUpdate {
            job: JobHandle(1),
            is_over: false,
            facts: JobFacts {
                account: Some("physics".try_into().unwrap()),
                queue: Some("long".try_into().unwrap()),
                nodes: Some("n[1-2]".try_into().unwrap()),
                cores: Some(256),
                ..JobFacts::default()
            },
        }),
        Event::JobFacts(JobFactsUpdate {
            job: JobHandle(1),
            is_over: true,
            facts: JobFacts {
                state: Some("FAILED".try_into().unwrap()),
                exit_code: Some(3),
                exit_signal: Some(0),
                ..JobFacts::default()
            },
        }),
    ]
}

/// The kinds of events that were added later.
fn events_of_jobs() -> Vec<Event> {
    let refused = |request: &str, period: Option<u64>, reason: &str| {
        Event::RequestRefused(RequestRefused {
            at_us: T0 + 2,
            job: JobHandle(1),
            request: request.into(),
            period: period.map(|period_us| Period::from_micros(period_us).unwrap()),
            by: Some("uid 1000".try_into().unwrap()),
            reason: reason.into(),
        })
    };
    vec![
        Event::JobOwner(JobOwner {
            job: JobHandle(1),
            uid: Some(100_000),
            name: Some("zoë".try_into().unwrap()),
        }),
        Event::JobOwner(JobOwner { job: JobHandle(251), uid: Some(0), name: None }),
        refused("cpu.*", Some(100), "the shortest period allowed is 10ms"),
        refused("faster", None, "it names no period"),
    ]
}

fn frame_of_extras(dictionary: &[Entry], ledger: &[LedgerEntry], events: &[Event]) -> Vec<u8> {
    Wire::default().encode_with(&Batch::default(), Extras { dictionary, ledger, events })
}

fn modes() -> Vec<Golden> {
    const EXTREMES: [u64; 9] = [0, u64::MAX, 0, 1 << 63, (1 << 63) - 1, 1, 1 << 62, u64::MAX - 1, 1 << 31];
    let zeros: &[u64] = &[0; 3];
    let (a, b): (&[u64], &[u64]) = (&[5, 6, 8], &[1, 1, 4]);
    let far: Vec<&[u64]> = [a].into_iter().chain([zeros; 40]).chain([a]).collect();
    let frame = |name, bytes| (name, Way::Frame, bytes);
    vec![
        frame("zeros", unsigned(&[zeros; 40])),
        frame("constant", unsigned(&[&[28_672; 4]])),
        frame("copy", unsigned(&[a, b, a, b, a, b])),
        frame("copy_far", unsigned(&far)),
        frame("runs", unsigned(&[&[100, 100, 100, 101, 99, 99]])),
        frame("runs_of_pages", unsigned(&[&[8_192, 12_288, 12_288, 4_096]])),
        frame("packed", unsigned(&[&[1_000, 2_003, 3_010, 4_011, 5_025, 6_026, 7_032, 8_041, 9_042]])),
        frame("packed_long", long_packed()),
        frame("level_runs", instants(1_000, &[14, 15, 14, 14, 16].map_ticks(1_000))),
        frame("level_packed", instants(1_000, &[14, 19, 17, 12, 16, 20, 13, 18, 15].map_ticks(1_000))),
        frame("level_packed_long", late_by_noise()),
        frame("xor", floats(&[20.5, 20.5, 20.5, 21.0, 20.5])),
        frame(
            "floats",
            floats(&[
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                5e-324,
                f64::MAX,
                -1.5,
                0.1,
                0.1,
            ]),
        ),
        frame("extremes", unsigned(&[&EXTREMES, &[u64::MAX; 9], &EXTREMES])),
        frame("extremes_float", columns(Number::Float, &[&EXTREMES])),
    ]
}

/// Converts the latenesses of successive ticks to instants.
trait MapTicks {
    fn map_ticks(&self, period_us: u64) -> Vec<Instant>;
}

impl<const N: usize> MapTicks for [i64; N] {
    fn map_ticks(&self, period_us: u64) -> Vec<Instant> {
        (0..).zip(self).map(|(number, late_us)| tick(number, period_us, *late_us)).collect()
    }
}

fn times() -> Vec<Golden> {
    let frame = |name, bytes| (name, Way::Frame, bytes);
    let with_gaps = [0, 1, 2, 5, 6].map(|number| tick(number, 1_000, 14));
    let extremes = [T0, i64::MIN, i64::MAX, 0, -1].map(out_of_turn);
    vec![
        frame("one_tick", instants(1_000, &[tick(0, 1_000, 14)])),
        frame("missing_deadlines", instants(1_000, &with_gaps)),
        frame(
            "out_of_turn",
            instants(1_000, &[out_of_turn(T0), out_of_turn(T0 + 1_500), out_of_turn(T0 - 7)]),
        ),
        frame("out_of_turn_extremes", instants(1_000, &extremes)),
        frame("partial", partial()),
        frame("several_blocks", several_blocks()),
    ]
}

fn extras() -> Vec<Golden> {
    let frame = |name, bytes| (name, Way::Frame, bytes);
    vec![
        frame("empty", frame_of_extras(&[], &[], &[])),
        frame("first_frame", first_frame()),
        frame("dictionary", frame_of_extras(&dictionary(), &[], &[])),
        frame("ledger", frame_of_extras(&[], &ledger(), &[])),
        frame("events", frame_of_extras(&[], &[], &events())),
        frame("session_ended", frame_of_extras(&[], &[], &[Event::SessionEnded { at_us: T0 + 2 }])),
        frame("events_of_jobs", frame_of_extras(&[], &[], &events_of_jobs())),
    ]
}

/// Returns a control line. It is not JSON, so that it needs no escapes in the JSON files; the protocol does
/// not parse it.
fn control_line(text: &str) -> ControlLine {
    text.try_into().unwrap()
}

fn messages_to_collector() -> Vec<Golden> {
    let to_collector = |name, message: ToCollector| (name, Way::ToCollector, message.encode());
    let lost = |job: Option<u32>, source: &str, samples| Lost {
        job: job.map(JobHandle),
        source: source.try_into().unwrap(),
        samples,
    };
    let skipped = |reason, lost, span_us| ToCollector::Skipped {
        session: SESSION,
        first: 2,
        last: 300,
        reason,
        span_us,
        lost,
    };
    let (session, entries) = (LARGE_SESSION, dictionary());
    vec![
        to_collector("message_dictionary", ToCollector::Dictionary { session, entries }),
        to_collector(
            "message_skipped_outbox_full",
            skipped(
                SkipReason::OutboxFull,
                vec![lost(Some(1), "memory.stat", 70_000), lost(None, "proc/stat", 5)],
                (T0, T0 + 1_000_000),
            ),
        ),
        to_collector(
            "message_skipped_already_acknowledged",
            skipped(SkipReason::AlreadyAcknowledged, vec![], (0, -3)),
        ),
        to_collector(
            "message_skipped_refused",
            skipped(SkipReason::Refused, vec![lost(None, "proc/stat", 1)], (T0, T0)),
        ),
        to_collector("message_skipped_damaged", skipped(SkipReason::Damaged, vec![], (0, 0))),
        to_collector(
            "message_answer",
            ToCollector::Answer {
                session: SESSION,
                request: 7,
                line: control_line("{answer:reset,ended:1}"),
            },
        ),
    ]
}

fn messages_to_agent() -> Vec<Golden> {
    let to_agent = |name, message: ToAgent| (name, Way::ToAgent, message.encode());
    vec![
        to_agent("message_ack", ToAgent::Ack { session: SESSION, through: u64::MAX }),
        to_agent("message_resend", ToAgent::Resend { session: SESSION, from: 250 }),
        to_agent("message_need_dictionary", ToAgent::NeedDictionary { session: LARGE_SESSION }),
        to_agent(
            "message_refused",
            ToAgent::Refused {
                reason: "protocol version 9 is not supported: this program supports version 2".into(),
                versions: (1, 255),
                frame: None,
            },
        ),
        to_agent(
            "message_refused_frame",
            ToAgent::Refused {
                reason: "the checksum does not fit".into(),
                versions: (1, 1),
                frame: Some((LARGE_SESSION, 300)),
            },
        ),
        to_agent(
            "message_request",
            ToAgent::Request {
                session: SESSION,
                request: 7,
                uid: 100_000,
                at_us: T0,
                line: control_line("{verb:reset,job:4711}"),
            },
        ),
    ]
}

fn all() -> Vec<Golden> {
    [modes(), times(), extras(), messages_to_collector(), messages_to_agent()].concat()
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn file(name: &str, extension: &str) -> PathBuf {
    here().join("golden").join(format!("{name}.{extension}"))
}

fn say(way: Way, bytes: &[u8]) -> Json {
    match way {
        Way::Frame => json::of_frame(&Frame::decode(bytes).unwrap()),
        Way::ToCollector => json::of_message_to_collector(&ToCollector::decode(bytes).unwrap()),
        Way::ToAgent => json::of_message_to_agent(&ToAgent::decode(bytes).unwrap()),
    }
}

fn golden_files_match_the_encoder_and_decode() {
    let bless = std::env::var("POLYMETER_BLESS").is_ok_and(|value| value == "1");
    for (name, way, bytes) in all() {
        let (kept, said) = (file(name, "bin"), file(name, "json"));
        if bless {
            fs::write(&kept, &bytes).unwrap();
            fs::write(&said, format!("{}\n", say(way, &bytes))).unwrap();
        }
        let kept = fs::read(&kept).unwrap_or_else(|error| panic!("{}: {error}", kept.display()));
        assert_eq!(bytes, kept, "{name}: the encoding has changed; is that a new version of the protocol?");
        let said = Json::parse(&fs::read_to_string(&said).unwrap());
        let said = said.unwrap_or_else(|| panic!("{name}.json is not JSON of this kind"));
        assert_eq!(say(way, &kept).difference(&said, name), None);
    }
    look_around();
}

/// Checks that the directory has no other files, and that they are small.
fn look_around() {
    let mut expected = BTreeSet::from(["json.rs".to_owned()]);
    for (name, _, _) in all() {
        assert!(expected.insert(format!("{name}.bin")) && expected.insert(format!("{name}.json")), "{name}");
    }
    let files = fs::read_dir(here().join("golden")).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let found: BTreeSet<String> =
        files.iter().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(found, expected);
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < 100 * 1024, "{bytes} bytes of golden files");
}

/// The bytes that `docs/reference/protocol.md` explains, each with the name of its golden file; `|` marks the
/// boundaries of table rows.
const EXAMPLES: [(&str, &str); 18] = [
    ("zeros", "f8 38"),
    ("constant", "61 07"),
    ("copy", "03 05 05 09 03 01 00 0d 12 03"),
    ("copy_far", "03 05 05 09 f8 38 02 29 00"),
    ("runs", "03 64 02 05 07 00"),
    ("runs_of_pages", "63 02 05 00 07"),
    ("packed", "04 e8 07 d2 0f 04 62 d0 50 08"),
    ("xor", "05 00 00 00 00 00 80 34 40 00 01 80 82 80 04 80 82 80 04"),
    ("level_runs", "06 0e 05 02 09"),
    ("level_packed", "07 0e 03 04 57 40 18 36"),
    ("missing_deadlines", "1b | e8 07 | 06 01 00 09 00 | 09 07"),
    ("out_of_turn", "00 | 00 | 03 00 f1 2e 8b 2f"),
    (
        "one_tick",
        "50 4c 4d 02 | ed fe 00 00 00 00 00 00 | 01 | 9c 80 af a2 db ff ad 06 | 06 | 02 | 01 | \
         00 | 01 09",
    ),
    (
        "first_frame",
        "01 66 | 05 | 00 | 06 6e 6f 64 65 31 37 | 05 30 2e 31 2e 30 | fd fe bf 4b b4 fd b7 0c 00 | \
         02 01 | 04 34 37 31 31 | 01 06 67 72 69 73 6f 75 | 01 fc a0 86 01 00 | 01 04 7a 6f c3 ab | \
         fd 00 c0 4b b4 fd b7 0c 00 | 01 01 | 0e 6d 65 6d 6f 72 79 2e 63 75 72 72 65 6e 74 | \
         00 01 00 | 03 01 01 | 01 01 00 | 04 01 | 0b 6d 65 6d 6f 72 79 2e 73 74 61 74 | 01 01",
    ),
    ("partial", "fd 02"),
    ("message_ack", "50 4c 43 02 00 fb ed fe fd ff ff ff ff ff ff ff ff"),
    (
        "message_request",
        "50 4c 43 02  04  fb ed fe  07  fc a0 86 01 00  fd 00 c0 4b b4 fd b7 0c 00  15 7b 76 65 72 62 3a 72 65 73 65 74 2c 6a 6f 62 3a 34 37 31 31 7d",
    ),
    (
        "message_skipped_outbox_full",
        "50 4c 43 02  01  fb ed fe  02  fb 2c 01  00  fd 00 c0 4b b4 fd b7 0c 00  fd 80 44 6a b4 fd b7 0c 00 | \
         02  01 01  0b 6d 65 6d 6f 72 79 2e 73 74 61 74  fc 70 11 01 00  00    09 70 72 6f 63 2f 73 74 61 74  05",
    ),
];

fn document_explains_the_golden_bytes() {
    let document = fs::read_to_string(here().join("../../docs/reference/protocol.md")).unwrap();
    let golden = all();
    for (name, example) in EXAMPLES {
        let (_, _, bytes) = golden.iter().find(|(golden, ..)| *golden == name).unwrap();
        for part in example.split(" | ") {
            assert!(document.contains(part), "{name}: `{part}` is not in the document");
        }
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let expected: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        assert!(digits(bytes).contains(&expected), "{name} is {}", digits(bytes));
    }
}

/// Runs the decoder on `bytes`. Skips the test if python3 is not installed.
fn python(way: Way, bytes: &[u8]) -> Output {
    let direction = (way == Way::ToAgent).then_some("--to-agent");
    let child = Command::new("python3")
        .arg(here().join("decoder.py"))
        .args(direction)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            polymeter_test_harness::skip("python3", "python3 is not installed")
        }
        child => child.unwrap(),
    };
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap()
}

fn second_decoder_agrees() {
    for (name, way, bytes) in all() {
        let output = python(way, &bytes);
        let (said, complaint) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {complaint}");
        let said = Json::parse(&said).unwrap_or_else(|| panic!("{name}: {said}"));
        assert_eq!(said.difference(&say(way, &bytes), name), None);
    }
}

/// Returns a frame of these sections, with a valid checksum.
fn frame_of(sections: &[u8]) -> Vec<u8> {
    let mut bytes = b"PLM\x02\x01\0\0\0\0\0\0\0\x01\0".to_vec();
    bytes.extend_from_slice(sections);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn second_decoder_refuses_invalid_frames() {
    let good = several_blocks();
    let flipped = |position: usize| {
        let mut bytes = good.clone();
        bytes[position] ^= 1;
        bytes
    };
    let another_version = [b"PLM\x01", &good[4..]].concat();
    let trailing = [ToAgent::NeedDictionary { session: SESSION }.encode(), vec![0]].concat();
    let wrong = [
        ("damaged", Way::Frame, flipped(good.len() / 2), "the checksum is wrong"),
        ("damaged at the end", Way::Frame, flipped(good.len() - 1), "the checksum is wrong"),
        ("cut", Way::Frame, good[..good.len() - 5].to_vec(), "the checksum is wrong"),
        ("another version", Way::Frame, another_version, "another version"),
        ("another protocol", Way::Frame, b"GET / HTTP/1.1".to_vec(), "no bytes of this protocol"),
        ("an unknown section", Way::Frame, frame_of(&[9]), "no kind of section"),
        ("no ticks", Way::Frame, frame_of(&[2, 1, 1, 0]), "no ticks"),
        ("a copy of nothing", Way::Frame, frame_of(&[2, 1, 1, 1, 0, 0x0a, 0]), "before the block"),
        ("too many zeros", Way::Frame, frame_of(&[2, 1, 1, 1, 0, 0x08]), "more columns than its block"),
        ("too much memory", Way::Frame, frame_of(&[2, 0, 0x80, 0x20, 0x80, 0x80, 4]), "too many values"),
        ("a message and a byte", Way::ToAgent, trailing, "bytes behind the end"),
        ("an unknown message", Way::ToCollector, b"PLC\x02\x03".to_vec(), "no variant"),
    ];
    for (name, way, bytes, why) in wrong {
        assert!(way == Way::ToAgent || Frame::decode(&bytes).is_err(), "{name}");
        let output = python(way, &bytes);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.starts_with("refused: "), "{name}: {complaint}");
        assert!(complaint.contains(why), "{name}: {complaint}");
    }
}
