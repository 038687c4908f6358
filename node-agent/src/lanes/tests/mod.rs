//! Tests of the sampler with sources of both lanes, one of which hangs on demand.

mod support;
mod windows;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::limits;
use polymeter_proto::series::{Identifier, ShapeId};
use rustix::io::Errno;

use self::support::{
    FailingSource, Gate, LackingSource, Running, ThriftySource, UnreliableSource, WideSource, active,
    counting, group, is_hung, is_recovered, job, slot, slow, slow_with_last_read,
};
use super::*;
use crate::clock;
use crate::sources::Source;
use crate::sources::reader_thread::ThreadedSource;

#[test]
fn a_source_that_hangs_affects_only_itself() {
    let (open, other_open, gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()), Gate::closed());
    let mut running = Running::start();
    // Added by one command and with one period, they have the same deadlines.
    let added = vec![
        active(0, "hung", None, slow(&gate), "20ms"),
        active(1, "fast", None, Source::Custom(counting(&open)), "20ms"),
        active(2, "slow", None, slow(&other_open), "20ms"),
    ];
    running.command(Command::Exchange { removed: Vec::new(), added });
    gate.wait_until_begun(1);
    // The read that hangs has begun, and ends only after all of this.
    let (fast, slow) = (open.begun() + 10, other_open.begun() + 10);
    running.until("rows of the others", |received| {
        received.rows("fast") >= fast && received.rows("slow") >= slow
    });
    running.until("the notice", |received| received.has_notice(is_hung));
    for _ in 0..3 {
        let due = running.received.tally("hung").due;
        running.until("further misses", |received| {
            received.tally("hung").due > due && received.has_current_tallies()
        });
        let [hung, fast, slow] = ["hung", "fast", "slow"].map(|name| running.received.tally(name));
        // The last deadline of each waits for its read; the fast lane's is read at once.
        assert_eq!((hung.missed, hung.due), (fast.due - 1, fast.due - 1), "{hung:?} {fast:?}");
        assert!(slow.due == fast.due || slow.due == fast.due - 1, "{slow:?} {fast:?}");
    }
    assert!(matches!(running.received.notices[..], [Notice::Hung(SourceId(0))]), "reported once");
    assert_eq!((running.received.rows("hung"), gate.begun()), (0, 1));
    let opened_us = clock::steady_us();
    gate.set_closed(false);
    running.until("a row", |received| received.rows("hung") > 0);
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Recovered(SourceId(0))]));
    running.flush();
    while running.received.tally("hung").late == 0 {
        // The gate was opened within a tenth of the period after a deadline.
        gate.set_closed(true);
        let Tally { missed, due, .. } = running.received.tally("hung");
        running.until("a further miss", |received| received.tally("hung").missed > missed);
        // It is reported at a deadline; half a period later is late.
        clock::sleep(Duration::from_millis(10));
        gate.set_closed(false);
        running.until("a further report", |received| received.tally("hung").due > due);
        running.flush();
    }
    let received = running.stop();
    let [hung, fast, slow] = ["hung", "fast", "slow"].map(|name| received.tally(name));
    assert_eq!((hung.due, slow.due), (fast.due, fast.due), "each deadline is counted for each source");
    for tally in [hung, fast, slow] {
        assert_eq!(tally.taken + tally.missed, tally.due, "{tally:?}");
    }
    assert!(
        received.rows["hung"].is_sorted() && received.rows["hung"][0] >= opened_us,
        "dated by the end of a read that hung"
    );
}

#[test]
fn a_source_that_fails_is_reported_once_for_all_its_groups() {
    let mut running = Running::start();
    let key = SourceKey { job: None, name: Identifier::try_from("failing").unwrap() };
    // Groups of the same period are always due together, and share a read.
    let groups = vec![group(0, "failing", None, "10ms"), group(1, "failing", None, "10ms")];
    let source = Source::Custom(Box::new(FailingSource([slot()])));
    running.add((SourceId(0), Box::new(ActiveSource::new(Arc::new(key), source, groups))));
    running.until("many failed reads", |received| received.tally("failing").absent >= 40);
    let received = running.stop();
    let tally = received.tally("failing");
    assert_eq!((tally.taken, tally.due), (0, tally.absent + tally.missed));
    assert!(matches!(received.notices[..], [Notice::Failing(SourceId(0), Errno::AGAIN)]), "{received:?}");
}

