//! Comparison of the reference pages with the programs. `POLYMETER_BLESS=1` writes the generated pages.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::{Need, program, require, tests};
use rusqlite::Connection;
use serde_json::{Map, Value};

mod configuration;
pub(crate) mod guides;

tests![
    command_reference_is_current,
    configuration_files_follow_from_the_keys,
    configuration_reference_is_current,
    the_words_of_a_key_are_accepted,
    sql_reference_lists_every_column,
    readme_report_has_the_form_of_a_run,
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares a page with its file, or writes the file if `POLYMETER_BLESS` is set.
fn must_be_current(page: &str, text: &str) {
    let path = root().join(page);
    let current = fs::read_to_string(&path).unwrap_or_default();
    // Programs are older than a file that is written again.
    if std::env::var_os("POLYMETER_BLESS").is_some() && current != text {
        return fs::write(path, text).unwrap();
    }
    assert_eq!(current, text, "{page} is old: run `make bless`");
}

fn add_help(text: &mut String, name: &str, words: &[&str]) {
    let output = program(name).args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let title = [&[name], words].concat().join(" ");
    write!(text, "\n## `{title}`\n\n```text\n{}\n```\n", help.trim_end()).unwrap();
    let commands = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        add_help(text, name, &[words, &[command]].concat());
    }
}

fn command_reference_is_current() {
    let mut text = "# Commands\n\n\
        The help of every program and command, as `--help` prints it. A test keeps this page current. The exit status is 0 for\n\
        success, 1 for a refusal or failure, 2 for wrong usage, and 3 if the agent or collector cannot be reached.\n"
        .to_owned();
    for name in ["polymeter", "polymeter-agent", "polymeter-collector"] {
        add_help(&mut text, name, &[]);
    }
    must_be_current("docs/reference/commands.md", &text);
}

fn configuration_files_follow_from_the_keys() {
    let mut options = Map::new();
    for program in configuration::programs() {
        must_be_current(&format!("deploy/{}.toml", program.name), &configuration::example(&program));
        options.insert(program.name.to_owned(), configuration::nix_options(&program.docs, ""));
    }
    let options = serde_json::to_string_pretty(&Value::Object(options)).unwrap();
    must_be_current("nix/modules/keys.json", &(options + "\n"));
}

fn configuration_reference_is_current() {
    let mut text = "# Configuration\n\n\
        The example configurations of [deploy/](../../deploy), which contain every key, its meaning and its default. They and this\n\
        page are written from the declarations of the keys. Every error of a configuration is reported with file and line\n\
        (`--check`); an unknown key is an error.\n"
        .to_owned();
    let [agent, collector] = configuration::programs().map(|program| configuration::example(&program));
    let client = fs::read_to_string(root().join("deploy/client.toml")).unwrap();
    for (title, name, example) in [
        ("The agent", "agent.toml", agent),
        ("The collector", "collector.toml", collector),
        ("The command on login nodes", "client.toml", client),
    ] {
        let example = example.trim_end();
        write!(text, "\n## {title}\n\n`/etc/polymeter/{name}`\n\n```toml\n{example}\n```\n").unwrap();
    }
    must_be_current("docs/reference/configuration.md", &text);
}

fn the_words_of_a_key_are_accepted() {
    for program in configuration::programs() {
        let mut lines = Vec::new();
        configuration::add_words(&mut lines, "", &program.docs);
        assert!(lines.len() > 5, "{lines:?}");
        for (key, text) in lines {
            let faults = (program.faults)(&text);
            assert!(!faults.contains(&format!("`{key}`: ")), "{text} {faults}");
        }
    }
}

/// Columns of each table and view, sorted.
type Tables = BTreeMap<String, Vec<String>>;

fn documented() -> Tables {
    let page = fs::read_to_string(root().join("docs/reference/sql.md")).unwrap();
    let mut tables = Tables::new();
    for section in page.split("\n### `").skip(1) {
        let (name, rest) = section.split_once('`').unwrap();
        let rest = rest.split("\n## ").next().unwrap();
        let rows = rest.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
        let columns = rows
            .flat_map(|(columns, _)| columns.split(", ").map(|column| column.trim_matches('`').to_owned()));
        let mut columns: Vec<String> = columns.collect();
        columns.sort();
        tables.insert(name.to_owned(), columns);
    }
    tables
}

fn sql_reference_lists_every_column() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store.db");
    let run = program("polymeter").args(["run", "-o"]).arg(&store).args(["--", "true"]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let connection = Connection::open(&store).unwrap();
    let mut statement = connection
        .prepare(
            "SELECT tables.name, columns.name FROM sqlite_master tables, pragma_table_info(tables.name) columns \
             WHERE tables.type IN ('table', 'view') AND tables.name NOT LIKE 'sqlite_%' \
             AND tables.name NOT LIKE 'polymeter_%' ORDER BY 1, 2",
        )
        .unwrap();
    let mut tables = Tables::new();
    let rows =
        statement.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    for row in rows {
        let (table, column) = row.unwrap();
        tables.entry(table).or_default().push(column);
    }
    assert_eq!(documented(), tables, "docs/reference/sql.md and the store's tables differ");
}

/// Label of each line of a report, and period of each series. Both are the same in every run.
fn labels(report: &str) -> Vec<Vec<&str>> {
    let lines = report.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let lines = lines.filter(|line| !line.starts_with("  ("));
    let mut is_series = false;
    let fields = lines.map(|line| {
        let words: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        is_series = words[0] == "metric" || (is_series && words[0] != "samples");
        let count = if words[0] == "metric" { words.len() } else { 1 + usize::from(is_series) };
        words[..count].to_vec()
    });
    fields.collect()
}

/// Runs the command of README's sample report. Series that are constant in this run are shown, too.
fn readme_report_has_the_form_of_a_run() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Perf]);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let sample = readme.split_once("```console\n$ polymeter run ").unwrap().1.split_once("\n```").unwrap().0;
    let (command, sample) = sample.split_once("\nCOMPLETED - ").unwrap();
    let script = format!("\"$0\" run --show all {command}");
    let run = program("polymeter");
    let output = Command::new("sh").args(["-c", &script]).arg(run.get_program()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = String::from_utf8(output.stderr).unwrap();
    let (wanted, printed) = (labels(sample), labels(&report));
    assert!(wanted.len() > 15, "{wanted:?}");
    for line in wanted {
        assert!(printed.contains(&line), "README.md has a line {line:?}, and a run prints:\n{report}");
    }
}
