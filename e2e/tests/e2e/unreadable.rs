//! Stores that cannot be read, each with an error of its own, and stores that can be read although the user
//! may not write there.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polymeter_e2e::fixture::OWNER;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, install, program, require};
use rusqlite::Connection;

tests![
    each_store_error_is_reported_specifically,
    file_permissions_decide_which_stores_a_user_reads,
    store_on_a_read_only_disk_is_readable,
];

/// A store with a job, and the command in a directory where every user can run it.
struct Fixture {
    env: TestEnvironment,
    command: PathBuf,
    store: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnvironment::new();
        chmod(&env.path(""), 0o755);
        let (command, store) = (env.path("polymeter"), env.path("store.db"));
        install(program("polymeter").get_program(), &command);
        let made =
            program("polymeter").args(["run", "-o"]).arg(&store).args(["--", "true"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self { env, command, store }
    }

    fn report(&self, store: &Path) -> Command {
        let mut command = Command::new(&self.command);
        command.args(["report", "--store"]).arg(format!("sqlite:{}", store.display())).current_dir("/");
        command
    }

    fn report_as_user(&self, store: &Path) -> Output {
        let report = self.report(store);
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={OWNER}"), format!("--regid={OWNER}"), "--clear-groups".to_owned()]);
        command.arg(report.get_program()).args(report.get_args()).current_dir("/").output().unwrap()
    }

    /// Output of a report whose store is in a directory on a read-only mount.
    fn report_from_read_only_mount(&self, store: &Path) -> Output {
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";
        let report = self.report(store);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(store.parent().unwrap());
        command.arg(report.get_program()).args(report.get_args()).output().unwrap()
    }

    /// Copies the store to a directory of its own, readable by every user.
    fn copy(&self, name: &str) -> PathBuf {
        let directory = self.env.path(name);
        fs::create_dir(&directory).unwrap();
        chmod(&directory, 0o755);
        let copy = directory.join("store.db");
        fs::copy(&self.store, &copy).unwrap();
        chmod(&copy, 0o644);
        copy
    }

    /// Copies the store with a write-ahead log that was not checkpointed, as a killed collector leaves it.
    fn copy_with_log(&self, name: &str) -> PathBuf {
        let (whole, copy) = (self.copy(&format!("{name}.whole")), self.copy(name));
        let connection = Connection::open(&whole).unwrap();
        connection.execute_batch("UPDATE session SET last_seen = last_seen + 1").unwrap();
        for suffix in ["", "-wal"] {
            let (from, to) = (suffixed(&whole, suffix), suffixed(&copy, suffix));
            fs::copy(from, &to).unwrap();
            chmod(&to, 0o644);
        }
        copy
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

/// Error of a report that must fail. The message names the file.
fn error_of(output: &Output, store: &Path) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty() && stderr.lines().count() == 1, "{stderr}");
    let begin = format!("polymeter: cannot read the store: {}: ", store.display());
    let problem = stderr.strip_prefix(&begin).unwrap_or_else(|| panic!("{begin}\n{stderr}"));
    assert!(problem.contains("; "), "a cause and a remedy: {problem}");
    problem.trim_end().to_owned()
}

fn assert_report(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("data      complete"), "{output:?}");
}

fn each_store_error_is_reported_specifically() {
    let fixture = Fixture::new();
    assert_report(&fixture.report(&fixture.store).output().unwrap());
    let bytes = fs::metadata(&fixture.store).unwrap().len();
    let missing = fixture.env.path("none.db");
    let empty = fixture.copy("empty");
    fs::write(&empty, "").unwrap();
    let text_file = fixture.copy("text");
    fs::write(&text_file, "This text file is not a database.\n".repeat(100)).unwrap();
    let foreign = fixture.env.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (name)").unwrap();
    let truncated = fixture.copy("truncated");
    OpenOptions::new().write(true).open(&truncated).unwrap().set_len(bytes / 2).unwrap();
    let damaged = fixture.copy("damaged");
    let file = OpenOptions::new().write(true).open(&damaged).unwrap();
    file.write_all_at(&vec![0x55; usize::try_from(bytes).unwrap() - 100], 100).unwrap();
    let directory = fixture.env.path("");
    let cases = [
        (&missing, "no such file"),
        (&empty, "the file is empty"),
        (&text_file, "the file is not an SQLite database"),
        (&foreign, "another program's SQLite database"),
        (&truncated, "the file is truncated"),
        (&damaged, "the file is damaged"),
        (&directory, "not a regular file"),
    ];
    for (store, words) in cases {
        let message = error_of(&fixture.report(store).output().unwrap(), store);
        assert!(message.contains(words), "{words}: {message}");
        let others = cases.iter().filter(|(_, other)| message.contains(other)).count();
        assert_eq!(others, 1, "{message}");
    }
    let message = error_of(&fixture.report(&truncated).output().unwrap(), &truncated);
    assert!(message.contains(&format!("{} of {bytes} bytes", bytes / 2)), "{message}");
    // A bundle reports the same error.
    let bundle = Command::new(&fixture.command)
        .args(["bundle", "x", "--store"])
        .arg(format!("sqlite:{}", missing.display()))
        .arg("--out")
        .arg(fixture.env.path("bundle"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&bundle.stderr).contains("no such file"), "{bundle:?}");
}

fn file_permissions_decide_which_stores_a_user_reads() {
    require(&[Need::Root]);
    let fixture = Fixture::new();
    // The user may not read the file.
    let message = error_of(&fixture.report_as_user(&fixture.store), &fixture.store);
    assert!(message.contains("permission denied: the file belongs to uid 0 and has mode 600"), "{message}");
    let hidden = fixture.copy("hidden");
    chmod(hidden.parent().unwrap(), 0o700);
    let message = error_of(&fixture.report_as_user(&hidden), &hidden);
    assert!(message.contains("permission denied: its directory is not accessible"), "{message}");
    // The file is readable, in a directory of another user.
    let readable = fixture.copy("readable");
    assert_report(&fixture.report_as_user(&readable));
    assert_eq!(fs::read_dir(readable.parent().unwrap()).unwrap().count(), 1, "nothing was left there");
    let with_log = fixture.copy_with_log("log");
    let message = error_of(&fixture.report_as_user(&with_log), &with_log);
    assert!(
        message.contains("write-ahead log (-wal)") && message.contains("copy the file and its -wal"),
        "{message}"
    );
    // The user follows the advice of the message.
    let own = fixture.env.path("own");
    fs::create_dir(&own).unwrap();
    for suffix in ["", "-wal"] {
        let copy = own.join(format!("store.db{suffix}"));
        fs::copy(suffixed(&with_log, suffix), &copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(OWNER), Some(OWNER)).unwrap();
    }
    std::os::unix::fs::chown(&own, Some(OWNER), Some(OWNER)).unwrap();
    assert_report(&fixture.report_as_user(&own.join("store.db")));
}

fn store_on_a_read_only_disk_is_readable() {
    require(&[Need::Root, Need::Mounts]);
    let fixture = Fixture::new();
    let read_only = fixture.copy("read_only");
    assert_report(&fixture.report_from_read_only_mount(&read_only));
    let with_log = fixture.copy_with_log("log");
    let message = error_of(&fixture.report_from_read_only_mount(&with_log), &with_log);
    assert!(message.contains("write-ahead log (-wal)"), "{message}");
}
