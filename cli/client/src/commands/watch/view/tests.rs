//! Tests of the view: it processes the agent's lines and keys, and is drawn.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use crossterm::style::Color;
use serde_json::{Value, json};

use polymeter_proto::control::{Answer, Request, ResetRequest, SetRequest};

use super::input::LEASE;
use super::recent_series::WINDOW_US;
use super::*;
use crate::failure::Failure;
use crate::local::JobFacts;

const NOW_US: i64 = 1_790_000_000_000_000;

fn receive(view: &mut View, line: Value) {
    view.handle_answer(serde_json::from_value(line).unwrap());
}

fn samples(metric: &str, labels: Value, kind: &str, values: &[f64]) -> Value {
    let unit = if kind == "counter" { "nanoseconds" } else { "bytes" };
    let count = i64::try_from(values.len()).unwrap();
    let times_us: Vec<i64> = (0..count).map(|at| NOW_US + (at + 1 - count) * 1_000_000).collect();
    json!({"answer": "samples", "metric": metric, "labels": labels, "unit": unit, "kind": kind, "period": "1s",
        "times_us": times_us, "values": values})
}

fn plan(metric: &str, period: &str) -> Value {
    json!({"metric": metric, "period": period, "cause": "baseline"})
}

fn view() -> View {
    let mut view = View::new(Some("4711".to_owned()), Vec::new());
    view.tick(NOW_US);
    let lease = json!({"metric": "memory.current", "period": "1s", "cause": "lease", "actor": "uid 1000",
        "until_us": NOW_US + 540_000_000});
    let plan =
        [plan("cpu.usage", "1s"), plan("cpu.usage.per_cpu", "1s"), plan("pids.current", "1min"), lease];
    receive(&mut view, json!({"answer": "plan", "plan": plan, "unavailable": []}));
    receive(&mut view, samples("cpu.usage", json!({}), "counter", &[0.0, 0.5e9, 1.5e9]));
    receive(&mut view, samples("cpu.usage.per_cpu", json!({"cpu": "0"}), "counter", &[0.0, 0.0]));
    receive(&mut view, samples("cpu.usage.per_cpu", json!({"cpu": "1"}), "counter", &[0.0, 1e9]));
    receive(&mut view, samples("memory.current", json!({}), "gauge", &[1e6, 104_857_600.0]));
    let tally =
        json!({"due": 1010, "taken": 999, "late": 3, "missed": 1, "absent": 10, "dropped": 2, "not_kept": 0});
    receive(&mut view, json!({"answer": "progress", "seconds": 12.3, "tally": tally, "cpu_percent": 0.654}));
    view
}

fn drawn(view: &View, width: usize, height: usize) -> Vec<String> {
    let lines = view.lines(width, height);
    assert_eq!(lines.len(), height);
    lines.iter().map(|line| line.content().trim_end().to_owned()).collect()
}

fn press(view: &mut View, code: KeyCode) -> ViewAction {
    view.handle_key(code.into())
}

fn letter(view: &mut View, letter: char) -> ViewAction {
    press(view, KeyCode::Char(letter))
}

fn set(metric: &str, period: &str, duration: &str) -> ViewAction {
    ViewAction::Ask(Box::new(Request::Set(SetRequest {
        job: Some("4711".to_owned()),
        level: None,
        ring: false,
        plan: [(metric.to_owned(), period.to_owned())].into(),
        duration: Some(duration.to_owned()),
    })))
}

