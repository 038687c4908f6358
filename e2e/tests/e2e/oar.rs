//! The scripts of `deploy/oar/`, run as OAR runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_e2e::cgroup::{self, TestCgroups};
use polymeter_e2e::daemons::{Plan, ask, collector, configure};
use polymeter_e2e::tests;
use polymeter_e2e::workload::{Sleeper, Workload};
use polymeter_e2e::{Need, TestEnvironment, oar, program, require, stored, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

tests![
    oar_prologue_starts_an_agent_outside_the_job_and_epilogue_takes_a_final_sample,
    jobs_of_a_real_oar_are_tracked_to_their_end,
    server_prologue_requests_as_the_owner,
];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/oar").join(name)
}

/// Runs a script of the first node as OAR does: within the job's cgroups, with the job's id and its user as
/// arguments.
fn run(env: &TestEnvironment, name: &str, directories: &[PathBuf], arguments: [&str; 2]) {
    let enter: String = directories
        .iter()
        .map(|directory| format!("echo $$ > {}/cgroup.procs; ", directory.display()))
        .collect();
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &format!("{enter} exec \"$0\" \"$@\"")])
        .arg(script(name))
        .args(arguments)
        .arg("/dev/null");
    shell.env("POLYMETER", program("polymeter").get_program());
    shell.env("POLYMETER_AGENT_CONFIG", env.path("agent.toml"));
    shell.env("POLYMETER_SOCKET", env.path("agent.sock")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = shell.output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

fn agent_of(env: &TestEnvironment) -> Pid {
    let stream = UnixStream::connect(env.path("agent.sock")).unwrap();
    rustix::net::sockopt::socket_peercred(stream).unwrap().pid
}

fn oar_prologue_starts_an_agent_outside_the_job_and_epilogue_takes_a_final_sample() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    // OAR names a job's cgroup after its user and number, joined by an underscore.
    let jobs = [format!("{}/job_{{user}}_{{number}}", cgroups.name)];
    configure(&env, &Plan { collector: &endpoint, jobs: &jobs, baseline: &[("cpu.usage", "1d")] });
    let job = cgroups.job("root_71");
    let sleeper = Sleeper::start();
    job.enter(sleeper.pid());
    let run = |name: &str| run(&env, name, &job.directories, ["71", "root"]);
    run("prologue");
    let agent = agent_of(&env);
    let membership = fs::read_to_string(format!("/proc/{}/cgroup", agent.as_raw_nonzero())).unwrap();
    wait_until("the job is read", || reads_of_71(&env) > 0);
    let before = reads_of_71(&env);
    run("epilogue");
    wait_until("the job is read once more", || reads_of_71(&env) > before);
    drop(sleeper);
    job.remove();
    let row = stored::wait_for_end(&env, "71");
    kill_process(agent, Signal::KILL).unwrap();
    assert_eq!((row.owner.as_deref(), row.owner_uid), (Some("root"), Some(0)));
    assert!(!membership.contains(&cgroups.name), "{membership}");
    collector.terminate();
}

fn reads_of_71(env: &TestEnvironment) -> u64 {
    let status = ask(&env.path("agent.sock"), "{\"verb\":\"status\"}\n");
    let subjects = status["subjects"].as_array().unwrap();
    let of_job = subjects.iter().find(|subject| subject["job"] == "71");
    of_job.and_then(|subject| subject["sources"][0]["reads"].as_u64()).unwrap_or(0)
}

struct Running {
    id: &'static str,
    directories: Vec<PathBuf>,
    process: Workload,
}

impl Running {
    /// Creates the job with OAR's script, and runs its prologue before the user's process starts.
    fn start(env: &TestEnvironment, node: &oar::Node, id: &'static str, with_memory: bool) -> Self {
        let directories = node.start_job(id, with_memory);
        run(env, "prologue", &directories, [id, oar::USER.0]);
        let mut process = Workload::start();
        for directory in &directories {
            fs::write(directory.join("cgroup.procs"), process.pid().to_string()).unwrap();
        }
        process.execute("burn 30");
        Self { id, directories, process }
    }

