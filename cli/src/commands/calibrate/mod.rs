//! `polymeter calibrate`: measures the roofs of this node, which bound what its jobs can reach.

mod arithmetic;
mod machine;
mod measure;
mod triad;

use std::io::Write;
use std::path::{Path, PathBuf};

use polymeter_agent::roof_file;
use polymeter_client::connection::agent::{SOCKET, ask_status};
use polymeter_proto::control::{JobsRequest, Request};
use polymeter_proto::series::Roofs;
use polymeter_proto::units;
use polymeter_service::clock;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::new_file::{NewFile, cannot_write};
use crate::output::table::table;
use crate::output::terminal;
use arithmetic::{Instructions, Precision};
use measure::{Rate, Repetitions, allowed_cpus, rate};
use triad::Triad;

/// Load from which on the figures count as disturbed, in percent of all CPUs.
const LOAD_MAX_PERCENT: f64 = 5.0;

/// Spread from which on the figures count as disturbed.
const SPREAD_MAX_PERCENT: f64 = 10.0;

/// All measurements together take some 12 s.
const TRIAD: Repetitions = Repetitions { count: 7, length_ns: 700_000_000 };
const ARITHMETIC: Repetitions = Repetitions { count: 5, length_ns: 400_000_000 };

/// Chooses the instructions.
const TRIAL: Repetitions = Repetitions { count: 1, length_ns: 100_000_000 };

/// Rounds of the loop between two looks at the clock: some 10 µs.
const ROUNDS: u32 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArguments {
    /// The file for the result, which the agent's key `roofs` names.
    #[arg(short, long, value_name = "FILE", default_value = roof_file::DEFAULT_PATH)]
    output: PathBuf,

    /// The agent's control socket, to ask whether jobs run.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Measure although jobs run: they are slowed down, and the figures are too low.
    #[arg(long)]
    force: bool,

    /// Print the figures, and write no file.
    #[arg(long)]
    dry_run: bool,

    /// Print JSON, as it is in the file.
    #[arg(long)]
    json: bool,
}