#[test]
fn a_wide_terminal_shows_all_columns() {
    let mut shown = view();
    let facts = JobFacts { started_us: Some(NOW_US - 93_784_000_000), cores: Some(8) };
    shown.set_facts(facts, false);
    let lines = drawn(&shown, 80, 24);
    assert_eq!(lines[0], "job 4711  1-02:03:04  1 of 8 cores  100 MiB  agent 0.65 % CPU  watched 12 s");
    assert_eq!(lines[1], "99.90 % of 1000 taken, 1 missed, 2 dropped, 3 late");
    let head = "  METRIC                            NOW PERIOD REASON           LAST MINUTE";
    assert!(
        lines[2].starts_with("  METRIC") && lines[2].contains("NOW PERIOD REASON"),
        "{head}\n{}",
        lines[2]
    );
    let row = |name: &str| lines.iter().skip(3).find(|line| line.contains(name)).unwrap().clone();
    assert!(row("cpu.usage ").starts_with("> cpu.usage ") && row("cpu.usage ").contains(" 1 core "));
    assert!(row("{cpu=1}").contains(" 1 core ") && row("{cpu=0}").contains("0 cores"), "{lines:#?}");
    assert!(row("memory.current").contains("100 MiB     1s lease of uid 10…"), "{lines:#?}");
    assert!(row("memory.current").ends_with('█'), "{lines:#?}");
    assert!(
        row("pids.current").contains(" -   1min baseline"),
        "a metric without samples has a row: {lines:#?}"
    );
    assert_eq!(lines[21], "cpu.usage: baseline");
    assert!(lines[22].ends_with("█ 0 cores to 1 core"), "{lines:#?}");
    assert!(lines[23].starts_with("? help  q quit  + - period"), "{lines:#?}");
}

#[test]
fn a_small_terminal_shows_the_essentials() {
    let mut view = view();
    let lines = drawn(&view, 40, 10);
    assert_eq!(lines[0], "job 4711  1 core  100 MiB");
    assert_eq!(lines[1], "99.90 % of 1000 taken, 1 missed");
    assert_eq!(lines[3], "> cpu.usage                1 core     1s");
    assert_eq!(lines[4], "  cpu.usage…pu{cpu=0}     0 cores     1s");
    assert_eq!(lines[8], "cpu.usage: baseline");
    assert_eq!(lines[9], "? help  q quit  + - period  r reset");
    press(&mut view, KeyCode::End);
    assert_eq!(drawn(&view, 40, 10)[7], "> pids.current                  -   1min");
    for width in 1..90 {
        for height in 2..26 {
            let lines = drawn(&view, width, height);
            let mark = if width < 36 { ">" } else { "> pids.current" };
            let is_visible = lines.iter().any(|line| line.starts_with(mark));
            assert!(is_visible, "the selected row is visible at {width}x{height}: {lines:#?}");
        }
    }
    drawn(&view, 0, 0);
    drawn(&view, 1, 1);
}

#[test]
fn memory_is_shown_with_its_limit_if_there_is_one() {
    let mut view = view();
    receive(&mut view, samples("memory.limit", json!({}), "gauge", &[209_715_200.0]));
    assert!(
        drawn(&view, 80, 24)[0].contains("  100 MiB of 200 MiB (50 %)  "),
        "{:?}",
        drawn(&view, 80, 24)[0]
    );
    receive(&mut view, samples("memory.limit", json!({"step": "0"}), "gauge", &[1.0]));
    receive(&mut view, samples("memory.limit", json!({"node": "n2"}), "gauge", &[9.2e18]));
    assert!(
        drawn(&view, 80, 24)[0].contains("  100 MiB  "),
        "a node without a limit: {:?}",
        drawn(&view, 80, 24)[0]
    );
}

#[test]
fn only_selected_metrics_have_rows_and_all_count_for_the_title() {
    let mut view = View::new(Some("4711".to_owned()), vec!["pids.*".parse().unwrap()]);
    view.tick(NOW_US);
    receive(&mut view, samples("pids.current", json!({}), "gauge", &[7.0]));
    receive(&mut view, samples("cpu.usage", json!({"node": "n1"}), "counter", &[0.0, 0.5e9]));
    receive(&mut view, samples("cpu.usage", json!({"node": "n2"}), "counter", &[0.0, 1.5e9]));
    let lines = drawn(&view, 80, 24);
    assert_eq!(lines[0], "job 4711  2 cores");
    assert!(lines[1].starts_with("stored samples of all nodes, the newest "), "{}", lines[1]);
    assert!(!lines[3..].iter().any(|line| line.contains("cpu.usage")), "{lines:#?}");
}

fn colours(view: &View) -> [Option<Color>; 3] {
    let lines = view.lines(80, 24);
    let of = |text: &str| {
        lines.iter().find(|line| line.content().contains(text)).unwrap().style().foreground_color
    };
    [of("1 missed"), of("lease of you"), of("cpu.usage ")]
}

