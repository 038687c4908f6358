//! The service user: key files that root accepts, and the access rights that `--check` tests for another
//! user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};

use polymeter_e2e::daemons::keygen;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, program, require};

tests![
    root_accepts_keys_of_the_service_user,
    configuration_check_uses_the_rights_of_the_given_user,
    prolog_reports_why_the_agent_did_not_start,
];

const NEEDS: [Need; 2] = [Need::Root, Need::Mounts];
const SERVICE: u32 = 64_010;
const OTHER_USER: u32 = 64_011;

/// A simulated machine on which the service user exists.
struct Machine {
    env: TestEnvironment,
    passwd: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let env = TestEnvironment::new();
        fs::set_permissions(env.path(""), Permissions::from_mode(0o755)).unwrap();
        let passwd = env.path("passwd");
        let known = fs::read_to_string("/etc/passwd").unwrap();
        let others: Vec<&str> = known.lines().filter(|line| !line.starts_with("polymeter:")).collect();
        let service = format!("polymeter:x:{SERVICE}:{SERVICE}::/nonexistent:/usr/sbin/nologin");
        fs::write(&passwd, format!("{}\n{service}\n", others.join("\n"))).unwrap();
        fs::set_permissions(&passwd, Permissions::from_mode(0o644)).unwrap();
        Self { env, passwd }
    }

    /// Runs `command` with the simulated machine's /etc/passwd and returns its output.
    fn run(&self, command: &Command) -> Output {
        let script = "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"";
        let mut within = Command::new("unshare");
        within.args(["--mount", "sh", "-c", script, "sh"]).arg(&self.passwd);
        within.arg(command.get_program()).args(command.get_args()).output().unwrap()
    }

    fn check(&self, name: &str, more: &[&str]) -> (Option<i32>, String) {
        let config = if name == "polymeter-agent" { "agent.toml" } else { "collector.toml" };
        let mut command = program(name);
        command.arg("--config").arg(self.env.path(config)).arg("--check").args(more);
        let output = self.run(&command);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn own(&self, file: &str, uid: u32) {
        chown(self.env.path(file), Some(uid), Some(uid)).unwrap();
    }

    fn make_keys(&self) {
        let path = |name: &str| self.env.path(name).display().to_string();
        assert!(keygen(&self.env, "n1").0 && keygen(&self.env, "collector").0);
        fs::create_dir(self.env.path("agents.d")).unwrap();
        fs::copy(path("n1.pub"), self.env.path("agents.d/n1.pub")).unwrap();
        fs::create_dir(self.env.path("data")).unwrap();
        let agent = format!(
            "collector = \"{}\"\ncontrol_socket = \"{}\"\nkey = \"{}\"\ncollector_key = \"{}\"\n",
            self.env.endpoint(),
            path("run/agent.sock"),
            path("n1.key"),
            path("collector.pub")
        );
        fs::write(self.env.path("agent.toml"), agent).unwrap();
        let collector = format!(
            "listen = \"tcp://127.0.0.1:*\"\nstore = \"sqlite:{}\"\nkey = \"{}\"\nauthorised_agents = \"{}\"\n",
            path("data/store.db"),
            path("collector.key"),
            path("agents.d")
        );
        fs::write(self.env.path("collector.toml"), collector).unwrap();
    }
}

fn root_accepts_keys_of_the_service_user() {
    require(&NEEDS);
    let machine = Machine::new();
    machine.make_keys();
    for (name, key) in [("polymeter-agent", "n1.key"), ("polymeter-collector", "collector.key")] {
        for owner in [0, SERVICE] {
            machine.own(key, owner);
            let (status, message) = machine.check(name, &[]);
            assert_eq!(status, Some(0), "{name}, {owner}: {message}");
        }
        machine.own(key, OTHER_USER);
        let (status, message) = machine.check(name, &[]);
        assert!(status == Some(2) && message.contains("owner is neither root nor"), "{message}");
        assert!(message.contains("type: chown 0 "), "{message}");
        machine.own(key, SERVICE);
        fs::set_permissions(machine.env.path(key), Permissions::from_mode(0o640)).unwrap();
        let (status, message) = machine.check(name, &[]);
        assert!(status == Some(2) && message.contains("type: chmod 600 "), "{message}");
    }
}

fn configuration_check_uses_the_rights_of_the_given_user() {
    require(&NEEDS);
    let machine = Machine::new();
    machine.make_keys();
    let as_service = ["--user", "polymeter"];
    let refuses = |name: &str, words: &str| {
        let (status, message) = machine.check(name, &as_service);
        assert!(status == Some(2) && message.contains(words), "{words}: {message}");
    };
    // The key files belong to root, as after `keygen` by root.
    for (name, key) in [("polymeter-agent", "n1.key"), ("polymeter-collector", "collector.key")] {
        assert_eq!(machine.check(name, &[]).0, Some(0));
        refuses(name, &format!("{}: cannot be read: Permission denied", machine.env.path(key).display()));
        machine.own(key, SERVICE);
    }
    let agent = machine.check("polymeter-agent", &as_service);
    assert_eq!(agent.0, Some(0), "{}", agent.1);
    fs::create_dir(machine.env.path("run")).unwrap();
    refuses("polymeter-agent", "for `control_socket`: Permission denied");
    machine.own("run", SERVICE);
    assert_eq!(machine.check("polymeter-agent", &as_service).0, Some(0));
    // The store's directory, and the file that root has created there.
    refuses("polymeter-collector", "for `store`: Permission denied");
    machine.own("data", SERVICE);
    let collector = machine.check("polymeter-collector", &as_service);
    assert_eq!(collector.0, Some(0), "{}", collector.1);
    fs::write(machine.env.path("data/store.db"), "").unwrap();
    fs::set_permissions(machine.env.path("data/store.db"), Permissions::from_mode(0o600)).unwrap();
    refuses("polymeter-collector", "cannot write to the store");
    machine.own("data/store.db", SERVICE);
    // An empty file is accepted and becomes a store.
    assert_eq!(machine.check("polymeter-collector", &as_service).0, Some(0));
    fs::write(machine.env.path("data/store.db"), "Dear diary,").unwrap();
    refuses("polymeter-collector", "the file is not an SQLite database");
    fs::remove_file(machine.env.path("data/store.db")).unwrap();
    fs::set_permissions(machine.env.path("agents.d/n1.pub"), Permissions::from_mode(0o600)).unwrap();
    refuses("polymeter-collector", "n1.pub: Permission denied (os error 13); type: chmod go+r ");
    fs::set_permissions(machine.env.path("agents.d/n1.pub"), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(machine.check("polymeter-collector", &as_service).0, Some(0));
    let (status, message) = machine.check("polymeter-collector", &["--user", "no.such.user"]);
    assert!(status == Some(2) && message.contains("no such user"), "{message}");
}

fn prolog_reports_why_the_agent_did_not_start() {
    require(&NEEDS);
    let machine = Machine::new();
    machine.make_keys();
    machine.own("n1.key", OTHER_USER);
    let mut prolog = program("polymeter");
    prolog.args(["job", "start", "--job", "1", "--exit-when-idle", "--socket"]);
    prolog.arg(machine.env.path("run/agent.sock")).arg("--config").arg(machine.env.path("agent.toml"));
    let output = machine.run(&prolog);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{stderr}");
    let line = stderr.lines().find(|line| line.starts_with("polymeter: cannot start ")).unwrap();
    assert!(line.contains("owner is neither root nor") && line.contains("type: chown 0 "), "{stderr}");
}
