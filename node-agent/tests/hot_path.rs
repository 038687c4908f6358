//! Tests that the sampler allocates nothing at a tick once its buffers have grown. The program has no other
//! test, since the allocator counts the allocations of all its threads.

#![allow(clippy::unwrap_used, reason = "clippy does not know that this is a test")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::time::Duration;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::counters::Counters;
use polymeter_agent::lanes::{
    ActiveSource, Channels, Command, Group, Sampler, Schedule, SourceId, SourceKey,
};
use polymeter_agent::sources::reader_thread::ThreadedSource;
use polymeter_agent::sources::{
    CustomSource, Outcome, ReadBuffer, Reading, ScanResult, Slot, Source, SourceFactory, Target,
    TextFileSource, Wanted,
};
use polymeter_proto::batch::{Batch, Column, Instant, Shape};
use polymeter_proto::catalogue::{self, Definition, Form, Origin};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Labels, MetricId, SeriesId, ShapeId};
use polymeter_service::clock;

/// The system's allocator, with a count of allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Memory) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Memory, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a source of every line of vmstat on this machine: a file in several pieces, with close to two
/// hundred values.
fn vmstat() -> TextFileSource {
    let mut wanted = Vec::new();
    for metric in catalogue::all() {
        for origin in metric.origins {
            if let Origin::Text { file, field } = origin
                && file.path == "vmstat"
            {
                wanted.push(Wanted { definition: Definition { metric, instance: None }, field: *field });
            }
        }
    }
    TextFileSource::open(Path::new("/proc/vmstat"), Form::Keyed, &wanted, &[]).unwrap()
}

fn shape_of(source: &TextFileSource) -> Arc<Shape> {
    let columns = (0..)
        .zip(source.slots())
        .map(|(number, slot)| Column {
            series: SeriesId(number),
            metric: (MetricId(number), slot.definition.descriptor().unwrap()),
            labels: slot.labels.clone(),
        })
        .collect();
    Arc::new(Shape {
        id: ShapeId(0),
        job: None,
        source: "stat".try_into().unwrap(),
        period: Period::MIN,
        window: None,
        columns,
    })
}

// One test only, because the count is that of the whole process.
#[test]
fn a_tick_takes_no_memory() {
    let mut source = vmstat();
    let shape = shape_of(&source);
    let mut text = ReadBuffer::default();
    let mut reading = Reading::absent(source.slots().len());
    let mut schedule = Schedule::default();
    schedule.insert((), Period::MIN, 0);
    let mut due = Vec::with_capacity(8);
    let mut batch = Batch::default();
    let mut tick = |number: u64, batch: &mut Batch, index| {
        due.clear();
        schedule.take_due(number * Period::MIN.as_nanos(), &mut due);
        assert_eq!(due.len(), 1);
        assert_eq!(source.read(&mut text, &mut reading), Outcome::Read);
        let instant = Instant { deadline: Some(number), time_us: i64::try_from(number).unwrap() };
        batch.push(index, instant, reading.iter()).unwrap()
    };
    // The first batch makes the buffers grow; the second is like all later ones.
    let index = batch.add_shape(&shape);
    let values: u64 = (1..=100).map(|number| tick(number, &mut batch, index)).sum();
    assert!(values > 5_000, "{values} values read");
    batch.clear();
    let index = batch.add_shape(&shape);
    let before = ALLOCATIONS.load(Relaxed);
    for number in 101..=200 {
        tick(number, &mut batch, index);
    }
    assert_eq!(ALLOCATIONS.load(Relaxed) - before, 0, "allocations in 100 ticks");
    both_lanes_take_no_memory();
    new_processes_take_no_memory();
}

/// A source of one value that does not allocate.
#[derive(Debug)]
struct Constant(Vec<Slot>);

impl CustomSource for Constant {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.set(0, 1);
        Outcome::Read
    }
}

/// A source of one value, every fiftieth read of which makes the sampler miss deadlines.
#[derive(Debug)]
struct Delayed(Vec<Slot>, u64);

impl CustomSource for Delayed {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.1 += 1;
        if self.1.is_multiple_of(50) {
            clock::sleep(Duration::from_millis(5));
        }
        reading.set(0, 1);
        Outcome::Read
    }
}

/// Returns a source with this number, sampled every millisecond, in windows with histograms if it has one.
fn active(number: u32, slots: &[Slot], source: Source, window: Option<Period>) -> Box<ActiveSource> {
    let columns = slots.iter().map(|slot| Column {
        series: SeriesId(number),
        metric: (MetricId(0), slot.definition.descriptor().unwrap()),
        labels: slot.labels.clone(),
    });
    let shape = Shape {
        id: ShapeId(number),
        job: None,
        source: "test".try_into().unwrap(),
        period: Period::MILLISECOND,
        window,
        columns: columns.collect(),
    };
    let key = SourceKey { job: None, name: "test".try_into().unwrap() };
    let group = Group::new(Arc::new(shape), vec![0]).with_histograms(|_| true);
    Box::new(ActiveSource::new(Arc::new(key), source, vec![group]))
}