#[test]
fn colours_mark_losses_and_own_leases() {
    let mut view = view();
    let own = format!("uid {}", rustix::process::geteuid().as_raw());
    let lease = json!({"metric": "pids.current", "period": "1s", "cause": "lease", "actor": own});
    receive(
        &mut view,
        json!({"answer": "plan", "plan": [plan("cpu.usage", "1s"), lease], "unavailable": []}),
    );
    assert_eq!(colours(&view), [None; 3]);
    view.set_facts(JobFacts::default(), true);
    assert_eq!(colours(&view), [Some(Color::Yellow), Some(Color::Green), None]);
}

fn selected(view: &View) -> Option<String> {
    let lines = drawn(view, 80, 24);
    lines
        .iter()
        .find(|line| line.starts_with("> "))
        .map(|line| line[2..].split(' ').next().unwrap().to_owned())
}

#[test]
fn rows_are_selected_and_filtered() {
    let mut view = view();
    press(&mut view, KeyCode::Down);
    letter(&mut view, 'j');
    assert_eq!(selected(&view).as_deref(), Some("cpu.usage.per_cpu{cpu=1}"));
    receive(&mut view, samples("a.first", json!({}), "gauge", &[1.0]));
    assert_eq!(
        selected(&view).as_deref(),
        Some("cpu.usage.per_cpu{cpu=1}"),
        "a new row does not change the selection"
    );
    press(&mut view, KeyCode::PageDown);
    press(&mut view, KeyCode::Down);
    assert_eq!(selected(&view).as_deref(), Some("pids.current"));
    press(&mut view, KeyCode::Up);
    assert_eq!(selected(&view).as_deref(), Some("memory.current"));
    for key in "/pu=0".chars() {
        assert_eq!(letter(&mut view, key), ViewAction::None);
    }
    assert!(drawn(&view, 80, 24)[23].starts_with("/pu=0_"));
    assert_eq!(selected(&view).as_deref(), Some("cpu.usage.per_cpu{cpu=0}"));
    for key in "xq".chars() {
        assert_eq!(letter(&mut view, key), ViewAction::None, "in a filter q is a letter");
    }
    assert!(drawn(&view, 80, 24).iter().any(|line| line.contains("no sampled metric matches")));
    assert_eq!(letter(&mut view, '+'), ViewAction::None);
    press(&mut view, KeyCode::Esc);
    assert_eq!(selected(&view).as_deref(), Some("memory.current"));
    assert_eq!(letter(&mut view, 'q'), ViewAction::Quit);
}

fn granted(period: &str) -> Answer {
    let cost = json!({"cpu_percent": 0.123, "samples_per_s": 10.0, "bytes_per_s": 5.0});
    serde_json::from_value(json!({"answer": "granted", "metrics": {"cpu.usage": period}, "unavailable": [],
            "cost": cost, "until_us": NOW_US + 600_000_000}))
    .unwrap()
}

#[test]
fn keys_change_periods_and_the_answer_is_shown() {
    let mut view = view();
    assert_eq!(letter(&mut view, '+'), set("cpu.usage", "500ms", LEASE));
    assert!(drawn(&view, 80, 24)[23].starts_with("waiting for the agent"));
    assert_eq!(letter(&mut view, '+'), ViewAction::None, "one request at a time");
    assert_eq!(view.handle_reply(Ok(granted("500ms"))), ViewAction::None);
    let lines = drawn(&view, 80, 24);
    assert!(
        lines[23].starts_with("cpu.usage every 500ms for 10min; all sampling of the job costs 0.12 % of")
    );
    assert!(lines[3].contains("500ms lease"), "{lines:#?}");
    assert_eq!(lines[21], "cpu.usage: lease, ends in 10 min");
    assert_eq!(letter(&mut view, '-'), set("cpu.usage", "1s", LEASE));
    view.handle_reply(Ok(granted("1s")));
    assert_eq!(letter(&mut view, '-'), set("cpu.usage", "2s", LEASE));
    view.handle_reply(Ok(granted("1s")));
    assert!(
        drawn(&view, 80, 24)[23]
            .starts_with("cpu.usage stays at 1s: another lease or the baseline requires it")
    );
    assert_eq!(
        letter(&mut view, 'r'),
        ViewAction::Ask(Box::new(Request::Reset(ResetRequest { job: Some("4711".to_owned()), level: None })))
    );
    view.handle_reply(Ok(serde_json::from_value(json!({"answer": "reset", "ended": 2})).unwrap()));
    assert_eq!(drawn(&view, 80, 24)[23], "2 leases ended");
}

