//! One process as `/proc` tells of it: proc_pid_stat(5), proc_pid_io(5).

use std::fs;
use std::path::Path;

use polymeter_proto::catalogue::ProcessField;

use super::process_accounts::{Amounts, Process};

const TICK_NS: u64 = 10_000_000;

/// What the processes have now, of which nothing stays when they end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) resident_pages: u64,
    pub(super) threads: u64,
    pub(super) processes: u64,
    /// Of how many the I/O was read, and of how many it may not be.
    pub(super) io: u64,
    pub(super) no_io: u64,
}

/// The places of the amounts.
const USER_NS: usize = 0;
const SYSTEM_NS: usize = 1;
const MINOR_FAULTS: usize = 2;
const MAJOR_FAULTS: usize = 3;
const READ_BYTES: usize = 4;
const WRITE_BYTES: usize = 5;

/// A process as it is now. Where its I/O may not be read any more, as when it has become another user's, that is as it was known.
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

/// Takes apart a line of `/proc/PID/stat`. The name in it may have spaces and parentheses; what follows the last of them begins
/// with field 3.
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

/// Takes `/proc/PID/io` apart. What children have used is part of it when they have been waited for, and is not told apart.
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
    /// Adds what another process has.
    pub(super) const fn add(&mut self, other: &Self) {
        self.resident_pages += other.resident_pages;
        self.threads += other.threads;
        self.processes += other.processes;
        self.io += other.io;
        self.no_io += other.no_io;
    }
}

/// The value of a field of all processes together.
pub(super) fn value(field: ProcessField, sums: &Amounts, levels: &Levels, page_bytes: u64) -> u64 {
    let amount = |place: usize| sums.0.get(place).copied().unwrap_or_default();
    match field {
        ProcessField::CpuUsage => amount(USER_NS).saturating_add(amount(SYSTEM_NS)),
        ProcessField::CpuUser => amount(USER_NS),
        ProcessField::CpuSystem => amount(SYSTEM_NS),
        ProcessField::Resident => levels.resident_pages * page_bytes,
        ProcessField::ReadBytes => amount(READ_BYTES),
        ProcessField::WriteBytes => amount(WRITE_BYTES),
        ProcessField::MinorFaults => amount(MINOR_FAULTS),
        ProcessField::MajorFaults => amount(MAJOR_FAULTS),
        ProcessField::Threads => levels.threads,
        ProcessField::Processes => levels.processes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_no_field() {
        let (process, levels) = parse_stat("42 (a) b (c)) S 1 42 42 0 -1 4194304 100 20 3 4 500 60 7 8 20 0 3 0 1 1000000 250 18446744073709551615").unwrap();
        assert_eq!((process.parent, process.started), (1, 1));
        assert_eq!(process.total.0, [507 * TICK_NS, 68 * TICK_NS, 120, 7, 0, 0]);
        assert_eq!(process.waited.0, [7 * TICK_NS, 8 * TICK_NS, 20, 4, 0, 0]);
        assert_eq!((levels.threads, levels.resident_pages, levels.processes), (3, 250, 1));
    }

    #[test]
    fn io_is_by_name() {
        let mut process = Process::default();
        add_io(
            &mut process,
            "rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n",
        );
        assert_eq!(process.total.0, [0, 0, 0, 0, 4096, 8192]);
    }
}
