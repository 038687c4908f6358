//! Comparison of docs/reference/json.md with the output of the commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::{program, require, stored, tests, wait_until};
use serde_json::Value;

tests![
    every_command_with_json_is_documented,
    keys_of_commands_about_stored_jobs_are_documented,
    keys_of_commands_about_running_jobs_are_documented,
    keys_of_refusals_are_documented,
];

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md")).unwrap()
}

/// Keys in the table of a section; true for those that may be left out.
fn documented(section: &str) -> Vec<(String, bool)> {
    let page = page();
    let text =
        page.split(&format!("\n## {section}\n")).nth(1).unwrap_or_else(|| panic!("no section {section}"));
    let rows = text.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let keys = rows.flat_map(|row| {
        let cell = row.split(" | ").next().unwrap().trim_start_matches("| ").to_owned();
        cell.split(", ").map(|key| key.trim_matches('`').to_owned()).collect::<Vec<_>>()
    });
    keys.map(|key| (key.trim_end_matches('?').to_owned(), key.ends_with('?'))).collect()
}

/// Adds the path of each key in a value. Elements of lists have the path `[]`.
fn add_paths(value: &Value, at: &str, paths: &mut BTreeSet<String>) {
    if let Value::Array(elements) = value {
        elements.iter().for_each(|element| add_paths(element, &format!("{at}[]"), paths));
    } else if let Value::Object(keys) = value {
        for (key, value) in keys {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            add_paths(value, &path, paths);
            paths.insert(path);
        }
    }
}

/// Compares the keys of a section with those of an output, down to the depth that the section describes.
fn compare(section: &str, output: &Value) {
    let documented = documented(section);
    let mut paths = BTreeSet::new();
    add_paths(output, "", &mut paths);
    assert!(!paths.is_empty(), "{section}: the output has no keys: {output}");
    for path in &paths {
        let is_container = documented.iter().any(|(key, _)| is_below(key, path));
        let is_known = documented.iter().any(|(key, _)| path == key || is_below(path, key));
        assert!(is_known || is_container, "{section}: `{path}` is not documented");
    }
    for (key, is_optional) in &documented {
        assert!(*is_optional || paths.contains(key), "{section}: no `{key}` in {output:#}");
    }
}

fn is_below(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.') || rest.starts_with('['))
}

fn json(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn polymeter(arguments: &[&str]) -> Value {
    let output = program("polymeter").args(arguments).env_remove("POLYMETER_COLLECTOR").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    json(&output)
}

/// Adds the commands whose help has `--json`.
fn add_commands(words: &[&str], commands: &mut BTreeSet<String>) {
    let output = program("polymeter").args(words).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    if help.lines().any(|line| line.trim_start().starts_with("--json")) && !words.is_empty() {
        commands.insert(format!("polymeter {}", words.join(" ")));
    }
    let listed = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        add_commands(&[words, &[name]].concat(), commands);
    }
}

fn every_command_with_json_is_documented() {
    let mut commands = BTreeSet::from(["polymeter --version".to_owned()]);
    add_commands(&[], &mut commands);
    assert!(commands.len() > 15, "{commands:?}");
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `polymeter")?.split_once(" | "));
    let named: BTreeSet<String> = rows
        .flat_map(|(names, _)| {
            format!("`polymeter{names}")
                .split(", ")
                .map(|name| name.trim_matches('`').to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(named, commands);
}

fn keys_of_commands_about_stored_jobs_are_documented() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let store = format!("sqlite:{}", path("run.db"));
    for _ in 0..2 {
        let run = ["run", "--name", "same", "-o", &path("run.db"), "--", "true"];
        let run = program("polymeter").args(run).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }
    let jobs = polymeter(&["jobs", "--ended", "--store", &store, "--json"]);
    compare("Stored jobs", &jobs);
    let job = |number: usize| jobs[number]["job"].as_str().unwrap().to_owned();
    let exported = polymeter(&["export", &job(0), "--store", &store, "-o", &path("x.csv"), "--json"]);
    compare("Exports", &exported);
    compare("Comparisons", &polymeter(&["compare", &job(0), &job(1), "--store", &store, "--json"]));
    let trend = polymeter(&["trend", "same", "--store", &store, "--json"]);
    compare("Trends", &trend);
    assert_eq!(trend["runs"].as_array().unwrap().len(), 2, "{trend}");
    let groups = polymeter(&["usage", "--store", &store, "--json"]);
    compare("Usage", &groups);
    assert_eq!(groups["groups"][0]["jobs"], 2, "{groups}");
    assert_eq!(polymeter(&["notices", "--store", &store, "--json"]), Value::Array(Vec::new()));
    compare("Proposals", &polymeter(&["advise", "--name", "x", "--store", &store, "--json"]));
    compare("Metrics", &polymeter(&["metrics", "--json"]));
    compare("Kept jobs", &polymeter(&["store", "keep", &job(0), "--store", &store, "--json"]));
    compare("Confirmed clocks", &polymeter(&["store", "confirm-clock", "--store", &store, "--json"]));
    compare("Stores", &polymeter(&["store", "--store", &store, "--json"]));
    compare("Key pairs", &polymeter(&["keygen", "--out", &path(""), "--name", "n1", "--json"]));
    compare("Roofs", &polymeter(&["calibrate", "--socket", "/nowhere", "--dry-run", "--json"]));
    compare("Versions", &polymeter(&["--version", "--json"]));
}

fn keys_of_commands_about_running_jobs_are_documented() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    let socket = fixture.nodes[0].agent.socket.to_str().unwrap();
    compare("Status", &polymeter(&["status", "--socket", socket, "--json"]));
    compare("Tracked jobs", &polymeter(&["jobs", "--socket", socket, "--json"]));
    wait_until("the store has the job", || stored::job(&mut fixture.env.reader(), "x").is_some());
    compare("Stored jobs", &json(&fixture.user(OWNER, &["jobs", "--json"])));
    for request in
        [&["plan"][..], &["set", "cpu.usage=20ms"], &["mark", "here"], &["push", "loss=1"], &["reset"]]
    {
        let (answer, status) = fixture.answers(OWNER, request);
        assert_eq!(status, 0, "{answer}");
        compare("Answers of nodes", &answer);
    }
    compare("Refusals and failures", &fixture.answers(OTHER_USER, &["plan"]).0);
    fixture.end();
}

fn keys_of_refusals_are_documented() {
    let fails: [(&[&str], i32, &str); 4] = [
        (&["status", "--socket", "/nowhere/agent.sock", "--json"], 3, "unreachable"),
        (&["set", "--job", "x", "cpu.usage", "--json"], 2, "usage"),
        (&["report", "--store", "sqlite:/nowhere/run.db", "--json"], 1, "failed"),
        (&["status", "--nonsense", "--json"], 2, "usage"),
    ];
    for (arguments, status, code) in fails {
        let output = program("polymeter").args(arguments).env_remove("POLYMETER_COLLECTOR").output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let refusal = json(&output);
        assert_eq!(refusal["code"], code, "{refusal}");
        compare("Refusals and failures", &refusal);
    }
}
