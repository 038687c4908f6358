//! The files of one process in `/proc`: proc_pid_stat(5), proc_pid_io(5).

use std::fs;
use std::path::Path;

use super::process_accounts::{Amounts, Process};

const TICK_NS: u64 = 10_000_000;

/// The quantities of processes that disappear with them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) resident_pages: u64,
    pub(super) threads: u64,
    pub(super) processes: u64,
    /// The number of processes whose I/O was read.
    pub(super) io: u64,
    /// The number of processes whose I/O is not accessible.
    pub(super) no_io: u64,
}

/// The indices of the amounts.
const USER_NS: usize = 0;
const SYSTEM_NS: usize = 1;
const MINOR_FAULTS: usize = 2;
const MAJOR_FAULTS: usize = 3;
const READ_BYTES: usize = 4;
const WRITE_BYTES: usize = 5;

/// Reads a process. If its I/O is not accessible any more, as after a change of its user, it stays unchanged.
pub(super) fn read_process(proc: &Path, pid: u32, known: Option<&Process>) -> Option<(Process, Levels)> {
    let directory = proc.join(pid.to_string());
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    let (mut process, mut levels) = parse_stat(&stat)?;
    match fs::read_to_string(directory.join("io")) {
        Ok(io) => {
            levels.io = 1;
            add_io(&mut process, &io);
        }
        Err(_) => {
            levels.no_io = 1;
            let known = known.filter(|known| known.started == process.started);
            for place in [READ_BYTES, WRITE_BYTES] {
                copy(&mut process.total, known.map(|known| &known.total), place);
                copy(&mut process.waited, known.map(|known| &known.waited), place);
            }
        }
    }
    Some((process, levels))
}

fn copy(to: &mut Amounts, from: Option<&Amounts>, place: usize) {
    if let (Some(to), Some(from)) = (to.0.get_mut(place), from.and_then(|from| from.0.get(place))) {
        *to = *from;
    }
}

/// Parses the line of `/proc/PID/stat`. The name in it may have spaces and parentheses; field 3 follows the last parenthesis.
fn parse_stat(stat: &str) -> Option<(Process, Levels)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = fields.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let ticks = |number: usize| field(number).saturating_mul(TICK_NS);
    let waited = Amounts([ticks(16), ticks(17), field(11), field(13), 0, 0]);
    let mut total = Amounts([ticks(14), ticks(15), field(10), field(12), 0, 0]);
    total.add(&waited);
    let parent = u32::try_from(field(4)).unwrap_or(0);
    let levels = Levels { resident_pages: field(24), threads: field(20), processes: 1, io: 0, no_io: 0 };
    Some((Process { parent, started: field(22), total, waited }, levels))
}

/// Adds the counts of `/proc/PID/io`, which include those of awaited children without distinction.
fn add_io(process: &mut Process, io: &str) {
    let value = |key: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let io = Amounts([0, 0, 0, 0, value("read_bytes:"), value("write_bytes:")]);
    process.total.add(&io);
    process.waited.add(&io);
}

impl Levels {
    /// Adds the quantities of another process.
    pub(super) const fn add(&mut self, other: &Self) {
        self.resident_pages += other.resident_pages;
        self.threads += other.threads;
        self.processes += other.processes;
        self.io += other.io;
        self.no_io += other.no_io;
    }
}

/// The function of each field that computes its value over all processes.
pub(super) type Compute = fn(&Amounts, &Levels) -> u64;

/// The fields of sums over processes.
pub(super) const FIELDS: [(&str, Compute); 10] = [
    ("cpu_usage", |sums, _| amount(sums, USER_NS).saturating_add(amount(sums, SYSTEM_NS))),
    ("cpu_user", |sums, _| amount(sums, USER_NS)),
    ("cpu_system", |sums, _| amount(sums, SYSTEM_NS)),
    ("resident", |_, levels| levels.resident_pages.saturating_mul(rustix::param::page_size() as u64)),
    ("read_bytes", |sums, _| amount(sums, READ_BYTES)),
    ("write_bytes", |sums, _| amount(sums, WRITE_BYTES)),
    ("minor_faults", |sums, _| amount(sums, MINOR_FAULTS)),
    ("major_faults", |sums, _| amount(sums, MAJOR_FAULTS)),
    ("threads", |_, levels| levels.threads),
    ("processes", |_, levels| levels.processes),
];

/// The fields that need the right to read the I/O of processes.
pub(super) const IO_FIELDS: [&str; 2] = ["read_bytes", "write_bytes"];

fn amount(sums: &Amounts, index: usize) -> u64 {
    sums.0.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_with_spaces_and_parentheses() {
        let (process, levels) = parse_stat("42 (a) b (c)) S 1 42 42 0 -1 4194304 100 20 3 4 500 60 7 8 20 0 3 0 1 1000000 250 18446744073709551615").unwrap();
        assert_eq!((process.parent, process.started), (1, 1));
        assert_eq!(process.total.0, [507 * TICK_NS, 68 * TICK_NS, 120, 7, 0, 0]);
        assert_eq!(process.waited.0, [7 * TICK_NS, 8 * TICK_NS, 20, 4, 0, 0]);
        assert_eq!((levels.threads, levels.resident_pages, levels.processes), (3, 250, 1));
    }

    #[test]
    fn finds_io_by_name() {
        let mut process = Process::default();
        add_io(
            &mut process,
            "rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n",
        );
        assert_eq!(process.total.0, [0, 0, 0, 0, 4096, 8192]);
    }
}
