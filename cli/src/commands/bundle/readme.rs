//! Page of a bundle: its contents, and how to repeat the run. Pure.

use std::fmt::Write;

use polymeter_proto::run::shell_word;
use polymeter_store::reader::{JobRow, PlanChangeRow};

use super::manifest;
use super::provenance::Provenance;
use crate::output::printable::printable_name;

const FILES: [(&str, &str); 16] = [
    ("job.json", "the job: id, owner, nodes, start, end and number of samples; name and command of a run"),
    ("report.txt, report.json", "resource usage, series, cost of the measurement and losses"),
    ("plot.svg", "the job's series over time"),
    (
        "samples.parquet",
        "every sample: time (UTC, microseconds), job_id, node, metric, unit, labels (a JSON object), value; count, min, max and sum of a window, whose last sample is the value; rows without job_id are the node's own samples while the job ran",
    ),
    (
        "kept.parquet, kept_intervals.csv",
        "samples of the intervals that rings kept, with the columns of samples.parquet, if there are some; and the intervals",
    ),
    ("firings.csv", "triggers that fired: why, what was done, and which nodes could not keep the interval"),
    (
        "stacks.folded, flame.html",
        "call stacks with their times in microseconds, and their flame graph, if some were sampled",
    ),
    ("series.csv", "unit, kind and number of samples of every series"),
    (
        "histograms.csv",
        "for metrics whose windows have histograms: how many samples of a series lie between a value and the next one, of counters how many rates",
    ),
    ("plan_changes.csv", "changes of periods, with time, reason and actor"),
    ("marks.csv", "instants and phases that users marked"),
    (
        "ledger.csv",
        "the number of samples due, taken, late, missed, absent, dropped, skipped, rejected, quarantined and stored, by source; quarantined samples have implausible times and are not in samples.parquet",
    ),
    ("losses.csv", "samples that never reached the store, with the reason"),
    ("provenance.json", "the program and revision that made the bundle, the time and the inputs"),
    ("machine.json", "the machine on which the bundle was made; not necessarily a node of the job"),
    ("description.toml", "the description of the experiment, if one was given"),
];

/// Escapes in CSV files keep spreadsheets from running formulas.
const CSV: &str = "\nIn the CSV files, text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return is prefixed with an apostrophe, since a spreadsheet would run it as a formula. Characters that control a terminal, change the direction of text or are invisible are escaped as `\\u{202e}`. report.json and samples.parquet contain the original marks and labels.\n";

pub(super) fn of_job(job: &JobRow, provenance: &Provenance, changes: &[PlanChangeRow]) -> String {
    // Viewers of Markdown pass elements of HTML on.
    let job_id = printable_name(&job.job_id).replace('&', "&amp;").replace('<', "&lt;");
    let mut text = format!("# Job {job_id}\n\n| file | contents |\n| --- | --- |\n");
    for (file, meaning) in FILES {
        // Writing to a String does not fail.
        writeln!(text, "| {file} | {meaning} |").ok();
    }
    text.push_str(CSV);
    let again = match &job.run {
        Some(_) => "To repeat the run with the same metrics and initial periods, in bash:",
        None => "To sample a command on one machine with the same metrics and initial periods:",
    };
    writeln!(text, "\n## Repeat the run\n\n{again}\n\n```sh\n{}\n```", repetition(job, provenance, changes))
        .ok();
    text.push_str("\nplan_changes.csv lists later changes of periods, which `polymeter set` makes.");
    text.push_str(match job.run.as_deref() {
        Some(run) if run.command.is_empty() => " COMMAND is not stored (`--no-command`).",
        Some(run) if run.is_cut => {
            " The command line or a variable was too long and is stored in part; run.command in job.json has that part."
        }
        Some(_) => "",
        None => " COMMAND is not stored.",
    });
    text + "\n" + &verification()
}

/// Shell commands that repeat a run: its directory, the environment variables that were stored, the options
/// of `polymeter run` and the command.
fn repetition(job: &JobRow, provenance: &Provenance, changes: &[PlanChangeRow]) -> String {
    let mut text = String::new();
    let mut options = period_options(changes);
    let mut command = None;
    if let Some(run) = job.run.as_deref() {
        // Writing to a String does not fail.
        if let Some(directory) = &run.directory {
            writeln!(text, "cd {} || exit", shell_word(directory)).ok();
        }
        let variables = run.assignments();
        if !variables.is_empty() {
            writeln!(text, "env {} \\", variables.join(" ")).ok();
            let names: Vec<&str> = run.environment.keys().map(String::as_str).collect();
            write!(options, " \\\n    --env {}", shell_word(&names.join(","))).ok();
        }
        if let Some(name) = &job.name {
            write!(options, " \\\n    --name {}", shell_word(name)).ok();
        }
        command = run.command_line().filter(|_| !run.is_cut);
    }
    let command = command.unwrap_or_else(|| "COMMAND".to_owned());
    text + &format!("{} run -o again.db{options} -- {command}", program(provenance))
}

pub(super) fn of_results(provenance: &Provenance) -> String {
    let mut text = "# Results of an experiment\n\nprovenance.json states the program and revision that made this bundle and the time; machine.json describes the machine.\n\n## Repeat the experiment\n\n".to_owned();
    match (&provenance.description, flake(provenance)) {
        (Some(_), Some(flake)) => {
            writeln!(text, "```sh\nnix run '{flake}#experiment' -- description.toml again\n```").ok();
        }
        (None, Some(flake)) => {
            writeln!(text, "Run `nix run '{flake}#experiment' -- NAME again ARGUMENT...` with the name and arguments in arguments.txt.").ok();
        }
        (_, None) => text.push_str(
            "The program that sealed these results does not know its revision: it was not built by the flake, or its sources had uncommitted changes. Tables of polymeter-bench state the revision that measured them in their first lines. See benches/README.md in the sources for how to run experiments.\n",
        ),
    }
    text + &verification()
}

