//! Tests of several runs of one job id, as of a job that is requeued, with every kind of store: whenever the
//! frames of a run arrive, they belong to it.

use std::sync::Arc;

use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::Event;
use polymeter_proto::series::JobHandle;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{TestEnvironment, now_us};

scenarios! {
    a_late_end_closes_its_own_run,
    a_late_node_joins_the_run_of_its_time,
}

const SECOND_US: i64 = 1_000_000;

/// Seconds from the start of a run to that of the next, and to its end.
const RUN_S: i64 = 40;
const LASTS_S: i64 = 20;

#[derive(Debug, Clone, Copy)]
enum Part {
    Samples(u32),
    /// Seconds by which the time is later than that of the first report.
    End(u32, i64),
}

use Part::{End, Samples};

/// Adds a frame of a run on a node that begins each run `later_s` after the first node.
fn add(agent: &mut Agent, job_id: &str, begin_us: i64, part: Part, later_s: i64) {
    let start_us = |run: u32| begin_us + (i64::from(run) * RUN_S + later_s) * SECOND_US;
    match part {
        Samples(run) => {
            let shape: Arc<Shape> = shape(run + 1, Some(&job(run + 1, job_id, start_us(run))));
            for second in [5, 10] {
                agent.frame(&[(&shape, start_us(run) + second * SECOND_US, &values(second).0)], &[], &[]);
            }
        }
        End(run, after_s) => {
            let at_us = start_us(run) + (LASTS_S + after_s) * SECOND_US;
            agent.frame(&[], &[], &[Event::JobEnded { job: JobHandle(run + 1), at_us }]);
        }
    }
}

fn deliver(agent: &mut Agent) {
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Start and end of each run, in seconds after `begin_us`, with the number of its samples.
fn runs(environment: &TestEnvironment, job_id: &str, begin_us: i64) -> Vec<(i64, Option<i64>, usize)> {
    let seconds = |time_ns: i64| (time_ns / 1000 - begin_us) / SECOND_US;
    let jobs = environment.jobs().into_iter().filter(|job| job.job_id == job_id);
    jobs.map(|job| {
        let samples = environment.counts(polymeter_store::reader::SeriesScope::Job(job.job_key));
        (seconds(job.started_ns), job.ended_ns.map(seconds), samples.iter().sum())
    })
    .collect()
}

/// Up to four runs in their order. Each end comes at some time after the start of its run, and many come
/// again.
fn random_parts(seed: u64) -> Vec<Part> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % bound
    };
    let count = 1 + u32::try_from(below(4)).unwrap();
    let mut parts: Vec<Part> = (0..count).map(Samples).collect();
    for run in 0..count {
        let begun = parts.iter().position(|part| matches!(part, Samples(of) if *of == run)).unwrap();
        let place = begun + 1 + below(parts.len() - begun);
        parts.insert(place, End(run, 0));
        if below(2) == 0 {
            let again = place + 1 + below(parts.len() - place);
            parts.insert(again, End(run, i64::try_from(below(60)).unwrap()));
        }
    }
    parts
}

fn a_late_end_closes_its_own_run(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 3600 * SECOND_US;
    let mut all: Vec<Vec<Part>> = vec![
        vec![Samples(0), Samples(1), End(0, 0), End(1, 0)],
        vec![Samples(0), End(0, 0), Samples(1), End(0, 30), End(1, 0)],
        vec![Samples(0), Samples(1), End(1, 0), End(0, 0)],
        vec![Samples(0), End(0, 0), End(0, 0), Samples(1), End(1, 0), End(0, 45)],
        // The samples of the first run were dropped, except for the last ones.
        vec![Samples(1), Samples(0), End(0, 0), End(1, 0)],
    ];
    all.extend((1..20).map(random_parts));
    let id = |number: usize| (number + 7).to_string();
    let listen = environment.config().listen;
    let nodes = (1..).zip(&all).map(|(session, _)| (format!("n{session}"), session));
    let mut agents: Vec<Agent> =
        nodes.map(|(node, session)| Agent::new(&environment.context, &listen, &node, session)).collect();
    let steps = all.iter().map(Vec::len).max().unwrap();
    let mut collector = environment.collector();
    for step in 0..steps {
        if step % 3 == 2 {
            // It has no keys of jobs then.
            collector.stop().unwrap();
            collector = environment.collector();
        }
        for (number, (agent, parts)) in agents.iter_mut().zip(&all).enumerate() {
            if let Some(part) = parts.get(step) {
                add(agent, &id(number), begin_us, *part, 0);
                agent.send_from(0);
            }
        }
        agents.iter_mut().for_each(Agent::wait_until_acknowledged);
    }
    collector.stop().unwrap();
    for (number, parts) in all.iter().enumerate() {
        let count = parts.iter().filter(|part| matches!(part, Samples(_))).count();
        let expected: Vec<_> =
            (0..count as i64).map(|run| (run * RUN_S, Some(run * RUN_S + LASTS_S), 2 * 3)).collect();
        assert_eq!(runs(environment, &id(number), begin_us), expected, "{parts:?}");
    }
}

fn a_late_node_joins_the_run_of_its_time(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 3600 * SECOND_US;
    let collector = environment.collector();
    // On the first node the second run has ended, or still runs, when the frames of the other node come.
    for (job_id, session, has_ended) in [("7", 1, true), ("8", 3, false)] {
        let agent = |session| Agent::to(&environment.context, &collector, &format!("n{session}"), session);
        let (mut first, mut late) = (agent(session), agent(session + 1));
        let all = [Samples(0), End(0, 0), Samples(1), End(1, 0)];
        let (before, after) = all.split_at(if has_ended { 4 } else { 3 });
        before.iter().for_each(|part| add(&mut first, job_id, begin_us, *part, 0));
        deliver(&mut first);
        for part in all {
            add(&mut late, job_id, begin_us, part, 1);
            deliver(&mut late);
        }
        after.iter().for_each(|part| add(&mut first, job_id, begin_us, *part, 0));
        deliver(&mut first);
        let expected = [0, RUN_S].map(|start_s| (start_s, Some(start_s + LASTS_S + 1), 2 * 2 * 3)).to_vec();
        assert_eq!(runs(environment, job_id, begin_us), expected, "{job_id}");
        let jobs = environment.jobs().into_iter().filter(|job| job.job_id == job_id);
        assert!(jobs.into_iter().all(|job| job.nodes.len() == 2));
    }
    collector.stop().unwrap();
}
