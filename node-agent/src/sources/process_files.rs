//! Files of one process in `/proc`: proc_pid_stat(5), proc_pid_io(5).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::io::{Errno, pread};

use super::kernel_text::{self, TEXT_BYTES, too_large};
use super::process_accounts::{Amounts, IoAmounts, Process};
use crate::kernel::descriptor_limit;

pub(super) const TICK_NS: u64 = 10_000_000;

/// Threads of a process; none if it has ended.
pub(super) fn threads(proc: &Path, pid: u32) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Values of a variable in an environment, proc_pid_environ(5), which may have it several times.
pub(super) fn variables<'a>(environment: &'a [u8], name: &str) -> impl Iterator<Item = &'a str> {
    environment.split(|byte| *byte == 0).filter_map(move |entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    })
}

/// A line of `/proc/PID/stat` or of `/proc/PID/task/TID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatLine {
    /// Up to 15 bytes of any kind.
    pub(super) name: Vec<u8>,
    /// Fields behind the name, from field 3 on; 0 for the state, which is a letter, for negative numbers, and
    /// for what the kernel lacks.
    fields: [u64; FIELDS_MAX],
}

impl StatLine {
    pub(super) fn read(directory: &Path) -> Option<Self> {
        Self::parse(&read_whole(&directory.join("stat")).ok()?)
    }

    /// Parses a line; `None` if it ends before the last field that every kernel has, or has words that are no
    /// numbers. The name may contain spaces and parentheses: field 3 follows the last parenthesis.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let begin = line.iter().position(|byte| *byte == b'(')? + 1;
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let name = line.get(begin..end)?.to_vec();
        let mut words = std::str::from_utf8(line.get(end + 1..)?).ok()?.split_ascii_whitespace();
        words.next()?;
        let (mut fields, mut count) = ([0; FIELDS_MAX], 1);
        for word in words {
            let value = match word.strip_prefix('-') {
                Some(digits) => digits.parse::<u64>().ok().map(|_negative| 0)?,
                None => word.parse().ok()?,
            };
            fields.iter_mut().skip(count).take(1).for_each(|field| *field = value);
            count += 1;
        }
        (count >= FIELDS_MIN).then_some(Self { name, fields })
    }

    /// Field with this number in proc_pid_stat(5).
    fn field(&self, number: usize) -> u64 {
        self.fields.get(number - 3).copied().unwrap_or(0)
    }

    fn ticks_ns(&self, number: usize) -> u64 {
        self.field(number).saturating_mul(TICK_NS)
    }

    pub(super) fn parent(&self) -> u32 {
        u32::try_from(self.field(4)).unwrap_or(0)
    }

    pub(super) fn leaders(&self) -> [u32; 2] {
        [6, 5].map(|field| u32::try_from(self.field(field)).unwrap_or(0))
    }

    /// Time of start, in ticks since boot.
    pub(super) fn started(&self) -> u64 {
        self.field(22)
    }

    /// CPU time in nanoseconds, without that of its children.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.ticks_ns(14).saturating_add(self.ticks_ns(15))
    }

    pub(super) fn processor(&self) -> u64 {
        self.field(39)
    }

    pub(super) fn resident_pages(&self) -> u64 {
        self.field(24)
    }

    pub(super) fn threads(&self) -> u64 {
        self.field(20)
    }
}

/// Number of fields up to the resident memory, field 24.
const FIELDS_MIN: usize = 22;

/// Number of fields up to the last one of Linux, field 52.
const FIELDS_MAX: usize = 50;

/// Size of the first read: more than the longest line of `stat`.
const WHOLE_BYTES: usize = 1024;

pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let length = whole(&kernel_text::open(path)?, &mut text)?.len();
    text.truncate(length);
    Ok(text)
}

/// Reads a file that the kernel writes as one record into `text`, which grows as needed: if a read does not
/// fill the room, it has all of it. `std::fs::read` would begin with few bytes and ask for the end.
fn whole<'a>(file: &File, text: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    text.resize(text.len().max(WHOLE_BYTES), 0);
    let mut length = 0;
    loop {
        match pread(file, text.get_mut(length..).unwrap_or_default(), length as u64) {
            Ok(read) => length += read,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if length < text.len() {
            return Ok(text.get(..length).unwrap_or_default());
        }
        if length >= TEXT_BYTES {
            return Err(too_large());
        }
        text.resize(2 * length, 0);
    }
}

/// Counts of `/proc/PID/io` by their names, where the file has them.
pub(super) fn parse_io(io: &str) -> impl Fn(&str) -> Option<u64> {
    |key| {
        let mut lines = kernel_text::lines(io).filter_map(|line| line.split_once(':'));
        lines.find_map(|(name, value)| (name == key).then(|| value.trim().parse().ok())?)
    }
}

