//! OAR's scripts of `deploy/`, run as OAR runs them.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::cgroup::Yard;
use common::daemons::{Plan, ask, collector, configure};
use common::workload::{self, Sleeper};
use common::{Need, Site, has, program, stored, wait_until};
use rustix::process::{Signal, kill_process};

#[test]
#[ignore = "no test: what the tests run as a job"]
fn workload() {
    workload::main();
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/oar").join(name)
}

#[test]
fn a_prologue_within_the_job_starts_an_agent_outside_and_an_epilogue_reads_once_more() {
    let test = "a_prologue_within_the_job_starts_an_agent_outside_and_an_epilogue_reads_once_more";
    if !has(test, &[Need::Root, Need::Cgroup1, Need::Cgroup2]) {
        return;
    }
    let (site, yard) = (Site::new(), Yard::new());
    let (collector, endpoint) = collector(&site, &site.endpoint());
    // As OAR names them: the user, an underscore, the number.
    let jobs = [format!("{}/job_{{user}}_{{number}}", yard.name)];
    configure(&site, &Plan { collector: &endpoint, jobs: &jobs, baseline: &[("cpu.usage", "1d")] });
    let job = yard.job("root_71");
    let sleeper = Sleeper::start();
    job.enter(sleeper.pid());
    let enter: String =
        job.places.iter().map(|place| format!("echo $$ > {}/cgroup.procs; ", place.display())).collect();
    let run = |name: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{enter} exec \"$0\" \"$@\"")]).arg(script(name)).args([
            "71",
            "root",
            "/dev/null",
        ]);
        shell.env("POLYMETER", program("polymeter").get_program());
        shell.env("POLYMETER_AGENT_CONFIG", site.path("agent.toml"));
        shell.env("POLYMETER_SOCKET", site.path("agent.sock")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = shell.output().unwrap();
        assert!(
            output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
    };
    run("prologue");
    let stream = UnixStream::connect(site.path("agent.sock")).unwrap();
    let agent = rustix::net::sockopt::socket_peercred(stream).unwrap().pid;
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", agent.as_raw_nonzero())).unwrap();
    let samples = || {
        let status = ask(&site.path("agent.sock"), "{\"verb\":\"status\"}\n");
        let subjects = status["subjects"].as_array().unwrap();
        let of_job = subjects.iter().find(|subject| subject["job"] == "71");
        of_job.and_then(|subject| subject["sources"][0]["reads"].as_u64()).unwrap_or(0)
    };
    wait_until("the job is read", || samples() > 0);
    let before = samples();
    run("epilogue");
    wait_until("the job is read once more", || samples() > before);
    drop(sleeper);
    job.remove();
    let row = stored::wait_for_end(&site, "71");
    kill_process(agent, Signal::KILL).unwrap();
    assert_eq!((row.owner.as_deref(), row.owner_uid), (Some("root"), Some(0)));
    assert!(!cgroups.contains(&yard.name), "{cgroups}");
    collector.terminate();
}

/// What `oarstat -f -j` says of a job.
const OARSTAT: &str = "#!/bin/sh\ncat <<'TOLD'\nJob_Id: 71\n    project = default\n    owner = zoe\n    types = besteffort, polymeter=cpu.*=10ms,perf.instructions=100ms for 1h, day\n    assigned_hostnames = n1+n2\nTOLD\n";

#[test]
fn a_server_prologue_asks_as_the_owner_for_what_she_wished() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    };
    let asked = directory.path().join("asked");
    // The first time nobody has heard of the job.
    let sudo = format!(
        "#!/bin/sh\n[ -e {0}.1 ] || {{ touch {0}.1; exit 1; }}\nprintf '%s\\n' \"$@\" > {0}.2; mv {0}.2 {0}\n",
        asked.display()
    );
    let mut server = Command::new(script("server_prologue"));
    server
        .arg("71")
        .env("OARSTAT", make("oarstat", OARSTAT))
        .env("SUDO", make("sudo", &sudo))
        .env("POLYMETER", "/p");
    let output = server.output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    wait_until("it asks", || asked.exists());
    let words = fs::read_to_string(&asked).unwrap();
    let expected = [
        "-n",
        "-u",
        "zoe",
        "--",
        "/p",
        "set",
        "--job",
        "71",
        "--for",
        "1h",
        "--",
        "cpu.*=10ms",
        "perf.instructions=100ms",
    ];
    assert_eq!(words.lines().collect::<Vec<_>>(), expected);
    // A job that wishes nothing, and what is no job.
    for (told, job) in [("#!/bin/sh\necho '    owner = zoe'\n", "72"), (OARSTAT, "7;1")] {
        fs::remove_file(&asked).ok();
        let mut server = Command::new(script("server_prologue"));
        server.arg(job).env("OARSTAT", make("oarstat", told)).env("SUDO", "/bin/false").env("ATTEMPTS", "0");
        assert!(server.output().unwrap().status.success());
    }
}
