//! Timed reads: commands in processes of their own, and queries of one connection.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use polymeter_benches::clock::{now_ns, sleep_until};
use polymeter_benches::store::Store;
use polymeter_benches::table::to_f64;

/// Interval at which the memory of a command is read.
const LOOK_NS: u64 = 1_000_000;

/// A run that takes longer is not repeated.
const LONG_S: f64 = 10.0;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Runs {
    pub(crate) seconds: Vec<f64>,
    /// Maximum memory of the process in all runs; 0 if it was not measured.
    pub(crate) peak_kib: u64,
}

impl Runs {
    fn add(&mut self, seconds: f64, peak_kib: u64) {
        self.seconds.push(seconds);
        self.peak_kib = self.peak_kib.max(peak_kib);
    }

    /// True if there are `runs` runs, or the last one took long.
    fn is_complete(&self, runs: u16) -> bool {
        self.seconds.len() >= usize::from(runs) || self.seconds.last().is_some_and(|last| *last > LONG_S)
    }

    /// Replaces the seconds by the items per second.
    pub(crate) fn rates(self, items: u64) -> Self {
        let seconds = self.seconds.into_iter().map(|seconds| to_f64(items) / seconds).collect();
        Self { seconds, ..self }
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        let lower = sorted.len().checked_sub(1).and_then(|last| sorted.get(last / 2)).copied();
        f64::midpoint(lower.unwrap_or(f64::NAN), upper)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum User {
    Own,
    /// The user with this numeric id, which only root can become.
    Other(u32),
}

/// Runs a command of `polymeter` repeatedly. `before` prepares each run.
pub(crate) fn command(
    arguments: &[&str],
    user: User,
    runs: u16,
    before: impl Fn() -> Result<(), Box<dyn Error>>,
) -> Result<Runs, Box<dyn Error>> {
    let mut done = Runs::default();
    let output = tempfile::tempdir()?;
    while !done.is_complete(runs) {
        before()?;
        let (seconds, peak_kib) = run(arguments, user, output.path())?;
        done.add(seconds, peak_kib);
    }
    Ok(done)
}

fn run(arguments: &[&str], user: User, output: &Path) -> Result<(f64, u64), Box<dyn Error>> {
    let (stdout, stderr) = (output.join("stdout"), output.join("stderr"));
    let mut command = Command::new(polymeter_benches::agent::program("polymeter")?);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?);
    if let User::Other(uid) = user {
        command.uid(uid).gid(uid);
    }
    let begin_ns = now_ns();
    let mut child = command.spawn()?;
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(peak(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep_until(now_ns() + LOOK_NS);
    };
    let seconds = to_f64(now_ns() - begin_ns) / 1e9;
    if !status.success() {
        return Err(format!("polymeter {}: {}", arguments.join(" "), fs::read_to_string(stderr)?).into());
    }
    if fs::metadata(&stdout)?.len() == 0 {
        return Err(format!("polymeter {} printed nothing", arguments.join(" ")).into());
    }
    Ok((seconds, peak_kib))
}

/// Maximum of the resident memory of a process up to now, in KiB; 0 if it has exited.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// Runs a query repeatedly on one connection and receives all rows, after one run that counts them.
pub(crate) fn query(store: &Store, sql: &str, rows: u64, runs: u16) -> Result<Runs, Box<dyn Error>> {
    let begin_ns = now_ns();
    let counted: u64 = store.ask(&format!("SELECT count(*) FROM ({sql}) AS q"))?.parse()?;
    if counted < rows {
        return Err(format!("{counted} rows instead of at least {rows}: {sql}").into());
    }
    let runs = if to_f64(now_ns() - begin_ns) / 1e9 > LONG_S { 1 } else { runs };
    let seconds = match store.path() {
        Some(path) => of_sqlite(path, sql, runs)?,
        None => of_psql(store, sql, runs)?,
    };
    Ok(Runs { seconds, peak_kib: 0 })
}

fn of_sqlite(path: &Path, sql: &str, runs: u16) -> Result<Vec<f64>, Box<dyn Error>> {
    let connection = rusqlite::Connection::open(path)?;
    (0..runs)
        .map(|_| {
            let begin_ns = now_ns();
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                std::hint::black_box(row.get_ref(0)?);
            }
            Ok(to_f64(now_ns() - begin_ns) / 1e9)
        })
        .collect()
}

fn of_psql(store: &Store, sql: &str, runs: u16) -> Result<Vec<f64>, Box<dyn Error>> {
    // psql's timing includes the transmission of the rows, and not their output.
    let script = format!("\\timing on\n\\o /dev/null\n{}", format!("{sql};\n").repeat(usize::from(runs)));
    let mut psql = store.psql()?;
    let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("psql has no stdin")?.write_all(script.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let seconds: Vec<f64> = text.lines().filter_map(seconds_of).collect();
    if !output.status.success() || seconds.len() != usize::from(runs) {
        return Err(format!("psql did not time the query: {text}").into());
    }
    Ok(seconds)
}

/// Parses a line such as `Time: 12.345 ms` or `Time: 1234.567 ms (00:01.235)`.
fn seconds_of(line: &str) -> Option<f64> {
    let ms: f64 = line.strip_prefix("Time: ")?.split_once(" ms")?.0.parse().ok()?;
    Some(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psqls_timing_is_understood() {
        assert_eq!(seconds_of("Time: 12.500 ms"), Some(0.0125));
        assert_eq!(seconds_of("Time: 1500.000 ms (00:01.500)"), Some(1.5));
        assert_eq!(seconds_of("12"), None);
    }

    #[test]
    fn a_median_is_between_its_neighbours() {
        let median = |seconds: &[f64]| Runs { seconds: seconds.to_vec(), peak_kib: 0 }.median();
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5_f64.to_bits());
        assert!(median(&[]).is_nan());
    }
}