/// Quantities that disappear with their processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) resident_pages: u64,
    pub(super) threads: u64,
    pub(super) processes: u64,
    pub(super) io: u64,
    pub(super) no_io: u64,
}

/// Reads a process. If its I/O is not accessible any more, as after a change of its user, it stays unchanged.
pub(super) fn read_process(proc: &Path, pid: u32, known: Option<&Process>) -> Option<(Process, Levels)> {
    OpenProcess::open(proc, pid)?.read(known, &mut Vec::new())
}

/// Open files of a process. After its end they do not show another process with the same number.
#[derive(Debug)]
struct OpenProcess {
    stat: File,
    io: Option<File>,
}

impl OpenProcess {
    fn open(proc: &Path, pid: u32) -> Option<Self> {
        let directory = proc.join(pid.to_string());
        let stat = kernel_text::open(&directory.join("stat")).ok()?;
        Some(Self { stat, io: kernel_text::open(&directory.join("io")).ok() })
    }

    fn read(&self, known: Option<&Process>, text: &mut Vec<u8>) -> Option<(Process, Levels)> {
        let (mut process, mut levels) = of_stat(&StatLine::parse(whole(&self.stat, text).ok()?)?);
        let known = known.filter(|known| known.started == process.started);
        let io = self.io.as_ref().and_then(|io| whole(io, text).ok());
        let io =
            io.and_then(|io| io_amounts(&String::from_utf8_lossy(io), known.map(|known| known.total.io)));
        match io {
            Some(io) => {
                levels.io = 1;
                (process.total.io, process.waited.io) = (io, io);
            }
            None => {
                levels.no_io = 1;
                if let Some(known) = known {
                    (process.total.io, process.waited.io) = (known.total.io, known.waited.io);
                }
            }
        }
        Some((process, levels))
    }

    /// True if descriptors are plenty: the kernel assigns the lowest free number.
    fn may_stay_open(&self) -> bool {
        let may_stay = |file: &File| {
            usize::try_from(file.as_raw_fd())
                .is_ok_and(|number| number < descriptor_limit() / DESCRIPTORS_PART)
        };
        self.io.as_ref().is_some_and(may_stay) && may_stay(&self.stat)
    }
}

/// Processes of a job whose files stay open: opening takes longer than reading.
const KEPT_OPEN: usize = 16;

/// Files stay open while fewer descriptors than this part of all are in use: others need them more.
const DESCRIPTORS_PART: usize = 4;

/// Reads processes, and keeps the files of some open.
#[derive(Debug, Default)]
pub(super) struct ProcessReader {
    open: BTreeMap<u32, OpenProcess>,
    text: Vec<u8>,
}

impl ProcessReader {
    /// Reads a process as [`read_process`] does.
    pub(super) fn read(
        &mut self,
        proc: &Path,
        pid: u32,
        known: Option<&Process>,
    ) -> Option<(Process, Levels)> {
        let Self { open, text } = self;
        if let Some(read) = open.get(&pid).and_then(|open| open.read(known, text)) {
            return Some(read);
        }
        // It has ended, if it was open: another process may have its number.
        open.remove(&pid);
        let opened = OpenProcess::open(proc, pid)?;
        let read = opened.read(known, text);
        if read.is_some() && open.len() < KEPT_OPEN && opened.may_stay_open() {
            open.insert(pid, opened);
        }
        read
    }

    /// Closes the files of processes that do not satisfy `is_current`.
    pub(super) fn retain(&mut self, is_current: impl Fn(u32) -> bool) {
        self.open.retain(|pid, _| is_current(*pid));
    }
}

fn of_stat(stat: &StatLine) -> (Process, Levels) {
    let waited = Amounts {
        user_ns: stat.ticks_ns(16),
        system_ns: stat.ticks_ns(17),
        minor_faults: stat.field(11),
        major_faults: stat.field(13),
        io: IoAmounts::default(),
    };
    let mut total = Amounts {
        user_ns: stat.ticks_ns(14),
        system_ns: stat.ticks_ns(15),
        minor_faults: stat.field(10),
        major_faults: stat.field(12),
        io: IoAmounts::default(),
    };
    total.add(&waited);
    let (resident_pages, threads) = (stat.resident_pages(), stat.threads());
    let levels = Levels { resident_pages, threads, processes: 1, io: 0, no_io: 0 };
    (Process { parent: stat.parent(), started: stat.started(), total, waited }, levels)
}

