//! `polymeter setup` on a machine without configuration: it shows a plan, executes it, and finds nothing to
//! do then.

use std::process::Output;

use polymeter_e2e::installed::{InstalledMachine, SERVICE_UID};
use polymeter_e2e::{Need, TestEnvironment, require, tests};

tests![
    setup_makes_what_the_daemons_need_once,
    setup_leaves_files_that_were_changed,
    pages_answer_after_a_setup_in_two_steps,
    setup_creates_role_and_database,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Mounts, Need::Network];

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `polymeter setup`, which must end with a status, and returns its output.
fn setup(machine: &InstalledMachine, words: &[&str], status: i32) -> String {
    let output = machine.polymeter(&[&["setup"], words].concat());
    assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output));
    text(&output)
}

fn setup_makes_what_the_daemons_need_once() {
    require(&NEEDS);
    let machine = InstalledMachine::new();
    let roles: [&[&str]; 3] = [
        &["collector", "--keys", "--munge", "--api", "--scheduler-user", "slurm"],
        &["node", "--keys", "--name", "n1", "--collector", "tcp://head:7717"],
        &["login", "--collector", "tcp://head:7718"],
    ];
    for role in roles {
        let before = files(&machine);
        let plan = setup(&machine, &[role, &["--dry-run"]].concat(), 0);
        assert!(plan.contains("[    ] "), "{plan}");
        let refused = setup(&machine, role, 2);
        assert!(refused.contains("use --yes or --dry-run"), "{refused}");
        assert_eq!(files(&machine), before, "neither changes anything");
        let made = setup(&machine, &[role, &["--yes"]].concat(), 0);
        assert!(made.contains("done\n") && made.contains("polymeter doctor"), "{made}");
        let after = files(&machine);
        let again = setup(&machine, &[role, &["--yes"]].concat(), 0);
        assert!(again.contains("nothing to do") && !again.contains("[    ]"), "{again}");
        assert_eq!(files(&machine), after, "the second run changes nothing");
    }
    let pages = setup(&machine, &[roles[0], &["--dry-run"]].concat(), 0);
    assert!(
        pages.contains("7719:/run/polymeter/api.sock") && pages.contains("http://localhost:7719/"),
        "{pages}"
    );
    for (path, expected) in [
        ("/etc/polymeter/collector.key", format!("{SERVICE_UID} 600\n")),
        ("/etc/polymeter/n1.key", format!("{SERVICE_UID} 600\n")),
        ("/etc/polymeter/collector.pub", "0 644\n".to_owned()),
        ("/etc/polymeter/agents.d", "0 755\n".to_owned()),
        ("/etc/polymeter/agent.toml", "0 644\n".to_owned()),
        ("/var/lib/polymeter", format!("{SERVICE_UID} 755\n")),
    ] {
        let owner_and_mode = machine.shell(&format!("stat -c '%u %a' {path}"));
        assert_eq!(owner_and_mode, expected, "{path}");
    }
    let programs = std::env::current_exe().unwrap();
    let programs = programs.ancestors().nth(2).unwrap().display();
    machine.shell(&format!("{programs}/polymeter-collector --check --user polymeter"));
    machine.shell(&format!("{programs}/polymeter-agent --check --user polymeter"));
}

fn files(machine: &InstalledMachine) -> String {
    machine.shell("find /etc/polymeter /var/lib/polymeter -printf '%p %U %m %T@\\n' 2>/dev/null | sort")
}

fn setup_leaves_files_that_were_changed() {
    require(&NEEDS);
    let machine = InstalledMachine::new();
    machine
        .shell("mkdir /etc/polymeter; printf 'collector = \"tcp://other:1\"\\n' >/etc/polymeter/agent.toml");
    let words = ["node", "--no-spool", "--collector", "tcp://head:7717", "--yes"];
    let left = setup(&machine, &words, 1);
    assert!(
        left.contains("`collector` is \"tcp://other:1\", this command would set \"tcp://head:7717\""),
        "{left}"
    );
    assert_eq!(machine.shell("cat /etc/polymeter/agent.toml"), "collector = \"tcp://other:1\"\n");
    // The packaged file was not changed by hand.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/agent.toml");
    machine.shell(&format!("cp {example} /etc/polymeter/agent.toml"));
    setup(&machine, &words, 0);
    let written = machine.shell("cat /etc/polymeter/agent.toml");
    assert!(
        written.contains("\ncollector = \"tcp://head:7717\"\n") && written.contains("[baseline]"),
        "{written}"
    );
}

/// An administrator who adds `--api` later.
fn pages_answer_after_a_setup_in_two_steps() {
    require(&NEEDS);
    let machine = InstalledMachine::new();
    let words = ["collector", "--keys", "--scheduler-user", "slurm", "--yes"];
    setup(&machine, &words, 0);
    let with_pages = [&words[..], &["--api"]].concat();
    let added = setup(&machine, &with_pages, 0);
    assert!(added.contains("done\n") && added.contains("systemctl restart polymeter-collector"), "{added}");
    let before = files(&machine);
    let again = setup(&machine, &with_pages, 0);
    assert!(again.contains("nothing to do"), "{again}");
    // Without --keys, it would listen to this machine only.
    let left = setup(&machine, &["collector", "--yes"], 1);
    assert!(
        left.contains("`listen` is \"tcp://0.0.0.0:7717\"") && left.contains("cannot complete"),
        "{left}"
    );
    assert_eq!(files(&machine), before);
    let collector = machine.start("polymeter-collector", "");
    polymeter_e2e::wait_until("the pages are served", || collector.log().contains("serving the HTTP API"));
    let socket = "/run/polymeter/api.sock";
    assert_eq!(machine.shell(&format!("stat -c '%u %a' {socket}")), format!("{SERVICE_UID} 666\n"));
    let ask = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{socket}')
s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')
print(b''.join(iter(lambda: s.recv(65536), b'')).decode())"
    );
    let page = machine
        .shell(&format!("setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{ask}\""));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<html"), "{page}");
    collector.terminate();
}

fn setup_creates_role_and_database() {
    require(&NEEDS);
    let mut database = TestEnvironment::postgres();
    let sockets = database.server().data().parent().unwrap().display().to_string();
    let machine = InstalledMachine::new();
    machine.shell(&format!("mkdir /run/postgresql; mount --bind {sockets} /run/postgresql"));
    let words = ["collector", "--store", "postgres", "--yes"];
    setup(&machine, &words, 0);
    let again = setup(&machine, &words, 0);
    assert!(again.contains("nothing to do"), "{again}");
    let owner =
        "SELECT rolname FROM pg_database JOIN pg_roles ON pg_roles.oid = datdba WHERE datname = 'polymeter'";
    assert_eq!(database.server().query(owner), "polymeter");
    let collector = machine.start("polymeter-collector", "");
    polymeter_e2e::wait_until("the collector listens", || collector.log().contains("listening for users"));
    let (report, found) = machine.doctor(&["--role", "collector"]);
    assert_eq!(found, ["warning connection"], "without keys it listens to this machine only: {report:#}");
    collector.terminate();
}
