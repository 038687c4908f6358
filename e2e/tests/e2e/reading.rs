//! Reports through the collector: users read their own jobs, from this machine and with MUNGE, managers those
//! of their accounts, and support staff and root all.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::fixture::{OTHER_USER, OWNER};
use polymeter_e2e::munge::Munged;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, install, program, require, wait_until};
use polymeter_service::users::uid_of;
use rustix::process::Signal;
use serde_json::Value;

tests![
    users_read_their_own_jobs_through_the_socket,
    munge_authenticates_readers,
    group_administrators_read_all_jobs,
    managers_and_support_staff_read_with_every_command,
];

const STRANGER: u32 = 64_003;

/// A collector whose store has two jobs of the owner and one of the other user.
struct Fixture {
    collector: Daemon,
    command: PathBuf,
    socket: String,
    env: TestEnvironment,
}

/// Id, id that the scheduler prints, and owner of each job.
const JOBS: [(&str, Option<&str>, u32); 3] =
    [("4009", None, OWNER), ("4010", Some("4009_1"), OWNER), ("5000", None, OTHER_USER)];

fn set_owners(env: &TestEnvironment) {
    let database = rusqlite::Connection::open(env.path("store.db")).unwrap();
    let mut select = database.prepare("SELECT job_key FROM job ORDER BY started").unwrap();
    let keys: Vec<i64> = select.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(keys.len(), JOBS.len());
    for (key, (id, printed, uid)) in keys.iter().zip(JOBS) {
        let update =
            "UPDATE job SET job_id = ?2, display_id = ?3, owner_uid = ?4, owner = NULL, queue = 'short',
             state = 'COMPLETED', account = 'of ' || ?2, name = 'Wing ' || ?2 WHERE job_key = ?1";
        database.execute(update, (key, id, printed, uid)).unwrap();
    }
}

impl Fixture {
    fn new(more: &str) -> Self {
        let env = TestEnvironment::new();
        let store = env.path("store.db").display().to_string();
        for _ in JOBS {
            let run = program("polymeter")
                .args(["run", "--output", &store, "--every", "50ms", "--", "sleep", "0.3"])
                .env_remove("POLYMETER_COLLECTOR")
                .output()
                .unwrap();
            assert!(run.status.success(), "{}", text(&run.stderr));
        }
        set_owners(&env);
        let socket = env.path("control.sock").display().to_string();
        let more = format!("control_socket = \"{socket}\"\n{more}");
        let (collector, _) = collector_with(&env, &env.endpoint(), &more);
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let command = env.path("polymeter");
        install(program("polymeter").get_program(), &command);
        Self { collector, command, socket, env }
    }

    /// Output of the command of a user, who cannot read the store.
    fn user(&self, uid: u32, collector: &str, arguments: &[&str]) -> Output {
        self.user_in_group((uid, uid), collector, arguments)
    }

    fn user_in_group(&self, (uid, gid): (u32, u32), collector: &str, arguments: &[&str]) -> Output {
        Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
            .arg(&self.command)
            .args(arguments)
            .env("POLYMETER_COLLECTOR", collector)
            .env_remove("SLURM_JOB_ID")
            .env_remove("OAR_JOB_ID")
            .current_dir("/")
            .output()
            .unwrap()
    }