#[test]
fn no_sample_is_handed_on_without_the_losses_before_it() {
    const PERIOD_US: i64 = 2_000;
    let mut running = Running::start();
    running.check = |received| {
        let Some([first, .., last]) = received.rows.get("unreliable").map(Vec::as_slice) else { return };
        let deadlines = last / PERIOD_US - first / PERIOD_US;
        let tally = received.tally("unreliable");
        let known = received.rows("unreliable") + tally.missed + tally.absent;
        // The first and the last row may be on either side of a deadline.
        assert!(known.cast_signed() + 2 >= deadlines, "{known} of {deadlines} deadlines, {tally:?}");
    };
    let source = Source::Custom(Box::new(UnreliableSource([slot()], 0)));
    running.add(active(0, "unreliable", None, source, "2ms"));
    running.until("many losses", |received| {
        received.tally("unreliable").missed >= 400 && received.tally("unreliable").absent >= 40
    });
    running.stop();
}

#[test]
fn a_value_that_the_device_does_not_have_is_not_due() {
    let mut running = Running::start();
    let fast = Source::Custom(Box::new(LackingSource([slot()], 0)));
    let of_thread = ThreadedSource::start("lacking", Box::new(LackingSource([slot()], 0))).unwrap();
    running.add(active(0, "fast", None, fast, "2ms"));
    running.add(active(1, "slow", None, Source::Threaded(of_thread), "2ms"));
    running.until("some values", |received| {
        ["fast", "slow"].iter().all(|name| received.tally(name).taken >= 10)
    });
    let received = running.stop();
    for name in ["fast", "slow"] {
        let tally = received.tally(name);
        assert_eq!((tally.absent, tally.due), (0, tally.taken + tally.missed), "{name}");
    }
}

#[test]
fn a_source_may_read_only_the_values_whose_deadlines_have_passed() {
    let wanted = Arc::new(Mutex::new(Vec::new()));
    let source = ThriftySource { slots: [slot(), slot()], wanted: Arc::clone(&wanted) };
    let source = Source::Threaded(ThreadedSource::start("thrifty", Box::new(source)).unwrap());
    let key = SourceKey { job: None, name: Identifier::try_from("thrifty").unwrap() };
    let mut seldom = group(1, "thrifty", None, "30ms");
    (seldom.slots, seldom.is_in_order) = (vec![1], false);
    let groups = vec![group(0, "thrifty", None, "10ms"), seldom];
    let mut running = Running::start();
    running.add((SourceId(0), Box::new(ActiveSource::new(Arc::new(key), source, groups))));
    running.until("some rows of both", |received| {
        let rows = |id| received.blocks.iter().filter(|(shape, _)| shape.id == ShapeId(id)).count();
        rows(0) > 20 && rows(1) > 5
    });
    let tally = running.stop().tally("thrifty");
    assert_eq!(tally.absent, 0, "who is due during a read of others waits for the next: {tally:?}");
    let wanted = wanted.lock().unwrap();
    let reads = |of: [bool; 2]| wanted.iter().filter(|read| **read == of).count();
    assert!(reads([true, false]) > 0 && reads([false, false]) == 0, "{wanted:?}");
    let values = wanted.iter().flatten().filter(|is_wanted| **is_wanted).count() as u64;
    assert!(values <= tally.taken + 2, "at most the last read was not recorded: {values} {tally:?}");
}

#[test]
fn stopping_does_not_wait_for_a_source_that_hangs() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate), "10ms"));
    running.until("the notice", |received| received.has_notice(is_hung));
    let received = running.stop();
    let tally = received.tally("hung");
    assert!(tally.missed == tally.due && tally.due >= 100, "{tally:?}");
    assert_eq!(gate.begun(), 1, "its first read hangs until here");
    gate.set_closed(false);
}

#[test]
fn the_last_reading_of_a_job_comes_before_its_end() {
    // A reading that takes longer than the sampler waits for it is given up; on a busy machine it is tried
    // again.
    while !is_last_reading_before_the_end() {}
}

