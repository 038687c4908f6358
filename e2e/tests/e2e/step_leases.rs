//! Leases of steps and tasks: users change the sampling of the steps of their own jobs for a limited time.

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::{require, stored, tests, wait_until};
use polymeter_store::reader::{PlanChangeRow, SeriesScope};
use serde_json::json;

tests![a_lease_of_steps_concerns_their_periods_and_expires, leases_of_steps_are_refused_as_those_of_jobs,];

/// Plan of steps and tasks: metric, level, period and cause.
fn step_plan(fixture: &Fixture) -> Vec<[String; 4]> {
    let answer = fixture.agent.ask(&json!({"verb": "plan", "job": "x"}));
    let lines = answer["plan"].as_array().unwrap().iter().filter(|line| line["level"].is_string());
    lines
        .map(|line| ["metric", "level", "period", "cause"].map(|key| line[key].as_str().unwrap().to_owned()))
        .collect()
}

fn times_us(fixture: &Fixture, metric: &str, labels: &str) -> Vec<i64> {
    let mut reader = fixture.env.reader();
    let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
    let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
    let series = samples.get(&(metric.to_owned(), labels.to_owned()));
    series.map(|series| series.points.iter().map(|point| point.0).collect()).unwrap_or_default()
}

fn changes(fixture: &Fixture) -> Vec<PlanChangeRow> {
    let mut reader = fixture.env.reader();
    let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
    let mut changes = reader.plan_changes(job.job_key).unwrap();
    changes.retain(|change| change.level.is_some());
    changes
}

fn a_lease_of_steps_concerns_their_periods_and_expires() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let steps = ["step_0", "step_1"].map(|name| fixture.job.step(name));
    let answer = fixture.granted(OWNER, &["--steps", "cpu.usage=10ms"]);
    assert_eq!((&answer["level"], &answer["targets"]), (&json!("step"), &json!(2)), "{answer}");
    assert_eq!(answer["metrics"], json!({"cpu.usage": "10ms"}), "{answer}");
    assert!(answer["cost"]["samples_per_s"].as_f64().unwrap() > 200.0, "both steps cost: {answer}");
    assert_eq!(step_plan(&fixture), [["cpu.usage", "step", "10ms", "lease"].map(str::to_owned)]);
    assert!(fixture.is("cpu.usage", "500ms", "baseline"), "the job as a whole keeps its period");
    let shown = String::from_utf8(fixture.user(OWNER, "plan", &["--job", "x"]).stdout).unwrap();
    assert!(shown.contains("steps") && shown.contains("lease of you"), "{shown}");
    for labels in ["step=0", "step=1"] {
        wait_until(&format!("the samples of {labels} come close together"), || {
            let times = times_us(&fixture, "cpu.usage", labels);
            times.windows(2).filter(|pair| pair[1] - pair[0] < 100_000).count() > 50
        });
    }
    // A step that begins during the lease, and the tasks, which have no lease.
    let later = fixture.job.step("step_2");
    let task = later.step("task_0");
    wait_until("the later step is sampled", || !times_us(&fixture, "cpu.usage", "step=2").is_empty());
    assert!(times_us(&fixture, "cpu.usage", "step=2,task=0").is_empty());

    // A further metric from the same file and a perf event; then the leases end, by reset and by time.
    let tasks = fixture.granted(OWNER, &["--tasks", "cpu.user=50ms", "perf.task_clock=50ms"]);
    assert_eq!((&tasks["level"], &tasks["targets"]), (&json!("task"), &json!(1)), "{tasks}");
    wait_until("the task is sampled", || !times_us(&fixture, "cpu.user", "step=2,task=0").is_empty());
    wait_until("its clock, too", || !times_us(&fixture, "perf.task_clock", "step=2,task=0").is_empty());
    assert_eq!(fixture.agent.ask(&json!({"verb": "reset", "job": "x"}))["ended"], 3);
    assert_eq!(step_plan(&fixture), Vec::<[String; 4]>::new());
    fixture.granted(OWNER, &["--steps", "cpu.usage=20ms", "--for", "2s"]);
    wait_until("the lease ends", || step_plan(&fixture).is_empty());

    wait_until("the store knows the end of the lease", || changes(&fixture).len() == 8);
    let of = |metric: &str, level: &str| -> Vec<(String, Option<i64>)> {
        let all = changes(&fixture).into_iter();
        let fitting = all.filter(|change| change.metric == metric && change.level.as_deref() == Some(level));
        fitting.map(|change| (change.cause, change.new_period_us)).collect()
    };
    let row = |cause: &str, period_us: Option<i64>| (cause.to_owned(), period_us);
    let ended = || row("lease_end", None);
    assert_eq!(
        of("cpu.usage", "step"),
        [row("lease", Some(10_000)), ended(), row("lease", Some(20_000)), ended()]
    );
    for metric in ["cpu.user", "perf.task_clock"] {
        assert_eq!(of(metric, "task"), [row("lease", Some(50_000)), ended()]);
    }
    let first = &changes(&fixture)[0];
    assert_eq!((first.actor.as_deref(), first.until_ns > Some(first.time_ns)), (Some("uid 64001"), true));
    drop((task, later, steps));
    fixture.end();
}

fn leases_of_steps_are_refused_as_those_of_jobs() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let refused = |uid: u32, more: &[&str]| fixture.refused(uid, "set", &[&["--job", "x"], more].concat());
    assert!(refused(OTHER_USER, &["--steps", "cpu.usage=10ms"]).contains("unknown job x, or not yours"));
    let message = refused(OWNER, &["--steps", "cpu.usage=500us"]);
    assert!(message.contains("the shortest period allowed for cpu.usage is 1ms"), "{message}");
    let message = refused(OWNER, &["--tasks", "node.load1=1s"]);
    assert!(message.contains("no metric of tasks matches node.load1"), "{message}");
    let message = refused(OWNER, &["--steps", "cpu.usage=10ms", "--for", "2h"]);
    assert!(message.contains("the longest lease allowed is 1h"), "{message}");
    let of_node = json!({"verb": "set", "level": "step", "plan": {"cpu.usage": "1s"}});
    assert_eq!(fixture.agent.ask(&of_node)["field"], "level");
    let of_nothing = json!({"verb": "set", "job": "x", "level": "rank", "plan": {"cpu.usage": "1s"}});
    assert_eq!(fixture.agent.ask(&of_nothing)["code"], "invalid");
    // Without a step, the lease waits for one.
    let answer = fixture.granted(OWNER, &["--steps", "cpu.usage=10ms"]);
    assert_eq!(
        (&answer["targets"], &answer["metrics"]["cpu.usage"]),
        (&json!(0), &json!("10ms")),
        "{answer}"
    );
    let step = fixture.job.step("step_batch");
    wait_until("it is sampled", || !times_us(&fixture, "cpu.usage", "step=batch").is_empty());
    drop(step);
    fixture.end();
}