    /// First line of a report, which must succeed.
    fn report(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.user(uid, &self.socket, &[&["report", "--json"], arguments].concat());
        assert!(output.status.success(), "{uid} {arguments:?}: {}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["stored"].as_u64().unwrap_or(1) > 0, "{report}");
        let job = &report["job"];
        job.as_str().or_else(|| job["id"].as_str()).or_else(|| job["job_id"].as_str()).unwrap().to_owned()
    }

    /// Message of a command, which must fail with the exit status 1.
    fn refused(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.user(uid, &self.socket, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        text(&output.stderr)
    }

    fn listed(&self, uid: u32, arguments: &[&str]) -> Vec<String> {
        let output = self.user(uid, &self.socket, &[&["jobs", "--ended", "--json"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let jobs: Value = serde_json::from_slice(&output.stdout).unwrap();
        jobs.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap().to_owned()).collect()
    }
}

/// Removes the suggestion from a message: it depends on the ids of the user's own jobs.
fn without_own_ids(message: &str) -> String {
    message.split("; ").next().unwrap().trim_end().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn users_read_their_own_jobs_through_the_socket() {
    require(&[Need::Root]);
    let mut fixture = Fixture::new("");
    for id in ["4009", "4010", "4009_1"] {
        fixture.report(OWNER, &[id]);
    }
    assert_eq!(fixture.report(OWNER, &["4009_1"]), fixture.report(OWNER, &["4010"]));
    assert_eq!(fixture.report(OWNER, &["4009"]), fixture.report(0, &["4009"]));
    // Without an id, the user's job that started last.
    assert_eq!(fixture.report(OWNER, &[]), fixture.report(OWNER, &["4010"]));
    assert_eq!(fixture.report(OTHER_USER, &[]), fixture.report(0, &["5000"]));
    assert_eq!(fixture.report(0, &[]), fixture.report(0, &["5000"]));
    assert!(fixture.refused(STRANGER, &["report"]).contains("contains none of yours"));

    // A job of another user and a job that does not exist have the same answer.
    for command in ["report", "bundle", "export"] {
        let of = |id: &str| without_own_ids(&fixture.refused(OTHER_USER, &[command, id])).replace(id, "ID");
        assert_eq!(of("4009"), of("7777"), "{command}");
        assert!(of("4009").contains("unknown job `ID`, or not yours"), "{}", of("4009"));
    }
    assert!(fixture.refused(OWNER, &["report", "4009.batch"]).contains("unknown step `batch`"));
    assert!(fixture.refused(OWNER, &["report", "4009_7"]).contains("unknown job"));

    assert_eq!(fixture.listed(OWNER, &[]), ["4009_1", "4009"]);
    assert_eq!(fixture.listed(OTHER_USER, &[]), ["5000"]);
    assert_eq!(fixture.listed(STRANGER, &[]), [""; 0]);
    assert_eq!(fixture.listed(0, &[]), ["5000", "4009_1", "4009"]);
    assert_eq!(fixture.listed(0, &["--user", &OWNER.to_string(), "--limit", "1"]), ["4009_1"]);
    assert_eq!(fixture.listed(OWNER, &["--user", &OTHER_USER.to_string()]), [""; 0]);
    assert_eq!(fixture.listed(0, &["--queue", "short", "--state", "completed", "--since", "1d"]).len(), 3);
    assert_eq!(fixture.listed(0, &["--name", "wING 40"]), ["4009_1", "4009"]);
    for filter in [
        ["--queue", "long"],
        ["--state", "FAILED"],
        ["--account", "x"],
        ["--until", "1d"],
        ["--node", "x"],
        ["--name", "wing%"],
    ] {
        assert_eq!(fixture.listed(0, &filter), [""; 0], "{filter:?}");
    }
    // The table fits 80 columns and shows the jobs.
    let table = fixture.user(OWNER, &fixture.socket, &["jobs", "--ended"]);
    let table = text(&table.stdout);
    assert!(table.lines().count() == 3 && table.contains("4009_1") && !table.contains("5000"), "{table}");

    let file = fixture.env.path("own");
    fs::create_dir(&file).unwrap();
    std::os::unix::fs::chown(&file, Some(OWNER), None).unwrap();
    let out = file.join("samples.csv").display().to_string();
    let export = fixture.user(OWNER, &fixture.socket, &["export", "4009", "--output", &out]);
    assert!(export.status.success(), "{}", text(&export.stderr));
    assert!(fs::read_to_string(&out).unwrap().lines().count() > 10);
    let bundle = file.join("bundle").display().to_string();
    let made = fixture.user(OWNER, &fixture.socket, &["bundle", "4009", "--out", &bundle]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stderr).contains("administrators only"), "{}", text(&made.stderr));
    let url = format!("sqlite:{}", fixture.env.path("store.db").display());
    let page = |output: Output| text(&output.stdout).split("<footer>").next().unwrap().to_owned();
    let through = page(fixture.user(OWNER, &fixture.socket, &["report", "4009", "--html", "-"]));
    let direct = program("polymeter").args(["report", "4009", "--store", &url, "--html", "-"]).output();
    assert!(through.contains("id=\"figures\"") && through == page(direct.unwrap()), "{through:.3000}");
    let nodes = fixture.user(OWNER, &fixture.socket, &["export", "4009", "--with-nodes", "--output", "/x"]);
    assert!(text(&nodes.stderr).contains("administrators only"), "{}", text(&nodes.stderr));
    fixture.collector.signal(Signal::KILL);
    wait_until("the collector is gone", || !fixture.collector.runs());
    let away = fixture.user(OWNER, &fixture.socket, &["report", "4009"]);
    assert_eq!(away.status.code(), Some(3), "{}", text(&away.stderr));
}

fn munge_authenticates_readers() {
    require(&[Need::Root, Need::Munge]);
    let munged = Munged::start();
    let munge_socket = munged.socket().display().to_string();
    let fixture = Fixture::new(&format!(
        "control_listen = \"tcp://127.0.0.1:0\"\nauth = \"munge\"\nmunge_socket = \"{munge_socket}\"\n"
    ));
    let log = fixture.collector.log();
    let (_, address) = log.split_once("tcp://").unwrap();
    let endpoint = format!("tcp://{}", address.split_whitespace().next().unwrap());
    let report =
        |uid: u32, id: &str| fixture.user(uid, &endpoint, &["report", id, "--munge-socket", &munge_socket]);
    for (uid, id, is_permitted) in
        [(OWNER, "4009", true), (OWNER, "5000", false), (OTHER_USER, "5000", true), (0, "4010", true)]
    {
        let output = report(uid, id);
        assert_eq!(output.status.success(), is_permitted, "{uid} {id}: {}", text(&output.stderr));
    }
    let refused = |id: &str| without_own_ids(&text(&report(OWNER, id).stderr)).replace(id, "ID");
    assert_eq!(refused("5000"), refused("7777"));
    fixture.collector.terminate();
}

/// A user of every Debian, with its uid, and its primary group of the same name.
const ADMINISTRATOR: (&str, u32) = ("games", 5);

fn group_administrators_read_all_jobs() {
    require(&[Need::Root]);
    let fixture = Fixture::new(&format!("administrators = [\"@{}\"]\n", ADMINISTRATOR.0));
    let (name, uid) = ADMINISTRATOR;
    let group = Command::new("id").args(["-g", name]).output().unwrap();
    let gid: u32 = text(&group.stdout).trim().parse().unwrap();
    for (id, _, _) in JOBS {
        assert_eq!(fixture.report(uid, &[id]), fixture.report(0, &[id]));
    }
    assert_eq!(fixture.listed(uid, &[]), ["5000", "4009_1", "4009"]);
    assert_eq!(fixture.listed(OWNER, &[]), ["4009_1", "4009"]);
    assert_eq!(fixture.listed(OTHER_USER, &[]), ["5000"]);
    assert!(fixture.refused(OTHER_USER, &["report", "4009"]).contains("or not yours"));
    // The membership counts, not the group that a process happens to have, nor that of the user's process.
    assert_eq!(
        (
            ended_jobs(&fixture, (STRANGER, gid)),
            ended_jobs(&fixture, (OTHER_USER, gid)),
            ended_jobs(&fixture, (uid, STRANGER))
        ),
        (0, 1, 3)
    );
    // Administrators read; they report no outcome of a job, which only root and `scheduler_user` may.
    let state = ["job", "state", "--strict", "--job", "5000", "--state", "FAILED"];
    assert_eq!(fixture.user(uid, &fixture.socket, &state).status.code(), Some(1));
    fixture.collector.terminate();
}

fn ended_jobs(fixture: &Fixture, ids: (u32, u32)) -> usize {
    let output = fixture.user_in_group(ids, &fixture.socket, &["jobs", "--ended", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let jobs: Value = serde_json::from_slice(&output.stdout).unwrap();
    jobs.as_array().unwrap().len()
}

/// Users of every Debian: a manager of one account, and one of the support staff.
const MANAGER: &str = "mail";
const SUPPORT: &str = "news";

fn managers_and_support_staff_read_with_every_command() {
    require(&[Need::Root]);
    let roles = format!("support = [\"{SUPPORT}\"]\nmanagers = [\"of 4009|{MANAGER}\"]\n");
    let fixture = Fixture::new(&roles);
    let [manager, support] = [MANAGER, SUPPORT].map(|name| uid_of(name).unwrap());
    assert_eq!(fixture.listed(manager, &[]), ["4009"]);
    assert_eq!(fixture.listed(manager, &["--account", "of 5000"]), [""; 0]);
    assert_eq!(fixture.listed(support, &[]), ["5000", "4009_1", "4009"]);
    assert_eq!(fixture.report(manager, &["4009"]), fixture.report(OWNER, &["4009"]));
    assert_eq!(fixture.report(support, &["5000"]), fixture.report(OTHER_USER, &["5000"]));
    let out = fixture.env.path("own");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).unwrap();
    let file = |name: &str| out.join(name).display().to_string();
    // A job of another account and one that does not exist have the same answer; a comparison needs both.
    let (samples, bundle) = (file("x.csv"), file("x"));
    for words in [
        &["report", "ID"][..],
        &["export", "ID", "--output", &samples],
        &["bundle", "ID", "--out", &bundle],
        &["compare", "4009", "ID"],
    ] {
        let of = |id: &str| {
            let words: Vec<&str> = words.iter().map(|word| if *word == "ID" { id } else { word }).collect();
            without_own_ids(&fixture.refused(manager, &words)).replace(id, "ID")
        };
        assert_eq!(of("5000"), of("7777"), "{words:?}");
        assert!(of("5000").contains("unknown job `ID`, or not yours"), "{}", of("5000"));
    }
    for (uid, id) in [(manager, "4009"), (support, "5000")] {
        let (samples, bundle) = (file(&format!("{id}.csv")), file(id));
        for words in [&["export", id, "--output", &samples][..], &["bundle", id, "--out", &bundle]] {
            let done = fixture.user(uid, &fixture.socket, words);
            assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
        }
    }
    let compared = fixture.user(support, &fixture.socket, &["compare", "5000", "4009"]);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    // The series of nodes are for support staff.
    let with_nodes = |uid: u32, name: &str| {
        let words = ["export", "4009", "--with-nodes", "--output", &file(name)];
        fixture.user(uid, &fixture.socket, &words).status.success()
    };
    assert!(with_nodes(support, "support.csv") && !with_nodes(manager, "manager.csv"));
    let state = ["job", "state", "--strict", "--job", "4009", "--state", "FAILED"];
    for uid in [manager, support] {
        assert_eq!(fixture.user(uid, &fixture.socket, &state).status.code(), Some(1), "they change nothing");
    }
    fixture.collector.terminate();
}
