//! Requests that schemathesis generates from the document of the HTTP API, to a real collector with a stored
//! job, by a real token.

use std::fs;
use std::path::Path;
use std::process::Command;

use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::schemathesis::schemathesis;
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, tests, wait_until};

tests![generated_requests_have_answers_as_documented];

/// Leaves out checks that cannot hold. Requests without credentials are refused here, but not on the Unix
/// socket, of which the document tells. And some resources refuse combinations of valid parameters, which the
/// document cannot express: an end before the begin, too many points of all series together, metrics of
/// different units, neither a job nor nodes, a job that is compared with itself.
const CHECKS: &str = r#"
[checks]
ignored_auth.enabled = false

[[operations]]
include-operation-id = ["samples", "node_samples", "course", "kwollect_metrics", "compare"]
checks.positive_data_acceptance.enabled = false
"#;

/// Requests of a resource that are generated in each phase.
const EXAMPLES: &str = "60";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run_job(env: &TestEnvironment) {
    let output = program("polymeter")
        .args(["run", "--every", "20ms", "-m", "agent.*=50ms", "-o"])
        .arg(env.path("store.db"))
        .args(["--", "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; sleep 0.3"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn start(env: &TestEnvironment) -> (Daemon, String) {
    let more = format!(
        "control_socket = \"{}\"\n[api]\nlisten = \"127.0.0.1:0\"\nuser_requests_per_second = 10000\n",
        env.path("control.sock").display()
    );
    let (collector, _) = collector_with(env, &env.endpoint(), &more);
    let mut address = None;
    wait_until("the API is served", || {
        let log = collector.log();
        let rest = log.split_once("serving the HTTP API at ").map(|(_, rest)| rest.to_owned());
        address = rest.and_then(|rest| Some(rest.split_whitespace().next()?.to_owned()));
        address.is_some()
    });
    (collector, address.unwrap())
}

fn token(control: &Path) -> String {
    let output = program("polymeter")
        .args(["token", "create", "--scope", "admin", "--days", "1", "--collector"])
        .arg(control)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn generated_requests_have_answers_as_documented() {
    require(&[Need::Schemathesis]);
    let env = TestEnvironment::new();
    run_job(&env);
    let key = stored::jobs(&mut env.reader()).pop().unwrap().job_key;
    let (mut collector, address) = start(&env);
    let token = token(&env.path("control.sock"));
    // Half of the requests about a job are about the stored one.
    let with_job = env.path("schemathesis.toml");
    fs::write(&with_job, format!("[parameters]\n\"path.key\" = {key}\n{CHECKS}")).unwrap();
    let without = env.path("none.toml");
    fs::write(&without, CHECKS).unwrap();
    for (config, phases) in [(with_job, "coverage,fuzzing"), (without, "fuzzing")] {
        let output = Command::new(schemathesis())
            .arg("--config-file")
            .arg(config)
            .args(["run", &format!("{address}/api/openapi.json")])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--phases", phases, "--max-examples", EXAMPLES, "--seed", "1", "--no-color"])
            .args([
                "--suppress-health-check",
                "all",
                "--request-timeout",
                "30",
                "--generation-database",
                "none",
            ])
            .current_dir(env.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    }
    assert!(collector.runs());
    let log = collector.terminate();
    assert!(!log.contains("panicked"), "{log}");
}
