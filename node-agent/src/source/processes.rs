//! Sums over a job's processes: what an ordinary user without a cgroup of her own gets.
//!
//! Walks the tree from its root with `children` of each thread (CONFIG_PROC_CHILDREN). What a process used before it
//! ended is in its parent's account once it has been waited for, so that sums of CPU time do not fall.

use std::fs;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{Definition, Origin, ProcessField};
use polymeter_proto::series::Labels;

use super::file::Outcome;
use super::layout::Slot;
use super::reading::Reading;

/// Processes that are followed; a fork bomb is somebody else's affair.
const PROCESSES: usize = 4096;

const TICK_NS: u64 = 10_000_000;

/// The processes of one job.
#[derive(Debug)]
pub struct ProcessesSource {
    proc: PathBuf,
    root: u32,
    slots: Vec<Slot>,
    fields: Vec<ProcessField>,
    page_bytes: u64,
}

/// Sums over all processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sums {
    user_ns: u64,
    system_ns: u64,
    resident_pages: u64,
    read_bytes: u64,
    write_bytes: u64,
    minor_faults: u64,
    major_faults: u64,
    threads: u64,
    processes: u64,
}

impl ProcessesSource {
    /// The process `root` and its descendants, below `proc`.
    pub fn new(proc: &Path, root: u32, wanted: &[Definition]) -> Self {
        let mut slots = Vec::new();
        let mut fields = Vec::new();
        for definition in wanted {
            for origin in definition.metric.origins {
                if let Origin::Processes(field) = origin {
                    fields.push(*field);
                    slots.push(Slot { definition: definition.clone(), labels: Labels::default() });
                }
            }
        }
        Self { proc: proc.to_owned(), root, slots, fields, page_bytes: rustix::param::page_size() as u64 }
    }

    /// Reads all processes. Allocates: its cost lies in opening two files per process anyway.
    pub fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let mut sums = Sums::default();
        let mut found = vec![self.root];
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            next += 1;
            let directory = self.proc.join(pid.to_string());
            let Ok(stat) = fs::read_to_string(directory.join("stat")) else { continue };
            sums.add_stat(&stat);
            if let Ok(io) = fs::read_to_string(directory.join("io")) {
                sums.add_io(&io);
            }
            if found.len() < PROCESSES {
                found.extend(children(&directory));
            }
        }
        if sums.processes == 0 {
            return Outcome::Gone;
        }
        for (slot, field) in (0..).zip(&self.fields) {
            reading.set(slot, sums.value(*field, self.page_bytes));
        }
        Outcome::Read
    }

    /// What the values of a reading are.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

fn children(directory: &Path) -> Vec<u32> {
    let threads = fs::read_dir(directory.join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

impl Sums {
    /// Adds a line of `/proc/PID/stat`. The name in it may have spaces and parentheses; what follows the last of them
    /// begins with field 3.
    fn add_stat(&mut self, stat: &str) {
        let Some((_, fields)) = stat.rsplit_once(')') else { return };
        let fields: Vec<u64> =
            fields.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
        self.minor_faults += field(10) + field(11);
        self.major_faults += field(12) + field(13);
        self.user_ns += (field(14) + field(16)) * TICK_NS;
        self.system_ns += (field(15) + field(17)) * TICK_NS;
        self.threads += field(20);
        self.resident_pages += field(24);
        self.processes += 1;
    }

    fn add_io(&mut self, io: &str) {
        let value = |key: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        self.read_bytes += value("read_bytes:");
        self.write_bytes += value("write_bytes:");
    }

    const fn value(&self, field: ProcessField, page_bytes: u64) -> u64 {
        match field {
            ProcessField::CpuUsage => self.user_ns + self.system_ns,
            ProcessField::CpuUser => self.user_ns,
            ProcessField::CpuSystem => self.system_ns,
            ProcessField::Resident => self.resident_pages * page_bytes,
            ProcessField::ReadBytes => self.read_bytes,
            ProcessField::WriteBytes => self.write_bytes,
            ProcessField::MinorFaults => self.minor_faults,
            ProcessField::MajorFaults => self.major_faults,
            ProcessField::Threads => self.threads,
            ProcessField::Processes => self.processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_no_field() {
        let mut sums = Sums::default();
        sums.add_stat("42 (a) b (c)) S 1 42 42 0 -1 4194304 100 20 3 4 500 60 7 8 20 0 3 0 1 1000000 250 18446744073709551615");
        assert_eq!((sums.minor_faults, sums.major_faults), (120, 7));
        assert_eq!((sums.user_ns, sums.system_ns), (507 * TICK_NS, 68 * TICK_NS));
        assert_eq!((sums.threads, sums.resident_pages, sums.processes), (3, 250, 1));
    }

    #[test]
    fn io_is_by_name() {
        let mut sums = Sums::default();
        sums.add_io("rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n");
        assert_eq!((sums.read_bytes, sums.write_bytes), (4096, 8192));
    }

    #[test]
    fn follows_this_process_and_sees_its_end() {
        let wanted: Vec<_> = ["process.count", "process.memory.resident"]
            .iter()
            .filter_map(|name| polymeter_proto::catalogue::find(name))
            .collect();
        let mut reading = Reading::absent(2);
        let mut here = ProcessesSource::new(Path::new("/proc"), std::process::id(), &wanted);
        assert_eq!(here.read(&mut reading), Outcome::Read);
        assert!(reading.get(0).unwrap() >= 1);
        assert!(reading.get(1).unwrap() > 100_000);
        let mut nobody = ProcessesSource::new(Path::new("/proc"), u32::MAX, &wanted);
        assert_eq!(nobody.read(&mut reading), Outcome::Gone);
    }
}