fn refused(code: &str, instead: Option<&str>) -> Result<Answer, Failure> {
    let refused =
        json!({"answer": "refused", "code": code, "message": "no, for a reason", "instead": instead});
    Ok(serde_json::from_value(refused).unwrap())
}

#[test]
fn refusals_are_shown_and_a_shorter_lease_is_requested() {
    let mut view = view();
    letter(&mut view, '+');
    assert_eq!(view.handle_reply(refused("shortest_period", Some("1s"))), ViewAction::None);
    assert_eq!(drawn(&view, 80, 24)[23], "refused: no, for a reason");
    letter(&mut view, '+');
    assert_eq!(view.handle_reply(refused("longest_lease", Some("5min"))), set("cpu.usage", "500ms", "5min"));
    assert_eq!(
        view.handle_reply(refused("longest_lease", Some("1min"))),
        ViewAction::None,
        "the request is repeated once"
    );
    letter(&mut view, '+');
    view.handle_reply(Err(Failure::Unreachable("cannot reach the agent".to_owned())));
    assert_eq!(drawn(&view, 80, 24)[23], "cannot reach the agent");
    receive(
        &mut view,
        json!({"answer": "samples", "metric": "user.loss", "kind": "gauge", "times_us": [NOW_US], "values": [0.25]}),
    );
    press(&mut view, KeyCode::End);
    assert_eq!(letter(&mut view, '+'), ViewAction::None);
    assert!(drawn(&view, 80, 24)[23].contains("its values are pushed by the user"));
}

#[test]
fn the_end_of_samples_and_of_the_job_is_shown() {
    let mut view = view();
    receive(&mut view, json!({"answer": "lagged", "samples": 7}));
    assert!(drawn(&view, 80, 24)[1].contains("taken, 7 not shown, "));
    // A metric that is no longer sampled is removed when its chart is empty.
    receive(&mut view, json!({"answer": "plan", "plan": [plan("cpu.usage", "1s")], "unavailable": []}));
    assert!(drawn(&view, 80, 24).iter().any(|line| line.contains("memory.current")));
    view.tick(NOW_US + WINDOW_US + 1);
    receive(&mut view, json!({"answer": "plan", "plan": [plan("cpu.usage", "1s")], "unavailable": []}));
    assert!(!drawn(&view, 80, 24).iter().any(|line| line.contains("memory.current")));
    receive(&mut view, json!({"answer": "ended"}));
    assert!(view.has_ended());
    assert_eq!(drawn(&view, 80, 24)[0], "job 4711  ended  1 core  agent 0.65 % CPU  watched 12 s");
    assert_eq!(letter(&mut view, '+'), ViewAction::None);
    assert_eq!(drawn(&view, 80, 24)[23], "the job has ended");
}

#[test]
fn control_keys_and_help() {
    let mut view = view();
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(view.handle_key(control('c')), ViewAction::Quit);
    assert_eq!(view.handle_key(control('z')), ViewAction::Suspend);
    letter(&mut view, '?');
    assert!(drawn(&view, 80, 24).iter().any(|line| line.contains("sample it at a shorter period")));
    assert_eq!(letter(&mut view, 'q'), ViewAction::None, "any key leaves the help only");
    assert!(drawn(&view, 80, 24)[3].starts_with("> cpu.usage"));
}

#[test]
fn a_metric_that_is_not_selected_has_no_row() {
    let mut view = View::new(None, vec!["cpu.*".parse().unwrap()]);
    let plan = [plan("cpu.usage", "1s"), plan("memory.current", "1s")];
    receive(&mut view, json!({"answer": "plan", "plan": plan, "unavailable": []}));
    let lines = drawn(&view, 80, 24);
    assert_eq!((lines[0].as_str(), lines[1].as_str()), ("node", "waiting for samples"));
    assert!(
        lines[3].contains("cpu.usage") && !lines.iter().any(|line| line.contains("memory")),
        "{lines:#?}"
    );
}
