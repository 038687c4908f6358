//! Stores that cannot be read, each with an error of its own, and stores that can be read although the user may not write
//! there.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polymeter_e2e::scene::OWNER;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, program, require};
use rusqlite::Connection;

tests![
    each_store_error_is_reported_specifically,
    file_permissions_decide_which_stores_a_user_reads,
    store_on_a_read_only_disk_is_readable,
];

/// A store with a job, and the command in a directory where every user can run it.
struct Shelf {
    env: TestEnvironment,
    command: PathBuf,
    store: PathBuf,
}

impl Shelf {
    fn new() -> Self {
        let env = TestEnvironment::new();
        chmod(&env.path(""), 0o755);
        let (command, store) = (env.path("polymeter"), env.path("store.db"));
        fs::copy(program("polymeter").get_program(), &command).unwrap();
        chmod(&command, 0o755);
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

    /// Returns the output of a report by an ordinary user.
    fn report_to_ada(&self, store: &Path) -> Output {
        let report = self.report(store);
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={OWNER}"), format!("--regid={OWNER}"), "--clear-groups".to_owned()]);
        command.arg(report.get_program()).args(report.get_args()).current_dir("/").output().unwrap()
    }

    /// Returns the output of a report whose store is in a directory on a read-only mount.
    fn report_from_fixed_disk(&self, store: &Path) -> Output {
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";
        let report = self.report(store);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(store.parent().unwrap());
        command.arg(report.get_program()).args(report.get_args()).output().unwrap()
    }

    /// Returns a copy of the store in a directory of its own, readable by every user.
    fn copy(&self, name: &str) -> PathBuf {
        let directory = self.env.path(name);
        fs::create_dir(&directory).unwrap();
        chmod(&directory, 0o755);
        let copy = directory.join("store.db");
        fs::copy(&self.store, &copy).unwrap();
        chmod(&copy, 0o644);
        copy
    }

    /// Returns such a copy with a write-ahead log that was not checkpointed, as a killed collector leaves it.
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

/// Returns the error of a report that must fail. The message names the file.
fn refused(output: &Output, store: &Path) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
    let begin = format!("polymeter: cannot read the store: {}: ", store.display());
    let problem = said.strip_prefix(&begin).unwrap_or_else(|| panic!("{begin}\n{said}"));
    assert!(problem.contains("; "), "a cause and a remedy: {problem}");
    problem.trim_end().to_owned()
}

fn granted(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("wall time"), "{output:?}");
}

fn each_store_error_is_reported_specifically() {
    let shelf = Shelf::new();
    granted(&shelf.report(&shelf.store).output().unwrap());
    let bytes = fs::metadata(&shelf.store).unwrap().len();
    let missing = shelf.env.path("none.db");
    let empty = shelf.copy("empty");
    fs::write(&empty, "").unwrap();
    let diary = shelf.copy("diary");
    fs::write(&diary, "Dear diary, today I was taken for a database.\n".repeat(100)).unwrap();
    let foreign = shelf.env.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (name)").unwrap();
    let truncated = shelf.copy("truncated");
    OpenOptions::new().write(true).open(&truncated).unwrap().set_len(bytes / 2).unwrap();
    let damaged = shelf.copy("damaged");
    let file = OpenOptions::new().write(true).open(&damaged).unwrap();
    file.write_all_at(&vec![0x55; usize::try_from(bytes).unwrap() - 100], 100).unwrap();
    let directory = shelf.env.path("");
    let told = [
        (&missing, "no such file"),
        (&empty, "the file is empty"),
        (&diary, "the file is not an SQLite database"),
        (&foreign, "another program's SQLite database"),
        (&truncated, "the file is truncated"),
        (&damaged, "the file is damaged"),
        (&directory, "not a regular file"),
    ];
    for (store, words) in told {
        let said = refused(&shelf.report(store).output().unwrap(), store);
        assert!(said.contains(words), "{words}: {said}");
        let others = told.iter().filter(|(_, other)| said.contains(other)).count();
        assert_eq!(others, 1, "{said}");
    }
    let said = refused(&shelf.report(&truncated).output().unwrap(), &truncated);
    assert!(said.contains(&format!("{} of {bytes} bytes", bytes / 2)), "{said}");
    // A bundle reports the same error.
    let bundle = Command::new(&shelf.command)
        .args(["bundle", "x", "--store"])
        .arg(format!("sqlite:{}", missing.display()))
        .arg("--out")
        .arg(shelf.env.path("bundle"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&bundle.stderr).contains("no such file"), "{bundle:?}");
}

fn file_permissions_decide_which_stores_a_user_reads() {
    require(&[Need::Root]);
    let shelf = Shelf::new();
    // The user may not read the file.
    let said = refused(&shelf.report_to_ada(&shelf.store), &shelf.store);
    assert!(said.contains("permission denied: the file belongs to uid 0 and has mode 600"), "{said}");
    let hidden = shelf.copy("hidden");
    chmod(hidden.parent().unwrap(), 0o700);
    let said = refused(&shelf.report_to_ada(&hidden), &hidden);
    assert!(said.contains("permission denied: its directory is not accessible"), "{said}");
    // The file is readable, in a directory of another user.
    let readable = shelf.copy("readable");
    granted(&shelf.report_to_ada(&readable));
    assert_eq!(fs::read_dir(readable.parent().unwrap()).unwrap().count(), 1, "nothing was left there");
    let with_log = shelf.copy_with_log("log");
    let said = refused(&shelf.report_to_ada(&with_log), &with_log);
    assert!(said.contains("write-ahead log (-wal)") && said.contains("copy the file and its -wal"), "{said}");
    // The user follows the advice of the message.
    let own = shelf.env.path("own");
    fs::create_dir(&own).unwrap();
    for suffix in ["", "-wal"] {
        let copy = own.join(format!("store.db{suffix}"));
        fs::copy(suffixed(&with_log, suffix), &copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(OWNER), Some(OWNER)).unwrap();
    }
    std::os::unix::fs::chown(&own, Some(OWNER), Some(OWNER)).unwrap();
    granted(&shelf.report_to_ada(&own.join("store.db")));
}

fn store_on_a_read_only_disk_is_readable() {
    require(&[Need::Root, Need::Mounts]);
    let shelf = Shelf::new();
    let fixed = shelf.copy("fixed");
    granted(&shelf.report_from_fixed_disk(&fixed));
    let with_log = shelf.copy_with_log("log");
    let said = refused(&shelf.report_from_fixed_disk(&with_log), &with_log);
    assert!(said.contains("write-ahead log (-wal)"), "{said}");
}
