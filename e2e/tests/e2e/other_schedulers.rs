//! The scripts of `deploy/pbs`, `deploy/flux` and `deploy/lsf`, run with the variables that these schedulers
//! set. No server of them is part of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, tests, wait_until};
use polymeter_store::reader::JobRow;
use serde_json::json;

tests![pbs_announces_jobs, flux_announces_jobs, lsf_announces_jobs, a_hook_of_pbs_accepts_without_an_agent];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// Events of PBS, as in the stand-in for its module.
const PROLOGUE: u64 = 16384;
const EPILOGUE: u64 = 32768;

fn deployed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

/// Runs a script, which must succeed, and returns its standard output.
fn run(env: &TestEnvironment, mut command: Command, variables: &[(&str, &str)]) -> String {
    command.env("POLYMETER", program("polymeter").get_program());
    command
        .env("POLYMETER_AGENT_CONFIG", env.path("agent.toml"))
        .env("POLYMETER_SOCKET", env.path("agent.sock"));
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn hook(env: &TestEnvironment, kind: u64, exit_status: Option<i64>) -> String {
    let job = json!({
        "id": "123[4].server", "euser": "nobody", "Job_Name": "solve", "queue": "workq", "Account_Name": "physics",
        "Resource_List": {"walltime": 3600}, "Exit_status": exit_status,
    });
    let mut command = Command::new("python3");
    command.arg("-B").arg(deployed("pbs/polymeter_hook.py"));
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pbs");
    command.env("PYTHONPATH", modules).env("PBS_EVENT", json!({"type": kind, "job": job}).to_string());
    run(env, command, &[])
}

/// Runs a job with a script at its start and its end. Returns the job as it is stored.
fn job_with(id: &str, start: impl FnOnce(&TestEnvironment), end: impl FnOnce(&TestEnvironment)) -> JobRow {
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("cpu.usage", "1s")] };
    let agent = Agent::start(&env, &plan);
    let job = cgroups.job(id);
    start(&env);
    agent.wait_until_tracked(id, &["v2/cpu.stat"]);
    end(&env);
    job.remove();
    let row = stored::wait_for_end(&env, id);
    wait_until("the job has left the agent", || agent.jobs().is_empty());
    agent.daemon.terminate();
    collector.terminate();
    row
}

fn pbs_announces_jobs() {
    require(&NEEDS);
    let accepts = |env: &TestEnvironment, kind, status| assert_eq!(hook(env, kind, status), "accepted");
    let row = job_with(
        "123[4].server",
        |env| accepts(env, PROLOGUE, None),
        |env| accepts(env, EPILOGUE, Some(256 + 9)),
    );
    let texts = [row.owner, row.name, row.queue, row.account].map(Option::unwrap_or_default);
    assert_eq!(texts, ["nobody", "solve", "workq", "physics"]);
    assert_eq!((row.time_limit_s, row.exit_code, row.exit_signal), (Some(3600), None, Some(9)));
}

fn flux_announces_jobs() {
    require(&NEEDS);
    let row =
        job_with("f2oGS1ZzMs3", |env| flux_script(env, "flux/prolog"), |env| flux_script(env, "flux/epilog"));
    assert_eq!(row.owner_uid, Some(65_534));
}

fn flux_script(env: &TestEnvironment, name: &str) {
    let variables = [("FLUX_JOB_ID", "ƒ2oGS1ZzMs3"), ("FLUX_JOB_USERID", "65534")];
    assert_eq!(run(env, Command::new(deployed(name)), &variables), "");
}

fn lsf_announces_jobs() {
    require(&NEEDS);
    let row =
        job_with("123[7]", |env| lsf_script(env, "lsf/pre_exec"), |env| lsf_script(env, "lsf/post_exec"));
    let texts = [row.owner, row.name, row.queue, row.account].map(Option::unwrap_or_default);
    assert_eq!(texts, ["nobody", "solve a thing[1-9]", "normal", "physics"]);
    assert_eq!((row.exit_code, row.exit_signal), (Some(3), None));
}

fn lsf_script(env: &TestEnvironment, name: &str) {
    let variables = [
        ("LSB_JOBID", "123"),
        ("LSB_JOBINDEX", "7"),
        ("LSFUSER", "nobody"),
        ("LSB_QUEUE", "normal"),
        ("LSB_JOBNAME", "solve a thing[1-9]"),
        ("LSB_PROJECT_NAME", "physics"),
        // exit(3), as wait(2) states it.
        ("LSB_JOBEXIT_STAT", "768"),
    ];
    assert_eq!(run(env, Command::new(deployed(name)), &variables), "");
}

fn a_hook_of_pbs_accepts_without_an_agent() {
    require(&NEEDS);
    let env = TestEnvironment::new();
    assert_eq!(hook(&env, EPILOGUE, Some(0)), "accepted");
}