/// Returns false if the reading took so long that the sampler may have given it up.
fn is_last_reading_before_the_end() -> bool {
    let (gate, job) = (Gate::closed(), job());
    let mut running = Running::start();
    let (id, source) = active(0, "slow", Some(&job), slow(&gate), "1h");
    running.add((id, source));
    running.command(Command::ReadNow(vec![id]));
    gate.wait_until_begun(1);
    let removed_ns = clock::monotonic_ns();
    running.command(Command::Remove(id));
    let event = Event::JobEnded { job: job.handle, at_us: 0 };
    running.command(Command::RecordEvent(Box::new(EventRecord { job: Some(Arc::clone(&job)), event })));
    running.flush();
    let is_pending = running.received.notices.is_empty() && running.received.job_ended_us.is_none();
    gate.set_closed(false);
    running.until("the end of the job", |received| received.job_ended_us.is_some());
    let is_within = clock::monotonic_ns() - removed_ns < slow_sources::CLOSE_WITHIN_NS;
    let received = running.stop();
    if is_within {
        assert!(is_pending, "the end of the job waits for the reading");
        assert!(matches!(received.notices[..], [Notice::Removed(SourceId(0), _)]));
        assert_eq!(received.ended, ["slow"]);
        assert_eq!(received.tally("slow"), Tally { due: 1, taken: 1, ..Tally::default() });
        assert!(received.rows["slow"][0] <= received.job_ended_us.unwrap());
    }
    is_within
}

const MISSED: Tally = Tally { due: 1, missed: 1, taken: 0, late: 0, absent: 0, dropped: 0, not_kept: 0 };

/// Starts a source that is read once more before it is closed, and has it read once.
fn start_with_last_read(gate: &Arc<Gate>) -> Running {
    let mut running = Running::start();
    running.add(active(0, "stacks", Some(&job()), slow_with_last_read(gate), "1h"));
    running.command(Command::ReadNow(vec![SourceId(0)]));
    gate.wait_until_begun(1);
    while running.received.rows("stacks") == 0 {
        running.flush();
    }
    running
}

#[test]
fn a_last_reading_that_is_given_up_is_counted() {
    let gate = Arc::new(Gate::default());
    let mut running = start_with_last_read(&gate);
    gate.set_closed(true);
    running.command(Command::Remove(SourceId(0)));
    let event = Event::JobEnded { job: job().handle, at_us: 0 };
    running.command(Command::RecordEvent(Box::new(EventRecord { job: Some(job()), event })));
    running.until("the end of the job", |received| received.job_ended_us.is_some());
    let received = running.stop();
    assert_eq!(received.ended, ["stacks.unread", "stacks"]);
    assert_eq!(received.tally("stacks.unread"), MISSED);
    assert_eq!(received.tally("stacks"), Tally { due: 2, taken: 1, ..MISSED });
    gate.set_closed(false);
}

#[test]
fn a_last_reading_that_takes_long_is_awaited() {
    for seems_to_hang in [false, true] {
        let gate = Arc::new(Gate::default());
        let mut running = start_with_last_read(&gate);
        gate.set_closed(true);
        if seems_to_hang {
            running.command(Command::Regroup(SourceId(0), vec![group(1, "stacks", Some(&job()), "10ms")]));
            running.until("the notice", |received| received.has_notice(is_hung));
        }
        running.command(Command::Remove(SourceId(0)));
        running.confirm();
        clock::sleep(Duration::from_nanos(2 * slow_sources::CLOSE_WITHIN_NS));
        gate.set_closed(false);
        running
            .until("the last report", |received| received.ended.last().is_some_and(|name| name == "stacks"));
        let received = running.stop();
        assert_eq!(received.ended, ["stacks"], "nothing is unread");
        assert!(received.tally("stacks").taken >= 2);
    }
}

#[test]
fn the_end_of_the_agent_reads_last_or_counts_it() {
    for is_closed in [false, true] {
        let gate = Arc::new(Gate::default());
        let running = start_with_last_read(&gate);
        gate.set_closed(is_closed);
        let received = running.stop();
        gate.set_closed(false);
        let (taken, unread) = (received.tally("stacks").taken, received.tally("stacks.unread"));
        // On a busy machine it may be given up, too.
        assert!((taken, unread) == (1, MISSED) || (!is_closed && (taken, unread) == (2, Tally::default())));
        assert_eq!(received.tally("stacks").due, 2);
    }
}

#[test]
fn a_removed_source_that_hangs_is_given_back_at_once() {
    let gate = Gate::closed();
    let mut running = Running::start();
    let (id, source) = active(0, "hung", None, slow(&gate), "10ms");
    running.add((id, source));
    running.until("the notice", |received| received.has_notice(is_hung));
    running.command(Command::Remove(id));
    running.confirm();
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Removed(SourceId(0), _)]));
    running.until("the last report", |received| received.ended == ["hung"]);
    gate.set_closed(false);
    running.stop();
}

