//! The page of a bundle that says what is in it, and how to do the same again.

use std::fmt::Write;

use polymeter_proto::period::Period;
use polymeter_store::reader::PlanChangeRow;

use super::Provenance;
use super::manifest;
use crate::printable::printable_name;

/// What the files of a job's bundle are.
const FILES: [(&str, &str); 12] = [
    ("job.json", "the job: id, owner, nodes, begin and end, how many samples there are"),
    ("report.txt, report.json", "what it used, what was sampled, what that cost, what was lost"),
    ("plot.svg", "the job's series over time"),
    (
        "samples.parquet",
        "every sample: time (UTC, microseconds), job_id, node, metric, labels (a JSON object), value; rows without job_id are the nodes' own while the job ran",
    ),
    ("series.csv", "unit and kind of every series, and how many samples it has"),
    ("plan_changes.csv", "which period was in force from when on, why, and because of whom"),
    ("marks.csv", "instants and phases that somebody named"),
    (
        "ledger.csv",
        "of every source how many samples were due, taken, late, missed, absent, dropped, skipped, rejected and quarantined (samples whose times are out of range; samples.parquet has none of them)",
    ),
    ("losses.csv", "samples that never reached the store, and why"),
    ("provenance.json", "with which program of which revision the bundle was made, when, and of what"),
    ("machine.json", "the machine on which the bundle was made, which need not be a node of the job"),
    ("description.toml", "the description of the experiment, where one was given"),
];

/// What is done to text in the tables, so that opening one runs nothing.
const CSV: &str = "\nIn the CSV files a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return has an apostrophe before it, since a spreadsheet would run it as a formula; characters that control a terminal, change the direction of text or leave no mark are written as `\\u{202e}`. report.json has marks and labels, samples.parquet labels, as they were given.\n";

/// The page of a job's bundle.
pub(super) fn of_job(job_id: &str, provenance: &Provenance, changes: &[PlanChangeRow]) -> String {
    let mut text = format!("# Job {}\n\n| file | what is in it |\n| --- | --- |\n", printable_name(job_id));
    for (file, meaning) in FILES {
        // Writing to a text does not fail.
        writeln!(text, "| {file} | {meaning} |").ok();
    }
    text.push_str(CSV);
    text.push_str(
        "\n## Again\n\nThe same metrics at the same first periods, of a command on one machine:\n\n",
    );
    writeln!(text, "```sh\n{} run -o again.db{} -- COMMAND\n```", program(provenance), wishes(changes)).ok();
    text.push_str(
        "\nLater changes of periods are in plan_changes.csv; `polymeter set` makes them. What COMMAND was is not stored.\n",
    );
    text + &checking()
}

/// The page of an experiment's results.
pub(super) fn of_results(provenance: &Provenance) -> String {
    let mut text = "# Results of an experiment\n\nprovenance.json says with which program of which revision this was made, and when; machine.json says on which machine.\n\n## Again\n\n".to_owned();
    match (&provenance.description, flake(provenance)) {
        (Some(_), Some(flake)) => {
            writeln!(text, "```sh\nnix run '{flake}#experiment' -- description.toml again\n```").ok();
        }
        (None, Some(flake)) => {
            writeln!(text, "`nix run '{flake}#experiment' -- NAME again ARGUMENT...`, with name and arguments as in arguments.txt.").ok();
        }
        (_, None) => text.push_str(
            "The revision is not known: this program was not built by the flake, or from a tree with changes. See benches/README.md of the sources for how experiments are run.\n",
        ),
    }
    text + &checking()
}

fn checking() -> String {
    let name = manifest::NAME;
    format!(
        "\n## Whole?\n\n`polymeter bundle verify .` says what was changed, is missing or was added since; so does `sha256sum -c {name}`, but for what was added.\n"
    )
}

/// What runs this very program.
fn program(provenance: &Provenance) -> String {
    flake(provenance).map_or_else(|| "polymeter".to_owned(), |flake| format!("nix run '{flake}' --"))
}

/// The flake of the revision, where it is known.
fn flake(provenance: &Provenance) -> Option<String> {
    let revision = provenance.program.build.revision.as_ref()?;
    Some(format!("git+{}?rev={revision}", env!("CARGO_PKG_REPOSITORY")))
}

/// The options of `polymeter run` for the periods that were first in force.
fn wishes(changes: &[PlanChangeRow]) -> String {
    let mut metrics: Vec<&str> = Vec::new();
    let mut options = String::new();
    for change in changes {
        let micros = change.new_period_us.and_then(|micros| u64::try_from(micros).ok());
        let Some(period) = micros.and_then(|micros| Period::from_micros(micros).ok()) else { continue };
        if !metrics.contains(&change.metric.as_str()) {
            metrics.push(&change.metric);
            write!(options, " \\\n    -m {}={period}", change.metric).ok();
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    fn change(metric: &str, new_period_us: Option<i64>) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: 0,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old_period_us: None,
            new_period_us,
            cause: "baseline".to_owned(),
            actor: None,
            until_ns: None,
        }
    }

    fn provenance(revision: Option<&str>) -> Provenance {
        let mut program = Version::own();
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
    fn the_first_period_of_each_metric_is_asked_for_again() {
        let changes = [
            change("cpu.usage", Some(1_000_000)),
            change("cpu.usage", Some(10_000)),
            change("io.read.bytes", None),
            change("memory.current", Some(100_000)),
        ];
        let text = of_job("j1", &provenance(None), &changes);
        let command =
            "polymeter run -o again.db \\\n    -m cpu.usage=1s \\\n    -m memory.current=100ms -- COMMAND";
        assert!(text.contains(command), "{text}");
    }

    #[test]
    fn a_known_revision_is_named() {
        let text = of_job("j1", &provenance(Some("abc")), &[]);
        assert!(text.contains("?rev=abc' -- run -o again.db -- COMMAND"), "{text}");
        assert!(of_results(&provenance(Some("abc"))).contains("?rev=abc#experiment' -- NAME"));
        assert!(of_results(&provenance(None)).contains("revision is not known"));
    }
}