/// Reads three sources of the fast lane, one of which makes the sampler miss deadlines and one of which has
/// windows, and one of the slow lane.
fn both_lanes_take_no_memory() {
    let definition = catalogue::find("node.filesystem.size").unwrap();
    let slots = vec![Slot { definition, labels: Labels::default() }];
    let threaded = ThreadedSource::start("test", Box::new(Constant(slots.clone()))).unwrap();
    let channels = Arc::new(Channels::new().unwrap());
    let counters = Arc::new(Counters::default());
    let sampler = Sampler::new(Arc::clone(&channels), Arc::clone(&counters), Period::HOUR);
    let thread = std::thread::spawn(|| sampler.run());
    let sources = [
        Source::Custom(Box::new(Constant(slots.clone()))),
        Source::Threaded(threaded),
        Source::Custom(Box::new(Delayed(slots.clone(), 0))),
        Source::Custom(Box::new(Constant(slots.clone()))),
    ];
    for (number, source) in (0..).zip(sources) {
        let window = (number == 3).then_some(Period::TEN_MILLISECONDS);
        channels.command(Command::Add(SourceId(number), active(number, &slots, source, window))).unwrap();
    }
    let wait_until_taken = |taken: u64| {
        let until_ns = clock::monotonic_ns() + 30_000_000_000;
        while counters.taken.load(Relaxed) < taken {
            assert!(clock::monotonic_ns() < until_ns, "{counters:?}");
            clock::sleep(Duration::from_millis(1));
        }
    };
    wait_until_taken(400);
    let (before, missed) = (ALLOCATIONS.load(Relaxed), counters.missed.load(Relaxed));
    wait_until_taken(1_200);
    let allocations = ALLOCATIONS.load(Relaxed) - before;
    assert!(counters.missed.load(Relaxed) > missed, "{counters:?}");
    channels.command(Command::Stop).unwrap();
    thread.join().unwrap();
    assert_eq!(allocations, 0, "allocations in some 200 reads of each lane");
}

const PROCESSES: usize = 600;

/// Leader of a process group, all of which is killed at the end, even if the test fails.
struct ProcessGroup(std::process::Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        self.0.wait().ok();
    }
}

/// Takes over hundreds of new processes, and gives them back when they have ended.
fn new_processes_take_no_memory() {
    let cgroup = tempfile::tempdir().unwrap();
    let list = cgroup.path().join("cgroup.procs");
    fs::write(&list, "").unwrap();
    let mounts = Mounts { v1: BTreeMap::new(), v2: None, ..Mounts::read(Path::new("/")).unwrap() };
    let factory = SourceFactory { perf_descriptors: PROCESSES, ..SourceFactory::of(&mounts) };
    let v1 = BTreeMap::from([("cpuacct".to_owned(), cgroup.path().to_owned())]);
    let target = Target::Cgroups(JobCgroups { v1, ..JobCgroups::default() });
    let faults = catalogue::find("perf.page_faults").unwrap();
    let (opened, unavailable) = factory.open(&target, std::slice::from_ref(&faults));
    let Some(mut opened) = opened.into_iter().next() else {
        // Without the right to count processes there is a reason.
        assert_eq!(unavailable.len(), 1);
        return;
    };
    let script = format!("i=0; while [ $i -lt {PROCESSES} ]; do sleep 600 & i=$((i+1)); done; wait");
    let shell = std::process::Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let shell = ProcessGroup(shell);
    let until_ns = clock::monotonic_ns() + 60_000_000_000;
    let lines = loop {
        let children = fs::read_to_string(&children).unwrap();
        if children.split_ascii_whitespace().count() == PROCESSES {
            break children.split_ascii_whitespace().map(|pid| format!("{pid}\n")).collect::<String>();
        }
        assert!(clock::monotonic_ns() < until_ns, "{} processes", children.split_ascii_whitespace().count());
        clock::sleep(Duration::from_millis(10));
    };
    let finder = opened.below.as_mut().unwrap();
    let (mut text, mut reading) = (ReadBuffer::default(), Reading::absent(opened.source.slots().len()));
    let mut allocations = 0;
    let mut scan_until = |descriptors: usize| {
        while finder.scan(PROCESSES - finder.perf_descriptors()) != ScanResult::All
            || finder.perf_descriptors() != descriptors
        {
            let before = ALLOCATIONS.load(Relaxed);
            assert_eq!(opened.source.read(&mut text, &mut reading), Outcome::Read);
            allocations += ALLOCATIONS.load(Relaxed) - before;
            assert!(clock::monotonic_ns() < until_ns, "{} descriptors", finder.perf_descriptors());
        }
    };
    fs::write(&list, lines).unwrap();
    scan_until(PROCESSES);
    drop(shell);
    fs::write(&list, "").unwrap();
    scan_until(0);
    assert_eq!(allocations, 0, "allocations while processes came and went");
}