#[test]
fn a_source_that_hangs_is_not_replaced_by_another_that_would() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate), "10ms"));
    running.until("the notice", |received| received.has_notice(is_hung));
    running.add(active(0, "hung", None, slow(&gate), "20ms"));
    running.confirm();
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Replaced(_)]));
    gate.set_closed(false);
    running.until("rows", |received| received.rows("hung") >= 5);
    let notices = &running.received.notices[2..];
    assert!(matches!(notices, [Notice::Recovered(SourceId(0))]), "the first one goes on");
    running.stop();
}

#[test]
fn a_change_of_plan_keeps_the_deadlines_of_a_read_under_way() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "slow", None, slow(&gate), "20ms"));
    let mut kept = 0;
    for round in 1.. {
        gate.wait_until_begun(u64::from(round));
        running.received.notices.clear();
        let former = ShapeId(round - 1);
        let period = if round % 2 == 0 { "20ms" } else { "30ms" };
        running.command(Command::Regroup(SourceId(0), vec![group(round, "slow", None, period)]));
        running.confirm();
        gate.let_one_through();
        // A change of plan gives up a read that hangs; on a busy machine this one may.
        running.until("the row of the former plan", |received| {
            let is_given_up = received.has_notice(is_recovered) || gate.begun() > u64::from(round);
            received.shapes.contains(&former) || is_given_up
        });
        kept += u32::from(running.received.shapes.contains(&former));
        if kept == 10 {
            break;
        }
    }
    gate.set_closed(false);
    running.stop();
}

#[test]
fn a_read_gives_a_series_one_value() {
    let gate = Gate::closed();
    let mut running = Running::start();
    let (id, source) = active(0, "slow", None, slow(&gate), "10ms");
    running.add((id, source));
    gate.wait_until_begun(1);
    // Deadlines of two plans pass during one read.
    for plan in 1..3 {
        let missed = running.received.tally("slow").missed;
        running.until("further misses", |received| received.tally("slow").missed > missed + 3);
        running.command(Command::Regroup(id, vec![group(plan, "slow", None, "10ms")]));
        running.command(Command::ReadNow(vec![id]));
        running.confirm();
    }
    gate.set_closed(false);
    running.until("rows", |received| received.rows("slow") >= 5);
    let mut times = running.stop().rows["slow"].clone();
    let rows = times.len();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), rows, "each has a time of its own");
}

/// A thousand exporters are due together, and have more values than fit into all batches.
#[test]
fn finished_reads_wait_for_batches() {
    const SOURCES: u64 = 100;
    let width = 4 * limits::BATCH_VALUES / 64;
    let (mut running, ended) = (Running::start(), Arc::new(AtomicU64::new(0)));
    let numbers: Vec<u32> = (0..u32::try_from(SOURCES).unwrap()).collect();
    for number in &numbers {
        let source = Box::new(WideSource(vec![slot(); width], Arc::clone(&ended)));
        let source = Source::Threaded(ThreadedSource::start("wide", source).unwrap());
        let key =
            SourceKey { job: None, name: Identifier::try_from(format!("wide{number}").as_str()).unwrap() };
        let one = group(*number, key.name.as_str(), None, "1h");
        let mut shape = (*one.shape).clone();
        shape.columns = vec![shape.columns[0].clone(); width];
        let slots = (0..).take(width).collect();
        let active = ActiveSource::new(Arc::new(key), source, vec![Group::new(Arc::new(shape), slots)]);
        running.add((SourceId(*number), Box::new(active)));
    }
    running.command(Command::ReadNow(numbers.iter().map(|number| SourceId(*number)).collect()));
    // No batch is given back before all have been read.
    while ended.load(Relaxed) < SOURCES {
        clock::sleep(Duration::from_millis(1));
    }
    (0..10).for_each(|_| {
        running.confirm_without_batches();
        clock::sleep(Duration::from_millis(5));
    });
    let values = SOURCES * width as u64;
    running.until("all values", |received| received.samples.values().sum::<u64>() == values);
    let received = running.stop();
    assert_eq!((received.sum.taken, received.sum.dropped, received.sum.missed), (values, 0, 0));
}
