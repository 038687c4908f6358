//! The final states of OAR's jobs: `deploy/oar/server_epilogue` with the output of Debian's oarstat 2.5.9, up
//! to the words of the report. The texts are those that its oarstat prints for the records that OAR's server
//! writes. `e2e/oar` runs a whole OAR.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::{TestEnvironment, program, stored, tests, wait_until};
use rusqlite::Connection;

tests![the_final_states_of_oars_jobs_are_reported, a_job_that_never_ends_is_not_reported];

/// An exit status and a signal.
type Exit = (Option<i64>, Option<i64>);

/// Output of oarstat for the job 71, and what becomes of it: the state, the exit status and the signal, and
/// the words of the report.
const CASES: [(&str, &str, Exit, &str); 7] = [
    ("completed", "COMPLETED", (Some(0), Some(0)), "COMPLETED - "),
    ("failed", "FAILED", (Some(3), Some(0)), "FAILED, exit status 3 - "),
    ("crashed", "FAILED", (Some(0), Some(11)), "FAILED, killed by signal 11 (SIGSEGV) - "),
    ("walltime", "TIMEOUT", (None, None), "TIMEOUT - "),
    ("deleted", "CANCELLED", (Some(0), Some(15)), "CANCELLED - "),
    ("besteffort", "PREEMPTED", (None, None), "PREEMPTED - "),
    ("error", "FAILED", (None, None), "FAILED - "),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/oarstat").join(format!("{name}.txt"))
}

struct Fixture {
    collector: Daemon,
    socket: String,
    env: TestEnvironment,
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnvironment::new();
        let store = env.path("store.db").display().to_string();
        let run = program("polymeter").args(["run", "--output", &store, "--", "true"]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let socket = env.path("control.sock").display().to_string();
        let (collector, _) =
            collector_with(&env, &env.endpoint(), &format!("control_socket = \"{socket}\"\n"));
        let fixture = Self { collector, socket, env };
        fixture.forget();
        fixture
    }

    /// Gives the job its id, and removes its facts.
    fn forget(&self) {
        let update =
            "UPDATE job SET job_id = '71', state = NULL, exit_code = NULL, exit_signal = NULL, name = NULL,
             time_limit_s = NULL";
        let database = Connection::open(self.env.path("store.db")).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(database.execute(update, ()).unwrap(), 1);
    }

    /// Runs the script as OAR does, with an oarstat that does not answer the first of `unfinished` calls, and
    /// then that the job ends.
    fn run(&self, output: &Path, argument: &str, unfinished: u32) {
        let oarstat = self.env.path("oarstat");
        let text = format!(
            "#!/bin/sh\necho \"$*\" >>{calls}\n[ -e {output} ] || exit 1\ncase $1 in\n-s) if [ $(wc -l <{calls}) -le {unfinished} ]; then [ $(wc -l <{calls}) -gt 1 ] || exit 1; echo \"$3: Finishing\"; else sed -n \"s/^    state = /$3: /p\" {output}; fi ;;\n-f) cat {output} ;;\nesac\n",
            calls = self.env.path("calls").display(),
            output = output.display()
        );
        fs::write(&oarstat, text).unwrap();
        fs::set_permissions(&oarstat, PermissionsExt::from_mode(0o755)).unwrap();
        fs::remove_file(self.env.path("calls")).ok();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/oar/server_epilogue");
        let mut script = Command::new(script);
        script.arg(argument).env("OARSTAT", oarstat).env("POLYMETER", program("polymeter").get_program());
        // A script that gets no answer ends after a second.
        script.env("ATTEMPTS", if output.exists() { "60" } else { "2" });
        let output = script.env("POLYMETER_COLLECTOR", &self.socket).output().unwrap();
        assert!(
            output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.env.path("calls")).unwrap_or_default().lines().count()
    }
}

fn the_final_states_of_oars_jobs_are_reported() {
    let fixture = Fixture::new();
    for ((name, state, exit, words), unfinished) in CASES.into_iter().zip([3, 0, 0, 0, 0, 0, 0]) {
        fixture.forget();
        fixture.run(&self::fixture(name), "71", unfinished);
        let row = || stored::job(&mut fixture.env.reader(), "71").unwrap();
        wait_until(&format!("the state of {name} is stored"), || row().state.is_some());
        let row = row();
        assert_eq!(row.state.as_deref(), Some(state), "{name}");
        assert_eq!((row.exit_code, row.exit_signal), exit, "{name}");
        assert_eq!((row.name.as_deref(), row.time_limit_s), (Some("solver"), Some(120)), "{name}");
        let store = format!("sqlite:{}", fixture.env.path("store.db").display());
        let report = program("polymeter").args(["report", "71", "--store", &store]).output().unwrap();
        let report = String::from_utf8(report.stdout).unwrap();
        assert!(report.contains(words), "{name}: {words}: {report}");
    }
    fixture.collector.terminate();
}

fn a_job_that_never_ends_is_not_reported() {
    let fixture = Fixture::new();
    // oarstat never answers; the argument is no number.
    fixture.run(Path::new("/no/such/file"), "71", 0);
    wait_until("oarstat was called", || fixture.calls() == 2);
    fixture.run(&self::fixture("completed"), "7;1", 0);
    assert_eq!(fixture.calls(), 0);
    assert_eq!(stored::job(&mut fixture.env.reader(), "71").unwrap().state, None);
    fixture.collector.terminate();
}