/// Counts of `/proc/PID/io`, where the kernel mixes in those of awaited children. A missing count stays as it
/// was known.
fn io_amounts(io: &str, known: Option<IoAmounts>) -> Option<IoAmounts> {
    let value = parse_io(io);
    let mut amounts = known.unwrap_or_default();
    let mut is_any = false;
    for (name, amount) in [
        ("read_bytes", &mut amounts.read_bytes),
        ("write_bytes", &mut amounts.write_bytes),
        ("cancelled_write_bytes", &mut amounts.cancelled_bytes),
        ("rchar", &mut amounts.read_call_bytes),
        ("wchar", &mut amounts.write_call_bytes),
        ("syscr", &mut amounts.read_calls),
        ("syscw", &mut amounts.write_calls),
    ] {
        if let Some(found) = value(name) {
            *amount = found;
            is_any = true;
        }
    }
    is_any.then_some(amounts)
}

impl Levels {
    /// Adds another process. A text may contain any numbers, so the sums saturate.
    pub(super) const fn add(&mut self, other: &Self) {
        self.resident_pages = self.resident_pages.saturating_add(other.resident_pages);
        self.threads = self.threads.saturating_add(other.threads);
        self.processes += other.processes;
        self.io += other.io;
        self.no_io += other.no_io;
    }
}

pub(super) type Compute = fn(&Amounts, &Levels) -> u64;

pub(super) const FIELDS: [(&str, Compute); 15] = [
    ("cpu_usage", |sums, _| sums.user_ns.saturating_add(sums.system_ns)),
    ("cpu_user", |sums, _| sums.user_ns),
    ("cpu_system", |sums, _| sums.system_ns),
    ("resident", |_, levels| levels.resident_pages.saturating_mul(rustix::param::page_size() as u64)),
    ("read_bytes", |sums, _| sums.io.read_bytes),
    ("write_bytes", |sums, _| sums.io.write_bytes),
    ("cancelled_write_bytes", |sums, _| sums.io.cancelled_bytes),
    ("rchar", |sums, _| sums.io.read_call_bytes),
    ("wchar", |sums, _| sums.io.write_call_bytes),
    ("syscr", |sums, _| sums.io.read_calls),
    ("syscw", |sums, _| sums.io.write_calls),
    ("minor_faults", |sums, _| sums.minor_faults),
    ("major_faults", |sums, _| sums.major_faults),
    ("threads", |_, levels| levels.threads),
    ("processes", |_, levels| levels.processes),
];

/// Fields that need the right to read the I/O of processes.
pub(super) const IO_FIELDS: [&str; 7] =
    ["read_bytes", "write_bytes", "cancelled_write_bytes", "rchar", "wchar", "syscr", "syscw"];

/// Fields of I/O that a job's cgroup counts, too. They replace the cgroup's where it counts nothing.
pub(super) const CGROUP_IO_FIELDS: [&str; 2] = ["read_bytes", "write_bytes"];

