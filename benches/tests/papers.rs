//! `polymeter-bench papers` with real short runs: killed, resumed, refused, and recomputed from its CSV.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_benches::clock::wait_for;

/// Needs neither root nor other programs.
const NAME: &str = "synthesio";

fn papers(out: &Path, seed: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter-bench"));
    // A killed experiment leaves its files.
    command.args(["papers", NAME, "--quick", "--seed", seed, "--out"]).arg(out).env("TMPDIR", out);
    command
}

fn finished(out: &Path, seed: &str) -> Output {
    papers(out, seed).output().unwrap()
}

/// The complete lines of the runs, without the head.
fn runs(results: &Path) -> Vec<String> {
    let text = fs::read_to_string(results).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter(|line| line.starts_with(char::is_numeric)).map(str::to_owned).collect()
}

#[test]
fn a_reader_that_has_gone_ends_it_without_a_message() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = tempfile::tempdir().unwrap();
    let ended = papers(out.path(), "5").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(!ended.status.success());
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn a_killed_run_continues_and_its_page_follows_from_its_lines() {
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().join(NAME);
    let results = directory.join("results.csv");
    let mut first = papers(out.path(), "5").stdout(Stdio::null()).spawn().unwrap();
    wait_for("two runs are done", 120, || (runs(&results).len() >= 2).then_some(())).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let kept = runs(&results);

    let second = finished(out.path(), "5");
    let stdout = String::from_utf8(second.stdout).unwrap();
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(stdout.contains("resumed after"), "{stdout}");
    let all = runs(&results);
    assert!(all.starts_with(&kept) && all.len() > kept.len(), "{kept:?} {all:?}");

    let mut rates: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for (number, line) in (1..).zip(&all) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[0], number.to_string());
        let cell = (fields[2].to_owned(), fields[3].to_owned());
        rates.entry(cell).or_default().push(fields.last().unwrap().parse().unwrap());
    }
    assert_eq!(rates.len(), 3, "{all:?}");
    let page = fs::read_to_string(directory.join("page.md")).unwrap();
    for ((setting, tool), values) in &rates {
        let [a, b] = values.as_slice() else { panic!("{setting} ran {} times", values.len()) };
        // Student's t at 97.5 % with one degree of freedom; the standard error is half of the distance.
        let (mean, half) = (f64::midpoint(*a, *b), 12.706_205 * (a - b).abs() / 2.0);
        let row = page.lines().find(|line| line.starts_with(&format!("| {setting} | {tool} | 2 |"))).unwrap();
        let shown = row.rsplit('|').nth(1).unwrap().trim();
        let (shown_mean, shown_half) = shown.split_once(" ± ").unwrap();
        for (shown, wanted) in [(shown_mean, mean), (shown_half, half)] {
            let shown: f64 = shown.parse().unwrap();
            assert!((shown - wanted).abs() <= 0.6 + 1e-3 * wanted, "{row}: {wanted}");
        }
    }
    assert!(
        page.contains("seed 5; 2 runs of each cell") && page.contains("Prometheus before 2.9.2, published")
    );
    for figure in ["time_wait_sockets", "system_percent", "system_us", "rate_per_s"] {
        let plot = fs::read_to_string(directory.join(format!("{figure}.svg"))).unwrap();
        assert!(plot.ends_with("</svg>\n") && page.contains(&format!("({figure}.svg)")));
    }

    let before = fs::read_to_string(&results).unwrap();
    let refused = finished(out.path(), "6");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("choose another directory"), "{error}");
    assert_eq!(fs::read_to_string(&results).unwrap(), before);
    let edited = before.replacen("\n1,1,", "\n1,2,", 1);
    fs::write(&results, edited).unwrap();
    let error = String::from_utf8(finished(out.path(), "5").stderr).unwrap();
    assert!(error.contains("line 1 of results.csv"), "{error}");
}

#[test]
fn an_unknown_experiment_is_refused_and_the_list_names_all() {
    let bench = env!("CARGO_BIN_EXE_polymeter-bench");
    let unknown = Command::new(bench).args(["papers", "no-such-paper"]).output().unwrap();
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert!(!unknown.status.success() && error.contains("`no-such-paper`"), "{error}");
    let list = Command::new(bench).args(["papers", "--list"]).output().unwrap();
    assert!(String::from_utf8(list.stdout).unwrap().lines().any(|line| line.starts_with(NAME)));
}
