//! Statistics of jobs on Lustre's servers: `job_stats` of the targets, which have an entry for each id that
//! clients send with their requests (`jobid_var`).
//!
//! Places: `obdfilter/*/job_stats` (OST) and `mdt/*/job_stats` (MDT) in `/proc/fs/lustre` or
//! `/sys/kernel/debug/lustre`. A text has the jobs of the whole cluster: it is read line by line, at most
//! once a second, and the jobs with series are bounded. What is known of them survives a new opening of the
//! sources (`ServedJobs`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::{FILES_MAX, directories};
use crate::cgroups::Mounts;
use crate::clock;
use crate::sources::custom_source::CustomSource;
use crate::sources::kernel_text;
use crate::sources::kind::{Lane, OpenRequest, Opening, SourceKind};
use crate::sources::outcome::Outcome;
use crate::sources::path_pattern::PatternWatch;
use crate::sources::reading::Reading;
use crate::sources::served_jobs::{JOBS_MAX, Job, JobKey, Parser, ServedJobs};
use crate::sources::slot::Slot;
use crate::sources::source::Source;
use crate::sources::target::Target;
use crate::sources::unknown_lines::UnknownLines;

const KIND: &str = "lustre_jobs";

const SOURCE: &str = "lustre/jobs";

/// Files, as patterns below [`directories`].
const PATTERNS: [&str; 2] = ["obdfilter/*/job_stats", "mdt/*/job_stats"];

/// Label with the id that clients send.
const LABEL: &str = "lustre_job";

/// Largest text that is read: some 10,000 jobs.
const TEXT_BYTES: u64 = 32 * 1024 * 1024;

const LINE_BYTES: u64 = 4096;

/// Longest time between two readings while there are no series. The thread reads at half of it.
const LONGEST_GAP_NS: u64 = 20_000_000_000;

/// Shortest time between two openings because of new jobs: each reopens all sources of the node.
const NEWS_EVERY_NS: u64 = 30_000_000_000;

/// Fields, by the numbers of their counts.
const FIELDS: [&str; 5] = ["read_bytes", "reads", "write_bytes", "writes", "operations"];

const JOBS: &str = "jobs";

pub(in crate::sources) struct LustreJobsKind;

impl SourceKind for LustreJobsKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.into_iter().chain([JOBS]).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (Target::Node(_), Some(jobs)) = (request.target, request.host.served_jobs) else { return };
        let mounts = request.host.mounts;
        for (name, directory) in directories(mounts) {
            let watch = PatternWatch::new(&directory, PATTERNS.into());
            opening.push(format!("{SOURCE}/{name}"), Source::Custom(Box::new(watch)));
        }
        if find(mounts).is_empty() {
            let reason = "this node is no server of Lustre, or its version has no job_stats";
            return opening.unavailable_all(&request.wanted, reason);
        }
        let seen = jobs.changes();
        let source = JobsSource::new(mounts, jobs, slots(&request.wanted, &jobs.chosen()));
        opening.push_custom(SOURCE.to_owned(), Box::new(source));
        let watch = JobsWatch { jobs: Arc::clone(jobs), seen, opened_ns: clock::monotonic_ns() };
        opening.push(format!("{SOURCE}/watch"), Source::Custom(Box::new(watch)));
    }
}

fn find(mounts: &Mounts) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for (_, directory) in directories(mounts) {
        for (kind, file) in PATTERNS.iter().filter_map(|pattern| pattern.split_once("/*/")) {
            let targets = fs::read_dir(directory.join(kind)).into_iter().flatten().flatten();
            for target in targets.filter_map(|entry| entry.file_name().into_string().ok()) {
                let path = directory.join(kind).join(&target).join(file);
                if found.len() < FILES_MAX && path.exists() {
                    found.entry(target).or_insert(path);
                }
            }
        }
    }
    found
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Count(JobKey, usize),
    Jobs,
}

