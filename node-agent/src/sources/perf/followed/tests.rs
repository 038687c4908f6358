use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use polymeter_proto::catalogue;

use super::*;

/// A shell that runs one line at a time.
struct Shell {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "while read -r line; do eval \"$line\"; echo done; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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

/// Page faults of `true`, which a shell starts, are counted once: through the shell, which was followed before.
#[test]
fn children_of_followed_processes_are_counted_once() {
    let faults = catalogue::find("perf.page_faults").unwrap();
    let cgroup = tempfile::tempdir().unwrap();
    let list = |pids: &[u32]| {
        let lines: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        fs::write(cgroup.path().join("cgroup.procs"), lines).unwrap();
    };
    let mut first = Shell::start();
    list(&[first.child.id()]);
    let paths = (Path::new("/proc"), Path::new("/sys/kernel/tracing"));
    let open = |room| FollowedSource::open(paths, cgroup.path(), std::slice::from_ref(&faults), room, &[]);
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
    let directory = format!("/proc/{0}/task/{0}/children", first.child.id());
    let child: u32 = fs::read_to_string(directory).unwrap().trim().parse().unwrap();
    list(&[first.child.id(), child]);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert_eq!(follower.descriptors(), 1, "its child needs no events");

    // A process that comes from outside, for which there is room later.
    let mut second = Shell::start();
    list(&[first.child.id(), child, second.child.id()]);
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
    list(&[first.child.id(), child, second.child.id(), third.child.id()]);
    assert_eq!(follower.scan(0), ScanResult::TooMany);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert_eq!(follower.descriptors(), 3);

    // The counts of processes that are gone stay.
    first.run("kill $child; wait");
    let last = read(&mut source);
    list(&[]);
    assert_eq!(follower.scan(10), ScanResult::All);
    assert!(read(&mut source) >= last);
    assert_eq!(source.members.len(), 0, "their events are closed");
    follower.scan(10);
    assert_eq!(follower.descriptors(), 0);
    drop((first, second, third));
}