    /// Ends the job as OAR does. Returns the job's CPU time before and after the epilogue, in nanoseconds.
    fn end(self, env: &TestEnvironment) -> (f64, f64) {
        let cpuacct = self
            .directories
            .iter()
            .find(|directory| directory.starts_with(cgroup::root("cpuacct").unwrap()))
            .unwrap();
        let used_ns = || fs::read_to_string(cpuacct.join("cpuacct.usage")).unwrap().trim().parse().unwrap();
        drop(self.process);
        let before = used_ns();
        run(env, "epilogue", &self.directories, [self.id, oar::USER.0]);
        let after = used_ns();
        self.directories.iter().for_each(|directory| cgroup::remove(directory).unwrap());
        (before, after)
    }
}

/// Runs two jobs of one user at once; only the second has the memory controller. The agent's configuration
/// does not name OAR's cgroups.
fn jobs_of_a_real_oar_are_tracked_to_their_end() {
    require(&[Need::Root, Need::Cgroup1, Need::Mounts, Need::Oar]);
    let env = TestEnvironment::new();
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let configuration = format!(
        "collector = \"{endpoint}\"\ncontrol_socket = \"{}\"\n[baseline]\n\"cpu.usage\" = \"1d\"\n\"memory.current\" = \"1d\"\n",
        env.path("agent.sock").display()
    );
    fs::write(env.path("agent.toml"), configuration).unwrap();
    let node = oar::Node::new();
    let jobs = [("4711", false), ("4712", true)];
    let running = jobs.map(|(id, with_memory)| Running::start(&env, &node, id, with_memory));
    let agent = agent_of(&env);
    let used = running.map(|job| job.end(&env));
    for ((id, with_memory), (min, max)) in jobs.into_iter().zip(used) {
        let row = stored::wait_for_end(&env, id);
        assert_eq!((row.owner.as_deref(), row.owner_uid), (Some(oar::USER.0), Some(oar::USER.1)));
        let samples = stored::samples(&mut env.reader(), SeriesScope::Job(row.job_key));
        let series = |metric: &str| samples.get(&(metric.to_owned(), String::new()));
        let last = series("cpu.usage").unwrap().points.last().unwrap().1;
        assert!((min..=max).contains(&last), "job {id}: {last} ns, not {min} to {max}");
        assert_eq!(series("memory.current").is_some(), with_memory, "{samples:?}");
    }
    wait_until("the agent ends after the last job", || test_kill_process(agent).is_err());
    collector.terminate();
}

const OARSTAT: &str = "#!/bin/sh\ncat <<'END'\nJob_Id: 71\n    project = default\n    owner = zoe\n    types = besteffort, polymeter=cpu.*=10ms,perf.instructions=100ms for 1h, day\n    assigned_hostnames = n1+n2\nTOLD\n";

fn server_prologue_requests_as_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    let recorded = directory.path().join("recorded");
    // The first attempt fails: no agent knows the job yet.
    let sudo = format!(
        "#!/bin/sh\n[ -e {0}.1 ] || {{ touch {0}.1; exit 1; }}\nprintf '%s\\n' \"$@\" > {0}.2; mv {0}.2 {0}\n",
        recorded.display()
    );
    let mut server = Command::new(script("server_prologue"));
    server
        .arg("71")
        .env("OARSTAT", make_program(directory.path(), "oarstat", OARSTAT))
        .env("SUDO", make_program(directory.path(), "sudo", &sudo))
        .env("POLYMETER", "/p");
    let output = server.output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    wait_until("it asks", || recorded.exists());
    let words = fs::read_to_string(&recorded).unwrap();
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
    // A job without sampling requests, and a string that is not a job id.
    for (oarstat, job) in [("#!/bin/sh\necho '    owner = zoe'\n", "72"), (OARSTAT, "7;1")] {
        fs::remove_file(&recorded).ok();
        let mut server = Command::new(script("server_prologue"));
        server
            .arg(job)
            .env("OARSTAT", make_program(directory.path(), "oarstat", oarstat))
            .env("SUDO", "/bin/false")
            .env("ATTEMPTS", "0");
        assert!(server.output().unwrap().status.success());
    }
}

fn make_program(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}