pub(super) fn check(data: &[u8]) {
    let mut files = data.split(|byte| *byte == 0);
    if let Some(stat) = files.next().and_then(StatLine::parse) {
        let (process, levels) = of_stat(&stat);
        assert_eq!(process.waited.less(&process.total), Amounts::default());
        assert_eq!((process.parent, process.started), (stat.parent(), stat.started()));
        assert_eq!((levels.processes, stat.leaders().len()), (1, 2));
        assert!(stat.name.len() < data.len() && stat.cpu_ns() >= stat.ticks_ns(14));
        std::hint::black_box((stat.processor(), stat.resident_pages(), stat.threads()));
    }
    let io = String::from_utf8_lossy(files.next().unwrap_or_default());
    let none = IoAmounts::default();
    let known = none.combined(&none, |_, _| 7);
    if let (Some(new), Some(later)) = (io_amounts(&io, None), io_amounts(&io, Some(known))) {
        let wrong = new.combined(&later, |new, later| u64::from(later != new && (new, later) != (0, 7)));
        assert_eq!(wrong, none, "{new:?} {later:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "S 1 42 42 0 -1 4194304 100 20 3 4 500 60 7 8 20 0 3 0 1 1000000 250 18446744073709551615";

    fn without_io(user_ns: u64, system_ns: u64, minor_faults: u64, major_faults: u64) -> Amounts {
        Amounts { user_ns, system_ns, minor_faults, major_faults, io: IoAmounts::default() }
    }

    #[test]
    fn levels_of_any_size_are_added() {
        let of =
            |resident_pages, threads| Levels { resident_pages, threads, processes: 1, ..Levels::default() };
        let mut sum = of(u64::MAX, 3);
        sum.add(&of(250, u64::MAX));
        assert_eq!(sum, Levels { processes: 2, ..of(u64::MAX, u64::MAX) });
    }

    #[test]
    fn parses_names_with_any_bytes() {
        for name in [&b"a) b (c)"[..], b"", b")", b"\xff\xc3 S 2\n", "é".as_bytes()] {
            let line = [b"42 (", name, b") ", LINE.as_bytes()].concat();
            let stat = StatLine::parse(&line).unwrap();
            assert_eq!(stat.name, name);
            let (process, levels) = of_stat(&stat);
            assert_eq!((process.parent, process.started), (1, 1));
            assert_eq!(process.total, without_io(507 * TICK_NS, 68 * TICK_NS, 120, 7));
            assert_eq!(process.waited, without_io(7 * TICK_NS, 8 * TICK_NS, 20, 4));
            assert_eq!((levels.threads, levels.resident_pages, levels.processes), (3, 250, 1));
            assert_eq!(stat.processor(), 0, "the line is shorter");
        }
        assert_eq!(StatLine::parse(b"42 (a S 1"), None);
        let whole = [b"42 (a) ", LINE.as_bytes()].concat();
        let cut = whole.len() - " 250 18446744073709551615".len();
        assert!(
            (0..=cut).all(|length| StatLine::parse(&whole[..length]).is_none()),
            "up to the resident memory"
        );
        for word in ["x", "1.5", "18446744073709551616", "--1", "0x1"] {
            let line = format!("42 (a) {}", LINE.replace(" 500 ", &format!(" {word} ")));
            assert_eq!(StatLine::parse(line.as_bytes()), None, "{word}");
        }
        assert_eq!(StatLine::parse(b") 42 ("), None);
    }

    #[test]
    fn a_file_of_any_length_is_read_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        for length in [0, 1, WHOLE_BYTES - 1, WHOLE_BYTES, WHOLE_BYTES + 1, 5 * WHOLE_BYTES] {
            let text: Vec<u8> = (0..length).map(|place| u8::try_from(place % 251).unwrap()).collect();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(read_whole(&path).unwrap(), text);
        }
        assert!(read_whole(&directory.path().join("io")).is_err());
        let own = Path::new("/proc/self/io");
        assert_eq!(read_whole(own).unwrap().last(), Some(&b'\n'));
    }

    #[test]
    fn files_of_few_processes_stay_open() {
        let proc = tempfile::tempdir().unwrap();
        let mut reader = ProcessReader::default();
        for pid in 1..=2 * u32::try_from(KEPT_OPEN).unwrap() {
            let directory = proc.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("stat"), format!("{pid} (a) {LINE}")).unwrap();
            std::fs::write(directory.join("io"), "rchar: 9\n").unwrap();
            let (process, levels) = reader.read(proc.path(), pid, None).unwrap();
            assert_eq!((process.total.io.read_call_bytes, levels.io), (9, 1));
        }
        assert_eq!(reader.open.len(), KEPT_OPEN);
        reader.retain(|pid| pid == 3);
        assert_eq!(reader.open.keys().copied().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn an_ended_process_is_not_read_from_its_open_files() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut reader = ProcessReader::default();
        let mut started = || reader.read(Path::new("/proc"), child.id(), None).map(|(read, _)| read.started);
        let first = started();
        assert!(first.is_some_and(|ticks| ticks > 0));
        assert_eq!(started(), first);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reader.read(Path::new("/proc"), child.id(), None), None);
        assert!(reader.open.is_empty());
    }

    #[test]
    fn finds_the_last_cpu() {
        // Linux 6.18.
        let line = b"1 (init) S 0 1 1 0 -1 4194560 48364 9241931 49 2092 96 216 42306 16217 20 0 1 0 1 16515072 1899 18446744073709551615 1 1 0 0 0 0 671173123 4096 1260 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let stat = StatLine::parse(line).unwrap();
        assert_eq!((stat.processor(), stat.cpu_ns()), (1, 312 * TICK_NS));
    }

    #[test]
    fn finds_io_by_name() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        let whole = IoAmounts {
            read_bytes: 4096,
            write_bytes: 8192,
            cancelled_bytes: 5,
            read_call_bytes: 9,
            write_call_bytes: 8,
            read_calls: 7,
            write_calls: 6,
        };
        assert_eq!(io_amounts(text, None), Some(whole));
        for broken in ["rchar: 9\n", &text.replace('7', "x"), &text.replace("8192", "-1"), &text[..60]] {
            assert_eq!(io_amounts(broken, Some(whole)), Some(whole), "{broken:?}");
        }
        for broken in ["", "\u{fffd}", "rchar: 9", "rchar 9\n"] {
            assert_eq!(io_amounts(broken, Some(whole)), None, "{broken:?}");
        }
    }
}