fn slots(wanted: &[Definition], chosen: &[JobKey]) -> Vec<(Slot, Value)> {
    let mut slots = Vec::new();
    for definition in wanted {
        let field = definition.metric.field_of(KIND);
        if field == Some(JOBS) {
            slots.push((Slot::unlabelled(definition.clone()), Value::Jobs));
        }
        let Some(number) = FIELDS.iter().position(|name| Some(*name) == field) else { continue };
        for key in chosen {
            let pairs = [("filesystem", &key.file_system), (LABEL, &key.id)];
            let pairs = pairs.map(|(label, text)| (label.to_owned(), text.clone()));
            if let Ok(labels) = Labels::escaped(pairs.into()) {
                let slot = Slot { definition: definition.clone(), labels };
                slots.push((slot, Value::Count(key.clone(), number)));
            }
        }
    }
    slots
}

#[derive(Debug)]
struct JobsSource {
    mounts: Mounts,
    jobs: Arc<ServedJobs>,
    slots: Vec<Slot>,
    values: Vec<Value>,
    unknown: UnknownLines,
}

impl JobsSource {
    fn new(mounts: &Mounts, jobs: &Arc<ServedJobs>, slots: Vec<(Slot, Value)>) -> Self {
        let (slots, values) = slots.into_iter().unzip();
        let unknown = UnknownLines::default();
        Self { mounts: mounts.clone(), jobs: Arc::clone(jobs), slots, values, unknown }
    }
}

impl CustomSource for JobsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let (mut targets, mut failure) = (BTreeMap::new(), None);
        self.unknown = UnknownLines::default();
        for (target, path) in find(&self.mounts) {
            match read_jobs(&path, &mut self.unknown) {
                Ok(jobs) => drop(targets.insert(target, jobs)),
                // One of several targets may be unmounted.
                Err(error) => {
                    failure = Some(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
                }
            }
        }
        if targets.is_empty() {
            return failure.map_or(Outcome::Gone, Outcome::of_error);
        }
        self.jobs.update(targets);
        for (slot, value) in (0..).zip(&self.values) {
            match value {
                Value::Jobs => reading.set(slot, self.jobs.jobs() as u64),
                Value::Count(key, number) => {
                    match self.jobs.counts(key).and_then(|counts| counts.get(*number).copied()) {
                        Some(count) => reading.set(slot, count),
                        // The servers have forgotten the job.
                        None => reading.set_lacking(slot),
                    }
                }
            }
        }
        Outcome::Read
    }

    /// Looks for the first jobs.
    fn prepare(&mut self) {
        if self.slots.is_empty() {
            self.read(&mut Reading::default());
        }
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::SECOND)
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        self.slots.is_empty().then_some(LONGEST_GAP_NS)
    }
}

/// Reads the jobs of a target. If a text is too long, or cut off within a line, its last job is left out: the
/// missing lines would count as 0. Lines that count for no job are added to `unknown`.
fn read_jobs(path: &Path, unknown: &mut UnknownLines) -> io::Result<Vec<Job>> {
    let mut text = BufReader::new(kernel_text::open(path)?.take(TEXT_BYTES));
    let (mut jobs, mut parser, mut line) = (Vec::new(), Parser::default(), Vec::new());
    let mut is_whole = true;
    loop {
        line.clear();
        if text.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        jobs.extend(parser.line(&line));
        is_whole = line.ends_with(b"\n");
    }
    let is_cut_off = text.get_ref().limit() == 0 || !is_whole;
    unknown.join(std::mem::take(&mut parser.unknown));
    jobs.extend(parser.finish().filter(|_| !is_cut_off));
    Ok(jobs)
}

/// Reports that jobs were given series: a source without slots.
#[derive(Debug)]
struct JobsWatch {
    jobs: Arc<ServedJobs>,
    seen: u64,
    opened_ns: u64,
}

impl JobsWatch {
    fn look(&mut self, now_ns: u64) -> Outcome {
        let changes = self.jobs.changes();
        // The first jobs are waited for.
        let is_due = self.seen == 0 || now_ns.saturating_sub(self.opened_ns) >= NEWS_EVERY_NS;
        if !is_due || std::mem::replace(&mut self.seen, changes) == changes {
            return Outcome::Read;
        }
        Outcome::Changed
    }
}