fn verification() -> String {
    let name = manifest::NAME;
    format!(
        "\n## Verify\n\n`polymeter bundle verify .` lists files that were changed, removed or added. `sha256sum -c {name}` does so except for added files.\n"
    )
}

/// Command that runs this version.
fn program(provenance: &Provenance) -> String {
    flake(provenance).map_or_else(|| "polymeter".to_owned(), |flake| format!("nix run '{flake}' --"))
}

fn flake(provenance: &Provenance) -> Option<String> {
    let revision = provenance.program.build.revision.as_ref()?;
    Some(format!("git+{}?rev={revision}", env!("CARGO_PKG_REPOSITORY")))
}

/// Options of `polymeter run` for the initial periods.
fn period_options(changes: &[PlanChangeRow]) -> String {
    let mut metrics: Vec<&str> = Vec::new();
    let mut options = String::new();
    // The options of `polymeter run` are for the job as a whole.
    for change in changes.iter().filter(|change| change.level.is_none()) {
        let Some(sampling) = change.new_sampling() else { continue };
        if !metrics.contains(&change.metric.as_str()) {
            metrics.push(&change.metric);
            write!(options, " \\\n    -m {}={sampling}", change.metric).ok();
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use polymeter_client::version::Version;
    use polymeter_proto::run::Run;

    fn change(metric: &str, new_period_us: Option<i64>) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: 0,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old_period_us: None,
            new_period_us,
            old_window_us: None,
            new_window_us: None,
            cause: "baseline".to_owned(),
            actor: None,
            until_ns: None,
            level: None,
        }
    }

    fn job(run: Option<Run>) -> JobRow {
        serde_json::from_value(serde_json::json!({
            "job_key": 1, "job_id": "j1", "started_ns": 0, "sampled_ns": {"start": 0, "end": 9}, "lost_nodes": [],
            "nodes": ["n1"], "name": "it's", "run": run,
        }))
        .unwrap()
    }

    /// A shell runs the commands of the page; in it `polymeter` prints its arguments.
    #[test]
    fn a_shell_repeats_a_run_with_the_arguments_that_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let arguments: [&[u8]; 9] = [
            b"prog",
            b"",
            b"a b",
            b"it's",
            b"\x1b[31m'\\x41\n```\n",
            b"$HOME `id` \"",
            b"*~#!",
            b"\xff",
            "\u{202e}".as_bytes(),
        ];
        let variables = [("A".to_owned(), "x y'\n")];
        let run = Run::of(
            arguments.into_iter(),
            Some(directory.path().as_os_str().as_bytes()),
            Some(b"n1"),
            variables.iter().map(|(name, value)| (name.as_str(), value.as_bytes().to_vec())),
        );
        let text =
            of_job(&job(Some(run.clone())), &provenance(None), &[change("cpu.usage", Some(1_000_000))]);
        let script = text.split("```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
        let polymeter = directory.path().join("polymeter");
        std::fs::write(&polymeter, "#!/bin/sh\nprintf '%s\\0' \"$PWD\" \"$A\" \"$@\"\n").unwrap();
        std::fs::set_permissions(&polymeter, PermissionsExt::from_mode(0o755)).unwrap();
        let mut shell = std::process::Command::new("bash");
        let path = format!("{}:/usr/bin:/bin", directory.path().display());
        let output = shell.args(["-c", script]).env("PATH", path).output().unwrap();
        let mut expected = vec![directory.path().as_os_str().as_bytes(), b"x y'\n"];
        let options = ["run", "-o", "again.db", "-m", "cpu.usage=1s", "--env", "A", "--name", "it's", "--"];
        expected.extend(options.map(str::as_bytes));
        expected.extend(arguments);
        let found = output.stdout.strip_suffix(b"\0").unwrap();
        assert_eq!(found.split(|byte| *byte == 0).collect::<Vec<_>>(), expected, "{script}");
        for (part, remark) in [
            (Run { is_cut: true, ..run.clone() }, "is stored in part"),
            (Run { command: Vec::new(), ..run }, "--no-command"),
        ] {
            let text = of_job(&job(Some(part)), &provenance(None), &[]);
            assert!(text.contains(" -- COMMAND\n") && text.contains(remark), "{text}");
        }
    }

    fn provenance(revision: Option<&str>) -> Provenance {
        let mut program = Version::of_this_program(None);
        program.build.revision = revision.map(str::to_owned);
        Provenance {
            program,
            made_us: 0,
            store: None,
            description: None,
            seed: None,
            flake_lock_sha256: None,
        }
    }

    #[test]
    fn the_initial_period_of_each_metric_is_requested() {
        let changes = [
            change("cpu.usage", Some(1_000_000)),
            change("cpu.usage", Some(10_000)),
            change("io.read.bytes", None),
            change("memory.current", Some(100_000)),
            PlanChangeRow { level: Some("step".to_owned()), ..change("pids.current", Some(100_000)) },
        ];
        let text = of_job(&job(None), &provenance(None), &changes);
        let command =
            "polymeter run -o again.db \\\n    -m cpu.usage=1s \\\n    -m memory.current=100ms -- COMMAND";
        assert!(text.contains(command), "{text}");
    }

    #[test]
    fn a_known_revision_is_named() {
        let text = of_job(&job(None), &provenance(Some("abc")), &[]);
        assert!(text.contains("?rev=abc' -- run -o again.db -- COMMAND"), "{text}");
        assert!(of_results(&provenance(Some("abc"))).contains("?rev=abc#experiment' -- NAME"));
        assert!(of_results(&provenance(None)).contains("does not know its revision"));
    }
}
