use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use polymeter_proto::catalogue;

use super::*;

const PROGRAM: &str = "while read -r line; do eval \"$line\"; echo done; done";

fn children_of(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn list(cgroup: &tempfile::TempDir, pids: &[u32]) {
    let lines: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
    fs::write(cgroup.path().join("cgroup.procs"), lines).unwrap();
}

struct Shell {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        Self::spawn(Command::new("sh").args(["-c", PROGRAM]))
    }

    /// Starts a shell as a descendant of another one that adopts orphans. `wrapped` runs `$PROGRAM`.
    fn start_below_adopter(wrapped: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{wrapped}; :")]).env("PROGRAM", PROGRAM);
        let adopt =
            || rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(Into::into);
        #[expect(unsafe_code, reason = "the attribute must be set between fork and exec")]
        // SAFETY: the closure makes system calls only.
        let command = unsafe { command.pre_exec(adopt) };
        let mut shell = Self::spawn(command);
        shell.run(":");
        shell
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn run(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.answers.read_line(&mut String::new()).unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

fn read(source: &mut FollowedSource) -> u64 {
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    reading.get(0).unwrap()
}

#[test]
fn finds_the_newest_process() {
    assert_eq!(last_pid("0.25 0.50 0.75 1/100 4711\n"), Some(4711));
    assert_eq!(last_pid("0.25\n"), None);
}

/// Page faults of `true`, which a shell starts, are counted once: through the shell, which was followed
/// before.
#[test]
fn children_of_followed_processes_are_counted_once() {
    let faults = catalogue::find("perf.page_faults").unwrap();
    let cgroup = tempfile::tempdir().unwrap();
    let mut first = Shell::start();
    list(&cgroup, &[first.child.id()]);
    let paths = &EventPlaces::below(Path::new("/"));
    let faults = std::slice::from_ref(&faults);
    let open = |room| FollowedSource::open(paths, cgroup.path(), faults, &[], room, &[]);
    let (Some((mut source, mut follower)), missing) = open(1) else {
        // Without the right to count processes there is a reason.
        assert!(!open(1).1.is_empty());
        return;
    };
    assert_eq!(missing, []);
    assert_eq!((follower.descriptors(), source.members.len()), (1, 1));
    let before = read(&mut source);
    first.run("sleep 600 & child=$!");
    let forked = read(&mut source);
    assert!(forked > before, "what it starts is counted");
    let [child] = children_of(first.child.id())[..] else { panic!("one child") };
    list(&cgroup, &[first.child.id(), child]);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert_eq!(follower.descriptors(), 1, "its child needs no events");

    // A process that comes from outside, for which there is room later.
    let mut second = Shell::start();
    list(&cgroup, &[first.child.id(), child, second.child.id()]);
    assert_eq!(follower.scan(0), ScanResult::TooMany);
    assert_eq!(follower.scan(0), ScanResult::All, "reported once");
    assert_eq!(follower.descriptors(), 1);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert_eq!((follower.descriptors(), read(&mut source) >= forked), (2, true), "there is room now");
    let before = read(&mut source);
    second.run("sleep 600 & kill $!; wait");
    assert!(read(&mut source) > before, "it is counted from now on");
    // The next shortage is reported again.
    let third = Shell::start();
    list(&cgroup, &[first.child.id(), child, second.child.id(), third.child.id()]);
    assert_eq!(follower.scan(0), ScanResult::TooMany);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert_eq!(follower.descriptors(), 3);

    // The counts of processes that are gone stay.
    first.run("kill $child; wait");
    let last = read(&mut source);
    list(&cgroup, &[]);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert!(read(&mut source) >= last);
    assert_eq!(source.members.len(), 0, "their events are closed");
    follower.scan(10);
    assert_eq!(follower.descriptors(), 0);
    drop((first, second, third));
}

/// Only the events of its ancestor count an orphan that a process outside of the job has adopted.
#[test]
fn orphans_that_are_adopted_outside_of_the_job_are_counted_once() {
    let faults = catalogue::find("perf.page_faults").unwrap();
    // The adopter has started the process of the job itself, as the leader of a session; or another one has
    // done so.
    for wrapped in ["setsid sh -c \"$PROGRAM\"", "sh -c 'sh -c \"$PROGRAM\"; :'"] {
        let cgroup = tempfile::tempdir().unwrap();
        let mut shell = Shell::start_below_adopter(wrapped);
        let adopter = shell.child.id();
        let mut of_job = children_of(adopter)[0];
        if wrapped.starts_with("sh ") {
            of_job = children_of(of_job)[0];
        }
        list(&cgroup, &[of_job]);
        let paths = &EventPlaces::below(Path::new("/"));
        let opened = FollowedSource::open(paths, cgroup.path(), std::slice::from_ref(&faults), &[], 9, &[]).0;
        let Some((mut source, mut follower)) = opened else { return };
        // The parent of the orphan ends before anybody sees the orphan.
        shell.run("(sleep 600 &)");
        // Its first child is the job's process or the parent of that; an adopted one follows.
        let [_, orphan] = children_of(adopter)[..] else { panic!("{wrapped}: {:?}", children_of(adopter)) };
        list(&cgroup, &[of_job, orphan]);
        assert_eq!(follower.scan(9), ScanResult::All);
        assert_eq!(follower.descriptors(), 1, "{wrapped}");
        let before = read(&mut source);
        shell.run("true");
        assert!(read(&mut source) >= before);
        shell.run(&format!("kill {orphan}"));
    }
}

/// The orphan leads its own session, and its parent has also started the process of the job: only the log of
/// forks tells that this parent has not started the orphan, too.
#[test]
fn an_orphan_with_a_session_of_its_own_is_counted_once() {
    let faults = catalogue::find("perf.page_faults").unwrap();
    let cgroup = tempfile::tempdir().unwrap();
    let mut shell = Shell::start_below_adopter("setsid sh -c \"$PROGRAM\"");
    let adopter = shell.child.id();
    let of_job = children_of(adopter)[0];
    list(&cgroup, &[of_job]);
    let cpus = crate::sources::online_cpus(Path::new("/")).unwrap();
    let paths = &EventPlaces::below(Path::new("/"));
    let wanted = std::slice::from_ref(&faults);
    let opened = FollowedSource::open(paths, cgroup.path(), wanted, &cpus, 9, &[]).0;
    let Some((mut source, mut follower)) = opened else { return };
    // Without the right to record the forks of all processes the rules without a log are used.
    if follower.fork_log.is_none() {
        return;
    }
    shell.run("(setsid sleep 600 &)");
    let [_, orphan] = children_of(adopter)[..] else { panic!("{:?}", children_of(adopter)) };
    let until_ns = clock::monotonic_ns() + 60_000_000_000;
    while StatLine::read(Path::new(&format!("/proc/{orphan}"))).unwrap().leaders()[0] != orphan {
        assert!(clock::monotonic_ns() < until_ns, "no session of its own");
        clock::sleep(std::time::Duration::from_millis(1));
    }
    list(&cgroup, &[of_job, orphan]);
    assert_eq!(follower.scan(9), ScanResult::All);
    assert_eq!(follower.descriptors(), 1, "the events of its ancestor count it");
    // A process from outside.
    let other = Shell::start();
    list(&cgroup, &[of_job, orphan, other.child.id()]);
    assert_eq!(follower.scan(9), ScanResult::All);
    assert_eq!(follower.descriptors(), 2);
    let before = read(&mut source);
    shell.run("/bin/true");
    assert!(read(&mut source) > before, "what the job starts is counted");
    shell.run(&format!("kill {orphan}"));
}