impl CustomSource for JobsWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        self.look(clock::monotonic_ns())
    }
}

/// Bound of the jobs of a server that have series, for documents.
const _: () = assert!(JOBS_MAX == 256, "docs/how-to/networks-and-files.md names it");

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue;

    use super::*;
    use crate::counters::Counters;
    use crate::sources::kind::SourceFactory;

    fn ost(bytes: u64) -> String {
        format!(
            "job_stats:\n- job_id:          4711\n  snapshot_time:   1720516680\n\
             read_bytes:      {{ samples: 2, unit: bytes, min: 1, max: {bytes}, sum: {bytes}, sumsq: 0 }}\n\
             read:            {{ samples: 2, unit: usecs, min: 0, max: 0, sum: 0, sumsq: 0 }}\n\
             - job_id:          \"a\\\"b\"\n  punch: {{ samples: 1, unit: reqs }}\n"
        )
    }

    /// A server of Lustre 2.15 with two OSTs and an MDT, in both places.
    fn server() -> (tempfile::TempDir, Mounts) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/fs/lustre/obdfilter/scratch-OST0000/job_stats", ost(4096)),
            ("sys/kernel/debug/lustre/obdfilter/scratch-OST0001/job_stats", ost(100)),
            ("proc/fs/lustre/obdfilter/scratch-OST0001/job_stats", ost(9)),
            (
                "proc/fs/lustre/mdt/scratch-MDT0000/job_stats",
                "job_stats:\n- job_id: 4711\n  open: { samples: 8, unit: reqs }\n".to_owned(),
            ),
            ("proc/fs/lustre/mdt/scratch-MDT0001/other", String::new()),
            ("proc/self/mountinfo", String::new()),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mounts = Mounts::read(root.path()).unwrap();
        (root, mounts)
    }

    fn source(mounts: &Mounts, jobs: &Arc<ServedJobs>) -> JobsSource {
        let wanted = catalogue::select(&"node.lustre.job*".parse().unwrap());
        JobsSource::new(mounts, jobs, slots(&wanted, &jobs.chosen()))
    }

    fn read(source: &mut JobsSource) -> (Outcome, BTreeMap<String, u64>, usize) {
        let mut reading = Reading::absent(source.slots.len());
        let outcome = source.read(&mut reading);
        let lacking = (0..).zip(&source.slots).filter(|(slot, _)| reading.is_lacking(*slot)).count();
        (outcome, reading.by_series(&source.slots), lacking)
    }

    #[test]
    fn jobs_of_a_server_have_series_over_its_targets() {
        let (root, mounts) = server();
        let jobs = Arc::new(ServedJobs::default());
        assert_eq!(read(&mut source(&mounts, &jobs)).1, [("node.lustre.jobs{}".to_owned(), 2)].into());
        assert_eq!(jobs.changes(), 1);
        let mut source = source(&mounts, &jobs);
        // The other job has an odd name.
        let of_other =
            |field: &str| format!("node.lustre.job.{field}{{filesystem=scratch,lustre_job=a\\\"b}}");
        let fields = ["read.bytes", "read.operations", "write.bytes", "write.operations"];
        let others =
            fields.map(|field| (of_other(field), 0)).into_iter().chain([(of_other("operations"), 2)]);
        let expected = [
            ("node.lustre.job.operations{filesystem=scratch,lustre_job=4711}", 8),
            ("node.lustre.job.read.bytes{filesystem=scratch,lustre_job=4711}", 4196),
            ("node.lustre.job.read.operations{filesystem=scratch,lustre_job=4711}", 4),
            ("node.lustre.job.write.bytes{filesystem=scratch,lustre_job=4711}", 0),
            ("node.lustre.job.write.operations{filesystem=scratch,lustre_job=4711}", 0),
            ("node.lustre.jobs{}", 2),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        let expected: BTreeMap<String, u64> = expected.into_iter().chain(others).collect();
        assert_eq!(read(&mut source), (Outcome::Read, expected, 0));
        // The statistics of one target are cleared, another target leaves.
        fs::write(root.path().join("proc/fs/lustre/obdfilter/scratch-OST0000/job_stats"), "job_stats:\n")
            .unwrap();
        fs::remove_dir_all(root.path().join("proc/fs/lustre/mdt")).unwrap();
        let (outcome, values, lacking) = read(&mut source);
        assert_eq!((outcome, lacking), (Outcome::Read, 0));
        assert_eq!(values["node.lustre.job.read.bytes{filesystem=scratch,lustre_job=4711}"], 4196);
        for place in ["sys/kernel/debug", "proc/fs"] {
            let path = root.path().join(place).join("lustre/obdfilter/scratch-OST0001/job_stats");
            fs::write(path, "").unwrap();
        }
        let (outcome, values, lacking) = read(&mut source);
        assert_eq!(
            (outcome, values.len(), lacking),
            (Outcome::Read, 1, 10),
            "the servers have forgotten them"
        );
        fs::remove_dir_all(root.path().join("proc/fs/lustre")).unwrap();
        fs::remove_dir_all(root.path().join("sys/kernel/debug/lustre")).unwrap();
        assert_eq!(read(&mut source).0, Outcome::Gone);
    }

    #[test]
    fn a_server_is_noticed_and_its_jobs_are_opened_in_time() {
        let (root, mounts) = server();
        let jobs = Arc::new(ServedJobs::default());
        let open = || {
            let factory = SourceFactory { served_jobs: Some(&jobs), ..SourceFactory::of(&mounts) };
            let wanted = catalogue::select(&"node.lustre.job.*".parse().unwrap());
            factory.open(&Target::Node(Arc::new(Counters::default())), &wanted)
        };
        let (opened, unavailable) = open();
        let names: Vec<&str> = opened.iter().map(|opened| opened.name.as_str()).collect();
        assert_eq!(names, ["lustre/jobs/debugfs", "lustre/jobs/proc", "lustre/jobs", "lustre/jobs/watch"]);
        assert_eq!(unavailable, []);
        let until_ns = clock::monotonic_ns() + 120_000_000_000;
        while jobs.changes() == 0 {
            assert!(clock::monotonic_ns() < until_ns, "no job was found");
            clock::sleep(std::time::Duration::from_millis(1));
        }
        let mut watch = JobsWatch { jobs: Arc::clone(&jobs), seen: 0, opened_ns: 1 };
        assert_eq!([watch.look(2), watch.look(3)], [Outcome::Changed, Outcome::Read]);
        let path = root.path().join("proc/fs/lustre/mdt/scratch-MDT0000/job_stats");
        fs::write(path, "job_stats:\n- job_id: 4712\n").unwrap();
        read(&mut source(&mounts, &jobs));
        assert_eq!([watch.look(4), watch.look(1 + NEWS_EVERY_NS)], [Outcome::Read, Outcome::Changed]);
        assert_eq!(open().0[2].source.slots().len(), 15);
        for place in ["proc/fs/lustre", "sys/kernel/debug/lustre"] {
            fs::remove_dir_all(root.path().join(place)).unwrap();
        }
        let (opened, unavailable) = open();
        assert_eq!((opened.len(), unavailable.len()), (2, 5), "only watches");
    }

    #[test]
    fn a_text_that_is_cut_off_lacks_its_last_job() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job_stats");
        let jobs = (0..3)
            .map(|id| format!("- job_id: {id}\n  punch: {{ samples: 1, unit: reqs }}\n"))
            .collect::<String>();
        let mut unknown = UnknownLines::default();
        fs::write(&path, jobs.clone() + &"x".repeat(10_000) + "\n").unwrap();
        assert_eq!(read_jobs(&path, &mut unknown).unwrap().len(), 3, "a long line is skipped");
        for cut in 1..20 {
            fs::write(&path, &jobs[..jobs.len() - cut]).unwrap();
            assert_eq!(read_jobs(&path, &mut unknown).unwrap().len(), 2, "{cut} bytes less");
        }
        assert!(read_jobs(&directory.path().join("missing"), &mut unknown).is_err());
    }
}