/// Result as it is in the file. The agent uses `roofs`.
#[derive(Debug, Serialize)]
struct Calibration {
    node: String,
    measured_us: i64,
    cpus: usize,
    roofs: Roofs,
    memory: Bandwidth,
    double: Peak,
    single: Peak,
    load_percent: Option<f64>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Bandwidth {
    #[serde(flatten)]
    rate: Rate,
    repetitions: usize,
    array_bytes: u64,
    last_level_cache_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Peak {
    #[serde(flatten)]
    rate: Rate,
    repetitions: usize,
    instructions: Instructions,
}

pub(crate) fn execute(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let mut warnings = Vec::new();
    warnings.extend(check_jobs(&arguments.socket, arguments.force)?);
    // Whether the file can be written shows before the measurement.
    let file = match arguments.dry_run {
        true => None,
        false => Some(NewFile::create(arguments.output.clone(), true, "")?),
    };
    let calibration = calibrate(Path::new("/"), warnings)?;
    for warning in &calibration.warnings {
        terminal::print_error(&format!("polymeter: warning: {warning}\n"));
    }
    if let Some((new, mut file)) = file {
        let json = serde_json::to_string_pretty(&calibration)
            .map_err(|error| Failure::because("cannot write the figures", &error))?;
        writeln!(file, "{json}").map_err(|error| cannot_write(&arguments.output, &error))?;
        new.keep()?;
    }
    if arguments.json {
        return terminal::print_json(&calibration);
    }
    let written = match arguments.dry_run {
        true => "Not written, because of --dry-run.\n".to_owned(),
        false => format!(
            "Written to {}. The agent announces it from its next start on: systemctl restart polymeter-agent\n",
            arguments.output.display()
        ),
    };
    terminal::print(&format!("{}{written}", text(&calibration)))
}

/// Refuses to disturb jobs. Returns a warning if it is not known whether there are any, or if they are
/// disturbed.
fn check_jobs(socket: &Path, force: bool) -> Result<Option<String>, Failure> {
    let Ok(status) = ask_status(socket, &Request::Jobs(JobsRequest {})) else {
        return Ok(Some("no agent answers: whether jobs run on this node is not known".to_owned()));
    };
    let jobs: Vec<&str> = status.subjects.iter().filter_map(|subject| subject.job.as_deref()).collect();
    let running = units::counted(jobs.len(), "job");
    match jobs.first() {
        None => Ok(None),
        Some(_) if force => Ok(Some(format!("{running} ran meanwhile: the figures are too low"))),
        Some(first) => Err(Failure::Failed(format!(
            "cannot calibrate: {running} on this node, such as {first}, would be slowed down, and the figures \
             would be too low; drain the node, or use --force"
        ))),
    }
}

fn calibrate(root: &Path, mut warnings: Vec<String>) -> Result<Calibration, Failure> {
    let cpus = allowed_cpus().map_err(|error| Failure::because("cannot find the allowed CPUs", &error))?;
    let load_percent = machine::load_percent(root);
    let of_node = polymeter_agent::sources::online_cpus(root).map(|online| online.len());
    if let Ok(online) = of_node
        && online != cpus.len()
    {
        warnings.push(format!(
            "only {} of {online} CPUs are allowed here: run the command outside of a cpuset",
            cpus.len()
        ));
    }
    if let Some(load) = load_percent.filter(|load| *load > LOAD_MAX_PERCENT) {
        warnings.push(format!("other programs used {load:.0} % of the CPUs: the figures are too low"));
    }
    let memory = memory(root, &cpus, &mut warnings)?;
    let [double, single] = [Precision::Double, Precision::Single].map(|precision| peak(&cpus, precision));
    let (double, single) = (double?, single?);
    let rates = [("memory", memory.rate), ("double", double.rate), ("single", single.rate)];
    for (name, rate) in rates.iter().filter(|(_, rate)| rate.spread_percent > SPREAD_MAX_PERCENT) {
        let spread = rate.spread_percent;
        warnings.push(format!("the repetitions of `{name}` differ by {spread:.0} %: something else ran"));
    }
    Ok(Calibration {
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        measured_us: clock::realtime_us(),
        cpus: cpus.len(),
        roofs: Roofs {
            memory_bytes_per_s: units::whole(memory.rate.best_per_s),
            double_flop_per_s: units::whole(double.rate.best_per_s),
            single_flop_per_s: units::whole(single.rate.best_per_s),
        },
        memory,
        double,
        single,
        load_percent,
        warnings,
    })
}

fn nothing_done() -> Failure {
    Failure::Failed("cannot calibrate: a thread did nothing; give the command more memory".to_owned())
}

fn memory(root: &Path, cpus: &[usize], warnings: &mut Vec<String>) -> Result<Bandwidth, Failure> {
    let last_level_cache_bytes = machine::cache_bytes(root, cpus);
    let sizes = machine::sizes(last_level_cache_bytes, machine::available_bytes(root));
    if !sizes.is_enough {
        warnings.push("there is too little memory for arrays of four times the caches".to_owned());
    }
    let array_bytes = sizes.array_bytes / cpus.len().max(1) as u64;
    let rate = rate(cpus, TRIAD, || {
        let mut triad = Triad::new(array_bytes);
        move || triad.step()
    });
    let rate = rate.ok_or_else(nothing_done)?;
    Ok(Bandwidth { rate, repetitions: TRIAD.count, array_bytes: sizes.array_bytes, last_level_cache_bytes })
}

/// Uses the fastest instructions.
fn peak(cpus: &[usize], precision: Precision) -> Result<Peak, Failure> {
    let with = |instructions: Instructions, repetitions: Repetitions| {
        rate(cpus, repetitions, || move || instructions.execute(precision, ROUNDS))
    };
    let tried = Instructions::available()
        .into_iter()
        .map(|one| (with(one, TRIAL).map_or(0.0, |rate| rate.best_per_s), one));
    let fastest = tried.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let (_, instructions) = fastest.ok_or_else(nothing_done)?;
    let rate = with(instructions, ARITHMETIC).ok_or_else(nothing_done)?;
    Ok(Peak { rate, repetitions: ARITHMETIC.count, instructions })
}

fn row(name: &str, unit: &str, rate: Rate, how: String) -> Vec<String> {
    let Rate { best_per_s, spread_percent } = rate;
    vec![name.to_owned(), units::value(unit, best_per_s), format!("{spread_percent:.1} %"), how]
}

fn text(calibration: &Calibration) -> String {
    let Calibration { cpus, memory, double, single, .. } = calibration;
    let arrays = format!("triad, three arrays of {}", units::bytes(memory.array_bytes));
    let head = ["roof", "best", "spread", "measured by"].map(str::to_owned).to_vec();
    let rows = [
        head,
        row("memory", "bytes/s", memory.rate, arrays),
        row("double precision", "flop/s", double.rate, double.instructions.name().to_owned()),
        row("single precision", "flop/s", single.rate, single.instructions.name().to_owned()),
    ];
    format!("{}On {} of {}.\n", table(&rows), units::counted(*cpus, "CPU"), calibration.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_shown_with_their_spread() {
        let rate = |best_per_s: f64| Rate { best_per_s, spread_percent: 1.25 };
        let peak =
            |best_per_s: f64, instructions| Peak { rate: rate(best_per_s), repetitions: 5, instructions };
        let calibration = Calibration {
            node: "n1".to_owned(),
            measured_us: 0,
            cpus: 96,
            roofs: Roofs { memory_bytes_per_s: 1, double_flop_per_s: 1, single_flop_per_s: 1 },
            memory: Bandwidth {
                rate: rate(380e9),
                repetitions: 7,
                array_bytes: 4 << 30,
                last_level_cache_bytes: Some(1 << 30),
            },
            double: peak(2.4e12, Instructions::Avx512),
            single: peak(4.8e12, Instructions::Avx2),
            load_percent: Some(0.5),
            warnings: Vec::new(),
        };
        crate::snapshot::check("calibrate", &text(&calibration));
        // The agent reads the file.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roofs.json");
        std::fs::write(&path, serde_json::to_string_pretty(&calibration).unwrap()).unwrap();
        assert_eq!(roof_file::read(&path).unwrap(), Some(calibration.roofs));
    }
}
