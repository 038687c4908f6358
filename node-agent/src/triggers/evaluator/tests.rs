//! Samples and events of simulated jobs, with a naive evaluation of durations beside.

use polymeter_proto::batch::{Column, Instant};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobDescriptor, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};
use polymeter_proto::trigger::RuleFields;
use proptest::prelude::*;

use super::*;

const SECOND_US: i64 = 1_000_000;
const BEGIN_US: i64 = 1_790_000_000 * SECOND_US;
const OWNER: Principal = Principal { uid: 1000, administrator: false };

fn job(number: u32) -> Arc<Job> {
    job_of(OWNER.uid, number)
}

fn job_of(owner: u32, number: u32) -> Arc<Job> {
    let descriptor = JobDescriptor {
        job_id: number.to_string().as_str().try_into().unwrap(),
        cluster: None,
        owner_uid: Some(owner),
        owner: None,
        started_us: BEGIN_US,
    };
    Arc::new(Job { handle: JobHandle(number), descriptor })
}

fn shape(job: &Arc<Job>, metrics: &[(&'static str, Kind)]) -> Arc<Shape> {
    let column = |(number, (name, kind)): (u32, &(&'static str, Kind))| Column {
        series: SeriesId(job.handle.0 * 100 + number),
        metric: (
            MetricId(number),
            MetricDescriptor {
                name: MetricName::new(*name).unwrap(),
                unit: Unit::Count,
                kind: *kind,
                number: Number::Unsigned,
            },
        ),
        labels: Labels::default(),
    };
    Arc::new(Shape {
        id: ShapeId(job.handle.0),
        job: Some(Arc::clone(job)),
        source: "s".try_into().unwrap(),
        period: Period::SECOND,
        columns: (0..).zip(metrics).map(column).collect(),
        window: None,
    })
}

fn batch(shape: &Arc<Shape>, rows: &[(i64, &[u64])]) -> Batch {
    let mut batch = Batch::default();
    let index = batch.add_shape(shape);
    for (time_us, values) in rows {
        let instant = Instant { deadline: None, time_us: *time_us };
        batch.push(index, instant, values.iter().map(|value| Some(*value))).unwrap();
    }
    batch
}

fn rule(name: &str, when: &str) -> Rule {
    let fields = RuleFields { name: name.to_owned(), when: when.to_owned(), ..RuleFields::default() };
    Rule::parse(&fields).unwrap()
}

fn evaluator() -> Evaluator {
    Evaluator::new(BEGIN_US - 3600 * SECOND_US)
}

fn fired(evaluator: &mut Evaluator) -> Vec<(String, i64)> {
    let fired = evaluator.take_fired().into_iter();
    fired.map(|fired| (fired.rule.name.to_string(), fired.at_us - BEGIN_US)).collect()
}

#[test]
fn an_oom_kill_fires_also_with_the_last_reading() {
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.set_site(vec![rule("oom", "oom")]);
    let shape = shape(&job, &[("memory.events.oom_kill", Kind::Counter)]);
    evaluator.samples(&batch(&shape, &[(BEGIN_US, &[0]), (BEGIN_US + SECOND_US, &[0])]), Voice::Plan);
    assert!(fired(&mut evaluator).is_empty());
    evaluator.samples(&batch(&shape, &[(BEGIN_US + 2 * SECOND_US, &[1])]), Voice::Plan);
    evaluator.ended(job.handle, BEGIN_US + 2 * SECOND_US, BEGIN_US + 2 * SECOND_US);
    assert_eq!(fired(&mut evaluator), [("oom".to_owned(), 2 * SECOND_US)]);
    // A job that lived for one reading.
    let short = self::shape(&self::job(2), &[("memory.events.oom_kill", Kind::Counter)]);
    evaluator.samples(&batch(&short, &[(BEGIN_US + 3 * SECOND_US, &[1])]), Voice::Plan);
    assert_eq!(fired(&mut evaluator).len(), 1);
}

#[test]
fn an_old_oom_kill_of_a_job_that_is_older_than_the_agent_does_not_fire() {
    let mut evaluator = Evaluator::new(BEGIN_US);
    evaluator.set_site(vec![rule("oom", "oom")]);
    let shape = shape(&job(1), &[("memory.events.oom_kill", Kind::Counter)]);
    evaluator.samples(&batch(&shape, &[(BEGIN_US, &[3]), (BEGIN_US + SECOND_US, &[3])]), Voice::Plan);
    assert!(fired(&mut evaluator).is_empty());
    evaluator.samples(&batch(&shape, &[(BEGIN_US + 2 * SECOND_US, &[4])]), Voice::Plan);
    assert_eq!(fired(&mut evaluator).len(), 1);
}

#[test]
fn an_event_needs_the_metrics_beside_it() {
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.add(&job, rule("big", "exit_status and memory.current > 100"), OWNER).unwrap();
    let shape = shape(&job, &[("memory.current", Kind::Gauge)]);
    let at_us = BEGIN_US + SECOND_US;
    evaluator.event(job.handle, JobEvent::ExitStatus, at_us, "exit status 1");
    evaluator.samples(&batch(&shape, &[(BEGIN_US, &[50])]), Voice::Plan);
    evaluator.event(job.handle, JobEvent::ExitStatus, at_us, "exit status 1");
    evaluator.samples(&batch(&shape, &[(at_us, &[150])]), Voice::Plan);
    evaluator.event(job.handle, JobEvent::Signal, at_us, "signal 9");
    assert!(fired(&mut evaluator).is_empty());
    evaluator.event(job.handle, JobEvent::ExitStatus, at_us, "exit status 1");
    let fired = evaluator.take_fired();
    assert_eq!(fired[0].why, "exit status 1; memory.current was 150");
}

#[test]
fn a_rate_is_the_change_per_second() {
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.add(&job, rule("io", "rate(io.read.bytes) > 1000"), OWNER).unwrap();
    let shape = shape(&job, &[("io.read.bytes", Kind::Counter)]);
    let rows: [(i64, &[u64]); 5] = [
        (BEGIN_US, &[1_000_000]),
        (BEGIN_US + SECOND_US, &[1_001_000]),
        // The counter begins anew.
        (BEGIN_US + 2 * SECOND_US, &[0]),
        (BEGIN_US + 2 * SECOND_US + SECOND_US / 2, &[400]),
        (BEGIN_US + 3 * SECOND_US, &[1000]),
    ];
    evaluator.samples(&batch(&shape, &rows), Voice::Plan);
    assert_eq!(fired(&mut evaluator), [("io".to_owned(), 3 * SECOND_US)]);
}

#[test]
fn the_voice_that_is_read_more_often_speaks() {
    let (mut evaluator, job) = (evaluator(), job(1));
    let fields = RuleFields {
        name: "burst".to_owned(),
        when: "rate(cpu.usage) > 500".to_owned(),
        hold_off: Some("100ms".to_owned()),
        ..RuleFields::default()
    };
    evaluator.add(&job, Rule::parse(&fields).unwrap(), OWNER).unwrap();
    let plan = shape(&job, &[("cpu.usage", Kind::Counter)]);
    let ring = Arc::new(Shape {
        id: ShapeId(1000),
        period: "1ms".parse().unwrap(),
        window: None,
        ..Shape::clone(&plan)
    });
    let window = Arc::new(Shape {
        id: ShapeId(1001),
        period: "1ms".parse().unwrap(),
        window: Some(Period::SECOND),
        ..Shape::clone(&plan)
    });
    // A burst from 300 to 400 ms, whose mean over a second is far below the bound.
    let value = |ms: i64| u64::try_from((ms - 300).clamp(0, 100)).unwrap();
    let fine: Vec<(i64, u64)> = (0..2000).map(|ms| (BEGIN_US + ms * 1000, value(ms))).collect();
    let (first, second) = fine.split_at(1000);
    for (rows, end_ms) in [(first, 999), (second, 1999)] {
        let values: Vec<[u64; 1]> = rows.iter().map(|(_, value)| [*value]).collect();
        let rows: Vec<(i64, &[u64])> =
            rows.iter().zip(&values).map(|(row, value)| (row.0, &value[..])).collect();
        evaluator.samples(&batch(&ring, &rows), Voice::Ring);
        for coarse in [&plan, &window] {
            let row: (i64, &[u64]) = (BEGIN_US + end_ms * 1000, &[value(end_ms)]);
            evaluator.samples(&batch(coarse, &[row]), Voice::Plan);
        }
    }
    assert_eq!(fired(&mut evaluator), [("burst".to_owned(), 301_000)]);
    // The ring is gone: the plan's samples count again.
    let rows: [(i64, &[u64]); 2] =
        [(BEGIN_US + 10 * SECOND_US, &[100]), (BEGIN_US + 11 * SECOND_US, &[1000])];
    evaluator.samples(&batch(&plan, &rows), Voice::Plan);
    assert_eq!(fired(&mut evaluator), [("burst".to_owned(), 11 * SECOND_US)]);
}

/// The samples of the plan go on where a ring ends: without a gap, and from its last value.
#[test]
fn the_plan_speaks_as_soon_as_the_ring_has_ended() {
    for (name, when, fires_at_s) in [
        // The plan has 500/s from the third second on: at once, and for three seconds.
        ("rate", "rate(cpu.usage) > 400", 3),
        ("lasting", "rate(cpu.usage) > 400 for 3s", 6),
        // What holds in the ring goes on.
        ("through", "rate(cpu.usage) < 600 for 4s", 5),
    ] {
        let (mut evaluator, job) = (evaluator(), job(1));
        evaluator.add(&job, rule(name, when), OWNER).unwrap();
        let plan = shape(&job, &[("cpu.usage", Kind::Counter)]);
        let ring =
            Arc::new(Shape { id: ShapeId(1000), period: "10ms".parse().unwrap(), ..Shape::clone(&plan) });
        // 100/s in the ring.
        let fine: Vec<(i64, [u64; 1])> =
            (0..=200).map(|tick| (BEGIN_US + tick * 10_000, [tick.unsigned_abs()])).collect();
        for second in fine.chunks(100) {
            let rows: Vec<(i64, &[u64])> = second.iter().map(|(at_us, value)| (*at_us, &value[..])).collect();
            evaluator.samples(&batch(&ring, &rows), Voice::Ring);
        }
        let mut first = None;
        for second in 0..10 {
            let value = if second <= 2 { 100 * second } else { 200 + 500 * (second - 2) };
            let row: (i64, &[u64]) = (BEGIN_US + second * SECOND_US, &[value.unsigned_abs()]);
            evaluator.samples(&batch(&plan, &[row]), Voice::Plan);
            first = first.or_else(|| fired(&mut evaluator).pop());
        }
        assert_eq!(first, Some((name.to_owned(), fires_at_s * SECOND_US)), "{when}");
    }
}

#[test]
fn a_condition_on_the_node_is_of_all_its_jobs() {
    let mut evaluator = evaluator();
    let jobs = [1, 2, 3].map(job);
    for job in &jobs {
        evaluator.add(job, rule("hot", "rate(node.cpu.throttled.thermal.time) > 0 for 2s"), OWNER).unwrap();
    }
    evaluator.ended(jobs[2].handle, BEGIN_US, BEGIN_US);
    let mut node = shape(&jobs[0], &[("node.cpu.throttled.thermal.time", Kind::Counter)]);
    Arc::get_mut(&mut node).unwrap().job = None;
    for (second, value) in (0..).zip([0_u64, 0, 5, 9, 14, 14]) {
        evaluator.samples(&batch(&node, &[(BEGIN_US + second * SECOND_US, &[value])]), Voice::Plan);
    }
    let fired = evaluator.take_fired();
    let found: Vec<(u32, i64)> =
        fired.iter().map(|fired| (fired.job.handle.0, fired.at_us - BEGIN_US)).collect();
    assert_eq!(found, [(1, 4 * SECOND_US), (2, 4 * SECOND_US)], "the third has ended");
    assert_eq!(fired[0].why, "node.cpu.throttled.thermal.time was 5/s");
}

#[test]
fn a_storm_is_held_back() {
    let (mut evaluator, job) = (evaluator(), job(1));
    let fields = RuleFields {
        name: "storm".to_owned(),
        when: "memory.current > 1".to_owned(),
        hold_off: Some("100us".to_owned()),
        firings: Some(1000),
        ..RuleFields::default()
    };
    evaluator.add(&job, Rule::parse(&fields).unwrap(), OWNER).unwrap();
    let shape = shape(&job, &[("memory.current", Kind::Gauge)]);
    for number in 0..2000 {
        let values: &[u64] = if number % 2 == 0 { &[0] } else { &[2] };
        evaluator.samples(&batch(&shape, &[(BEGIN_US + number * 1000, values)]), Voice::Plan);
    }
    let count = fired(&mut evaluator).len();
    assert!((100..=120).contains(&count), "{count}");
    let (listed, _) = evaluator.list(job.handle);
    assert_eq!(listed[0].held_back, 1000 - count as u64);
}

#[test]
fn rules_about_the_node_count_from_each_change_on() {
    let (mut evaluator, job) = (evaluator(), job(1));
    let mut node = shape(&job, &[("node.memory.available", Kind::Gauge)]);
    Arc::get_mut(&mut node).unwrap().job = None;
    let mut second = 0;
    let mut sampled = |evaluator: &mut Evaluator| {
        for value in [0, 2000] {
            second += 1;
            evaluator.samples(&batch(&node, &[(BEGIN_US + second * SECOND_US, &[value])]), Voice::Plan);
        }
        fired(evaluator).len()
    };
    let about_node = |name: &str| rule(name, "node.memory.available > 1000");
    assert_eq!(sampled(&mut evaluator), 0);
    evaluator.add(&job, rule("own", "memory.current > 1000"), OWNER).unwrap();
    assert_eq!(sampled(&mut evaluator), 0);
    evaluator.add(&job, about_node("own"), OWNER).unwrap();
    assert_eq!(sampled(&mut evaluator), 1, "replaced");
    assert!(evaluator.remove(job.handle, &"own".try_into().unwrap()));
    assert_eq!(sampled(&mut evaluator), 0);
    evaluator.set_site(vec![about_node("site")]);
    assert_eq!(sampled(&mut evaluator), 1);
    evaluator.set_site(Vec::new());
    assert_eq!(sampled(&mut evaluator), 0);
}

/// Users' rules in 500 jobs fire with every other sample: they hold back each other, and no rule of the site.
#[test]
fn a_storm_of_500_jobs_does_not_hold_back_the_site() {
    const JOBS: u32 = 500;
    let mut evaluator = evaluator();
    evaluator.set_site(vec![rule("site", "memory.current > 1000")]);
    let fields = RuleFields {
        when: "memory.current > 1".to_owned(),
        hold_off: Some("100us".to_owned()),
        firings: Some(1000),
        ..RuleFields::default()
    };
    let jobs: Vec<Arc<Job>> = (1..=JOBS).map(job).collect();
    for job in &jobs {
        for number in 0..RULES_OF_JOB {
            let name = number.to_string();
            evaluator.add(job, Rule::parse(&RuleFields { name, ..fields.clone() }).unwrap(), OWNER).unwrap();
        }
    }
    let shapes: Vec<_> = jobs.iter().map(|job| shape(job, &[("memory.current", Kind::Gauge)])).collect();
    let (mut of_users, mut of_site) = (0, Vec::new());
    for second in 0..20 {
        for shape in &shapes {
            let is_victim = shape.id == ShapeId(JOBS) && second == 15;
            let value: &[u64] = if is_victim { &[2000] } else { &[2 * u64::from(second % 2 == 1)] };
            evaluator.samples(&batch(shape, &[(BEGIN_US + second * SECOND_US, value)]), Voice::Plan);
            for fired in evaluator.take_fired() {
                match fired.by {
                    Some(_) => of_users += 1,
                    None => of_site.push((fired.job.handle.0, fired.at_us - BEGIN_US)),
                }
            }
        }
    }
    assert!((200..=300).contains(&of_users), "{of_users}");
    assert_eq!(of_site, [(JOBS, 15 * SECOND_US)]);
    let held_back: u64 =
        jobs.iter().flat_map(|job| evaluator.list(job.handle).0).map(|listed| listed.held_back).sum();
    assert_eq!(held_back + of_users, 10 * u64::from(JOBS) * RULES_OF_JOB as u64);
}

/// The rules of some users in 50 jobs each fire with every other sample, and so does one of the site. They
/// hold back neither the rule of another user, nor that of the site for the job of this user.
#[test]
fn a_storm_of_a_user_does_not_hold_back_others() {
    const JOBS: u32 = 50;
    const VICTIM: Principal = Principal { uid: 2000, administrator: false };
    for storming in [1, 4, 12] {
        let mut evaluator = evaluator();
        let fields = RuleFields {
            when: "memory.current > 1".to_owned(),
            hold_off: Some("100us".to_owned()),
            firings: Some(1000),
            ..RuleFields::default()
        };
        let of_name =
            |name: &str| Rule::parse(&RuleFields { name: name.to_owned(), ..fields.clone() }).unwrap();
        evaluator.set_site(vec![of_name("site")]);
        let victim = job_of(VICTIM.uid, 10_000);
        evaluator.add(&victim, rule("mine", "memory.current > 1"), VICTIM).unwrap();
        let jobs: Vec<Arc<Job>> =
            (0..storming * JOBS).map(|number| job_of(number / JOBS, number + 1)).collect();
        for job in &jobs {
            for number in 0..RULES_OF_JOB {
                let by = Principal { uid: job.descriptor.owner_uid.unwrap(), administrator: false };
                evaluator.add(job, of_name(&number.to_string()), by).unwrap();
            }
        }
        let shapes: Vec<_> =
            jobs.iter().chain([&victim]).map(|job| shape(job, &[("memory.current", Kind::Gauge)])).collect();
        let (mut count, mut of_victim) = (0, Vec::new());
        for second in 0..20 {
            let mut fired = Vec::new();
            for shape in &shapes {
                let is_high = if shape.id == ShapeId(10_000) { second == 15 } else { second % 2 == 1 };
                let value: &[u64] = &[2 * u64::from(is_high)];
                evaluator.samples(&batch(shape, &[(BEGIN_US + second * SECOND_US, value)]), Voice::Plan);
                // The supervisor acts late.
                if shape.id == ShapeId(10_000) {
                    fired = evaluator.take_fired();
                }
            }
            let is_of_victim = |fired: &Fired| fired.job.handle == victim.handle;
            let turns = fired.iter().position(is_of_victim);
            assert!(turns.is_none_or(|place| place <= 2 * storming as usize + 1), "{turns:?}");
            count += fired.len();
            let found = fired.into_iter().filter(is_of_victim);
            of_victim.extend(found.map(|fired| (fired.rule.name.to_string(), fired.at_us - BEGIN_US)));
        }
        of_victim.sort();
        let at = |name: &str| (name.to_owned(), 15 * SECOND_US);
        assert_eq!(of_victim, [at("mine"), at("site")], "{storming} users storm");
        // Rules of users, and that of the site.
        assert!((300..=1000).contains(&count), "{count} firings");
    }
}

#[test]
fn rules_are_bounded_replaced_and_removed() {
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.set_site(vec![rule("site", "oom")]);
    assert!(matches!(evaluator.add(&job, rule("site", "oom"), OWNER), Err(AddError::OfSite(_))));
    for number in 0..RULES_OF_JOB {
        evaluator.add(&job, rule(&number.to_string(), "oom"), OWNER).unwrap();
        evaluator.add(&job, rule(&number.to_string(), "signal"), OWNER).unwrap();
    }
    assert_eq!(evaluator.add(&job, rule("more", "oom"), OWNER), Err(AddError::TooMany));
    assert_eq!(evaluator.list(job.handle).0.len(), RULES_OF_JOB + 1);
    let name = |name: &str| Identifier::try_from(name).unwrap();
    assert!(evaluator.remove(job.handle, &name("0")) && !evaluator.remove(job.handle, &name("0")));
    assert!(!evaluator.remove(job.handle, &name("site")), "a user cannot remove a rule of the site");
    evaluator.set_site(Vec::new());
    assert_eq!(evaluator.list(job.handle).0.len(), RULES_OF_JOB - 1);
}

#[test]
fn an_ended_job_is_forgotten_after_a_while() {
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.add(&job, rule("end", "signal"), OWNER).unwrap();
    evaluator.ended(job.handle, BEGIN_US, BEGIN_US);
    evaluator.forget_ended(BEGIN_US + AFTER_END_US - 1);
    let handle = evaluator.handle_of(&job.descriptor.job_id).unwrap();
    evaluator.event(handle, JobEvent::Signal, BEGIN_US, "signal 9");
    assert_eq!(fired(&mut evaluator).len(), 1);
    evaluator.forget_ended(BEGIN_US + AFTER_END_US);
    assert!(!evaluator.has_rules());
}

/// A rule without hold-off whose condition changes with every sample, as if its own lease raised the period.
#[test]
fn a_rule_that_fires_itself_ends_with_its_budget() {
    let (mut evaluator, job) = (evaluator(), job(1));
    let fields = RuleFields {
        name: "loop".to_owned(),
        when: "cpu.usage > 5".to_owned(),
        raise: [("*".to_owned(), "100us".to_owned())].into(),
        hold_off: Some("100us".to_owned()),
        firings: Some(1000),
        ..RuleFields::default()
    };
    for number in 0..RULES_OF_JOB {
        let rule = Rule::parse(&RuleFields { name: number.to_string(), ..fields.clone() }).unwrap();
        evaluator.add(&job, rule, OWNER).unwrap();
    }
    let shape = shape(&job, &[("cpu.usage", Kind::Gauge)]);
    let (mut at_us, mut period_us, mut seen) = (BEGIN_US, SECOND_US, Vec::new());
    while at_us < BEGIN_US + 10 * SECOND_US {
        evaluator.samples(&batch(&shape, &[(at_us, &[0]), (at_us + period_us / 2, &[9])]), Voice::Plan);
        let fired = fired(&mut evaluator);
        assert!(fired.len() <= RULES_OF_JOB);
        if !fired.is_empty() {
            period_us = (period_us / 2).max(200);
        }
        seen.extend(fired);
        at_us += period_us;
    }
    // What the bucket of all jobs lets through in 10 s.
    assert!((150..=200).contains(&seen.len()), "{}", seen.len());
    // Without end, the budget of the day.
    for second in 10..3_000 {
        let at_us = BEGIN_US + second * SECOND_US;
        for part in 0..2 {
            let at_us = at_us + part * 20_000;
            evaluator.samples(&batch(&shape, &[(at_us, &[0]), (at_us + 10_000, &[9])]), Voice::Plan);
        }
        seen.extend(self::fired(&mut evaluator));
    }
    assert_eq!(seen.len(), 1000 * RULES_OF_JOB);
    let held_back: u64 = evaluator.list(job.handle).0.iter().map(|listed| listed.held_back).sum();
    assert!(held_back > 50_000, "{held_back}");
}

#[test]
fn times_that_go_back_give_no_second_budget() {
    const DAY_US: i64 = 86_400_000_000;
    let (mut evaluator, job) = (evaluator(), job(1));
    evaluator.add(&job, rule("end", "signal"), OWNER).unwrap();
    let midnight_us = (BEGIN_US / DAY_US + 1) * DAY_US;
    for number in 0..100 {
        let at_us = if number % 2 == 0 { midnight_us - 61 * SECOND_US } else { midnight_us };
        evaluator.event(job.handle, JobEvent::Signal, at_us + number, "signal 9");
    }
    assert_eq!(fired(&mut evaluator).len(), 2, "one each day: the hold-off is a minute");
    for at_us in [i64::MAX, i64::MIN, 0] {
        evaluator.event(job.handle, JobEvent::Signal, at_us, "signal 9");
    }
    assert_eq!(fired(&mut evaluator).len(), 1);
}

#[test]
fn values_that_are_no_numbers_hold_no_condition() {
    let (mut evaluator, job) = (evaluator(), job(1));
    for (name, when) in [("a", "cpu.usage != 1"), ("b", "rate(cpu.usage) != 1"), ("c", "cpu.usage < 1")] {
        evaluator.add(&job, rule(name, when), OWNER).unwrap();
    }
    let mut floats = shape(&job, &[("cpu.usage", Kind::Gauge)]);
    for column in &mut Arc::get_mut(&mut floats).unwrap().columns {
        column.metric.1.number = Number::Float;
    }
    let nan = f64::NAN.to_bits();
    evaluator.samples(&batch(&floats, &[(BEGIN_US, &[nan]), (BEGIN_US + SECOND_US, &[nan])]), Voice::Plan);
    assert_eq!(fired(&mut evaluator), []);
}

/// Times at which a value has been above 5 for `lasts` samples, with no firing before it was below again, nor
/// within the hold-off.
fn naive(values: &[u64], lasts: usize, hold_off: i64, firings: usize) -> Vec<i64> {
    let (mut fired, mut has_held) = (Vec::new(), false);
    for end in 0..values.len() {
        let run = values[..=end].iter().rev().take_while(|value| **value > 5).count();
        let holds = run > lasts;
        let is_new = holds && !has_held;
        has_held = holds;
        let at = i64::try_from(end).unwrap();
        let may = fired.last().is_none_or(|last| at - last >= hold_off) && fired.len() < firings;
        if is_new && may {
            fired.push(at);
        }
    }
    fired
}

proptest! {
    #[test]
    fn durations_are_those_of_the_samples_times(
        values in prop::collection::vec(0_u64..10, 1..120),
        lasts in 0_usize..4,
        hold_off in 1_i64..8,
        firings in 1_u32..6,
        cuts in prop::collection::vec(1_usize..9, 120),
    ) {
        let (mut evaluator, job) = (evaluator(), job(1));
        let wait = if lasts > 0 { format!(" for {lasts}s") } else { String::new() };
        let fields = RuleFields {
            name: "r".to_owned(),
            when: format!("memory.current > 5{wait}"),
            hold_off: Some(format!("{hold_off}s")),
            firings: Some(firings),
            ..RuleFields::default()
        };
        evaluator.add(&job, Rule::parse(&fields).unwrap(), OWNER).unwrap();
        let shape = shape(&job, &[("memory.current", Kind::Gauge)]);
        let (mut seen, mut from) = (Vec::new(), 0);
        for cut in cuts {
            let to = (from + cut).min(values.len());
            let mut one = Batch::default();
            let index = one.add_shape(&shape);
            for (place, value) in values.iter().enumerate().take(to).skip(from) {
                let time_us = BEGIN_US + i64::try_from(place).unwrap() * SECOND_US;
                one.push(index, Instant { deadline: None, time_us }, [Some(*value)].into_iter()).unwrap();
            }
            evaluator.samples(&one, Voice::Plan);
            seen.extend(fired(&mut evaluator).into_iter().map(|(_, at_us)| at_us / SECOND_US));
            from = to;
        }
        let day_us = BEGIN_US / 86_400_000_000;
        prop_assume!((BEGIN_US + 120 * SECOND_US) / 86_400_000_000 == day_us);
        prop_assert_eq!(seen, naive(&values[..from], lasts, hold_off, firings as usize));
    }
}
