//! The commands of README.md, the tutorials and the how-to guides, executed as the user whom they address,
//! with the results that they promise. A new block of commands must be in one of these lists.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_e2e::daemons::collector_with;
use polymeter_e2e::fixture::{Fixture, NEEDS, OWNER};
use polymeter_e2e::ordinary_user::OrdinaryUser;
use polymeter_e2e::{
    Need, TestEnvironment, cgroup, install, program, require, skip, tests, unique, wait_until,
};
use rustix::process::{Pid, Signal, kill_process_group};

use super::root;

tests![
    every_block_of_commands_is_executed_or_listed,
    the_first_run_works_without_root,
    the_small_cluster_works,
    a_job_is_profiled_by_its_owner,
    commands_within_a_run_work,
    stored_jobs_are_analysed_by_their_user,
    the_api_is_used_by_an_ordinary_user,
    programs_are_instrumented_by_their_user,
    keys_are_made_by_an_administrator,
];

struct Block {
    page: &'static str,
    begins: &'static str,
    /// Its output contains these.
    promises: &'static [&'static str],
}

const fn block(page: &'static str, begins: &'static str, promises: &'static [&'static str]) -> Block {
    Block { page, begins, promises }
}

const FIRST_RUN: &str = "docs/tutorial/first-run.md";
const FIRST_CLUSTER: &str = "docs/tutorial/first-cluster.md";
const PROFILE: &str = "docs/how-to/profile-a-job.md";
const HOT_FUNCTION: &str = "docs/how-to/hot-function.md";
const ANALYSE: &str = "docs/how-to/analyse.md";
const STORE: &str = "docs/how-to/store.md";
const API: &str = "docs/how-to/api.md";
const DEVICES: &str = "docs/how-to/devices.md";
const KEYS: &str = "docs/how-to/keys.md";
const REGIONS: &str = "docs/how-to/regions.md";
const ROOFLINE: &str = "docs/how-to/roofline.md";
const INSTALL: &str = "docs/how-to/install.md";

/// An ordinary user without anything but the program.
const ALONE: &[Block] = &[
    block(
        FIRST_RUN,
        "polymeter run -- python3",
        &["8999995500000500000", "wall time", "CPU time", "peak memory", "metric ", "process.cpu.usage"],
    ),
    block(
        FIRST_RUN,
        "polymeter run --every 50ms",
        &["process.cpu.usage", "10ms", "samples  ", "measuring cost"],
    ),
    block(FIRST_RUN, "polymeter run -o run.db -- python3", &["samples in", "job run-", "process.cpu.usage"]),
    block(FIRST_RUN, "sqlite3 run.db", &["process.cpu.usage|"]),
    block(FIRST_RUN, "polymeter run -o run.db -- sh", &["warm-up", "user.loss"]),
    block(FIRST_RUN, "polymeter jobs --ended --store", &["run-"]),
];

/// Root, on a machine of its own.
const CLUSTER: &[Block] = &[
    block(FIRST_CLUSTER, "polymeter-collector --listen", &[]),
    block(FIRST_CLUSTER, "polymeter-agent --config", &["valid", "samples"]),
    block(FIRST_CLUSTER, "mkdir -p /sys/fs/cgroup", &["JOB", "1"]),
    block(FIRST_CLUSTER, "polymeter set --socket", &["cpu.usage", "10ms", "% of a CPU", "lease of you"]),
    block(FIRST_CLUSTER, "kill %3; sleep 2", &["checkpoint", "lease", "of you", "samples  ", " due, "]),
    block(FIRST_CLUSTER, "kill %2; wait %2", &[]),
];

/// Owner of a job on a node with an agent.
const OWNER_OF_JOB: &[Block] = &[
    block(PROFILE, "polymeter plan", &["baseline", "cpu.usage", "READ COST", "\"metric\":\"cpu.usage\""]),
    block(PROFILE, "polymeter set 'cpu.*=10ms'", &["cpu.usage", "10ms", "% of a CPU"]),
    block(PROFILE, "polymeter set --job 4242", &["cpu.usage", "20ms"]),
    block(PROFILE, "polymeter metrics perf.flops", &["fp_ret_sse_avx_ops.all", "perf.cache_miss_ratio"]),
    block(PROFILE, "polymeter pmu release", &["released; ", "1 release ended"]),
    block(PROFILE, "polymeter mark solver", &[]),
];

/// Commands within a `polymeter run` that has a cgroup, beside an earlier run in the same store.
const WITHIN_A_RUN: &[Block] = &[
    block("README.md", "polymeter set 'cpu.*=10ms'", &["cpu.usage", "10ms", "job run-", "CPU"]),
    block("docs/how-to/experiment.md", "polymeter mark coarse", &["cpu.usage", "1ms"]),
];

/// An ordinary user with a store of jobs.
const STORED: &[Block] = &[
    block(ANALYSE, "polymeter report  ", &["job run-", "CPU  ", "FAILED, exit status 3"]),
    block(ANALYSE, "python3 docs/examples/read_store.py", &["run-"]),
    block(ANALYSE, "polymeter compare 4242 4250", &["run-"]),
    block(ANALYSE, "polymeter bundle 4242", &[]),
    block("docs/how-to/advice.md", "polymeter report --advice", &["job run-"]),
    block("docs/how-to/job-end.md", "#!/bin/sh", &["Job run-"]),
    block("docs/how-to/experiment.md", "polymeter bundle seal results", &[]),
    block(PROFILE, "polymeter report 4711 ", &["job run-"]),
    block(STORE, "polymeter store --store URL", &["samples", "KiB"]),
    block(STORE, "for job in $(polymeter jobs", &[]),
];

/// A user of a collector that serves the HTTP API.
const OF_API: &[Block] = &[
    block(API, "curl --unix-socket /run/polymeter/api.sock http", &["\"uid\":65534"]),
    block(API, "(umask 077; polymeter token create", &["notebook"]),
    block(API, "curl --unix-socket /run/polymeter/api.sock -H", &["["]),
];

/// Administrator of collector and nodes.
const OF_KEYS: &[Block] = &[
    block(KEYS, "install -d -m 755 /etc/polymeter /etc/polymeter/agents.d", &["collector.key"]),
    block(KEYS, "install -d -m 755 /etc/polymeter\n", &["node17.key"]),
];

/// A user with a compiler.
const INSTRUMENTED: &[Block] = &[
    block(REGIONS, "cat >heat.c", &["job run-", "time step", "solve"]),
    block(REGIONS, "cat >train.py", &["job run-", "epoch", "load"]),
    block(REGIONS, "cat >marked.c", &[]),
];

const OF_DEVICES: &str =
    "needs devices: e2e/tests/e2e/outside_devices.rs has a real agent of SNMP, and a wattmeter";

/// Blocks that no test here executes, with the reason.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "docs/how-to/hindsight.md",
        "polymeter keep",
        "needs an agent with rings: e2e/tests/e2e/keep_requests.rs has one for each of two nodes",
    ),
    (
        "docs/how-to/hindsight.md",
        "polymeter set --job",
        "needs a job of its reader: e2e/tests/e2e/ring_leases.rs has these commands",
    ),
    (
        "docs/how-to/monitoring.md",
        "polymeter check --warning",
        "e2e/tests/e2e/check.rs has thresholds for a real agent, and its states",
    ),
    (
        "docs/how-to/experiment.md",
        "polymeter overhead",
        "takes minutes: e2e/tests/e2e/overhead.rs has a short one within a run",
    ),
    (DEVICES, "(umask 077; echo", OF_DEVICES),
    (
        DEVICES,
        "(umask 077; printf",
        "needs a controller: e2e/tests/e2e/management_controllers.rs has that of OpenIPMI",
    ),
    (DEVICES, "polymeter-agent --check", OF_DEVICES),
    (DEVICES, "site-inventory --ports", "a command of the site"),
    (DEVICES, "polymeter set --socket", OF_DEVICES),
    (
        DEVICES,
        "polymeter set --job 4242 'device",
        "needs devices and Slurm: e2e/tests/e2e/on_demand.rs and slurm_rack.rs ask for them",
    ),
    (
        "docs/how-to/exporters.md",
        "polymeter device try http://node17",
        "needs an exporter of another node: e2e/tests/e2e/exporters.rs polls a real one",
    ),
    (
        "docs/how-to/exporters.md",
        "(umask 077; printf 'user",
        "needs a controller: node-agent/src/sources/outside/tests has servers of both schemas",
    ),
    (
        "docs/how-to/exporters.md",
        "openssl s_client",
        "needs a controller: node-agent/src/sources/outside/tests has a server with a pinned certificate",
    ),
    (
        "docs/how-to/federation.md",
        "(umask 077",
        "needs a collector as a service: collector/tests/collector/federation.rs has one with a token",
    ),
    (
        "docs/how-to/openmetrics.md",
        "(umask 077",
        "needs a certificate of the site: e2e/tests/e2e/openmetrics.rs has one of its own",
    ),
    (
        "docs/how-to/triggers.md",
        "sbatch --comment",
        "e2e/tests/e2e/triggers.rs has such a request, and such commands for a job on two nodes",
    ),
    (HOT_FUNCTION, "polymeter run --stacks", "needs programs to sample: stack_findings.rs has them"),
    (
        HOT_FUNCTION,
        "polymeter report 4242",
        "needs jobs with call stacks: stack_findings.rs reads their reports",
    ),
    (
        HOT_FUNCTION,
        "polymeter flame 4242",
        "needs jobs with call stacks: bundle::bundle_contains_the_stored_samples executes its options",
    ),
    (
        HOT_FUNCTION,
        "polymeter set stacks.wait",
        "needs a job with threads that wait: stack_findings.rs has one",
    ),
    (HOT_FUNCTION, "polymeter watch --functions", "needs a job that runs: stack_findings.rs has one"),
    ("README.md", "make demo", "builds and tests all of Polymeter: .ci/run executes both"),
    ("README.md", "$ polymeter run --every", "documents::readme_report_has_the_form_of_a_run executes it"),
    (
        ANALYSE,
        "polymeter flame 4242 ",
        "needs jobs with call stacks: bundle::bundle_contains_the_stored_samples executes its options",
    ),
    (ANALYSE, "polymeter export 4242 --store", "needs pandas: `make test-frames` runs the example"),
    (
        "docs/how-to/store.md",
        "polymeter store confirm-clock",
        "needs a clock that has jumped: the collector's tests of retention shift the time that it stored",
    ),
    (ANALYSE, "ids() {", "needs jobs with names, from Slurm"),
    (
        API,
        "curl -u ada https",
        "needs a second machine, a web server with users and a certificate: web_server.rs has one",
    ),
    (
        "docs/how-to/experiment.md",
        "cargo build --release",
        "builds Polymeter: `make quick-experiments` runs experiments",
    ),
    ("docs/how-to/grafana.md", "install -m 640 -g grafana", "needs Grafana"),
    (
        INSTALL,
        "apt install ./polymeter_*.deb ./polymeter-collector_*.deb",
        "`make test-packages`, with systemd",
    ),
    (INSTALL, "apt install ./polymeter_*.deb ./polymeter-agent_*.deb", "`make test-packages`, with systemd"),
    (INSTALL, "apt install ./polymeter_*.deb\n", "`make test-packages`, with systemd"),
    (INSTALL, "sbatch --wait", "`make test-packages`, with Slurm"),
    (INSTALL, "mkdir -p ~/.local && tar", "`make test-packages`, as a user without libzmq"),
    (INSTALL, "tar -C / -czf", "`make test-packages`, with systemd"),
    (INSTALL, "systemctl stop", "`make test-packages`, with systemd"),
    (
        KEYS,
        "polymeter-collector --check --user",
        "needs the configuration and the user of an installed service",
    ),
    ("docs/how-to/pages.md", "ssh -N -L", "needs a second machine"),
    (
        "docs/how-to/advise.md",
        "polymeter advise job.sh",
        "needs a job script and many earlier jobs: json.rs executes it without them, the unit tests with them",
    ),
    (
        "docs/how-to/usage.md",
        "polymeter usage",
        "its figures need a collector: json.rs executes it, and the tests of the collector its sums",
    ),
    (
        "docs/how-to/trend.md",
        "polymeter trend train",
        "needs many earlier runs: json.rs executes it with two, and the tests of the collector with 10,000",
    ),
    (
        "docs/how-to/notices.md",
        "polymeter notices --off",
        "needs a collector that sends notices: `notices.rs` in the tests of the collector",
    ),
    (ROOFLINE, "polymeter calibrate", "needs systemd and an idle node; json.rs calibrates this one"),
    (
        ROOFLINE,
        "sbatch --exclusive",
        "needs Slurm and a PMU: pmu.rs has a roofline of counters that are laid out",
    ),
    (PROFILE, "sbatch --comment", "needs Slurm and OAR: slurm_comment.rs and oar.rs have both requests"),
    (
        STORE,
        "createuser polymeter",
        "needs the administrator of a PostgreSQL server, as which systemd starts one",
    ),
    (
        STORE,
        "systemctl stop polymeter-collector",
        "needs systemd: store_copy.rs in the tests of the collector copies",
    ),
    (
        "docs/how-to/roles.md",
        "set -e\nsacctmgr",
        "needs slurmdbd: the unit tests of the collector read such a file",
    ),
    (
        "docs/how-to/sign-in.md",
        "oauth2-proxy --http-address",
        "needs an identity provider: web_server.rs has a stand-in behind the nginx of the page",
    ),
    ("docs/how-to/sign-in.md", "curl -b \"$COOKIE\"", "needs an identity provider, too"),
    (REGIONS, "gfortran", "needs a program: `programs::fortran_names_are_trimmed` compiles the module"),
    (REGIONS, "export KOKKOS_TOOLS_LIBS", "needs Kokkos"),
    (STORE, "# postgresql.conf", "needs Citus"),
    (STORE, "createuser --createrole polymeter", "needs Citus"),
    (STORE, "pg_dump -Fc", "needs a PostgreSQL server with TimescaleDB: `make test-timescale`"),
    (
        STORE,
        "pg_dumpall --roles-only",
        "needs two PostgreSQL servers with TimescaleDB: `make test-timescale`",
    ),
];

const EXECUTED: [&[Block]; 8] =
    [ALONE, CLUSTER, OWNER_OF_JOB, WITHIN_A_RUN, STORED, OF_API, OF_KEYS, INSTRUMENTED];

/// Blocks of shell commands of a page, without their indentation.
fn blocks(page: &str) -> Vec<String> {
    const LANGUAGES: [&str; 6] = ["", "sh", "bash", "shell", "console", "zsh"];
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (mut blocks, mut open): (Vec<String>, Option<(bool, String)>) = (Vec::new(), None);
    for line in text.lines() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if let Some((_, block)) = &mut open {
                block.push_str(line.trim_start());
                block.push('\n');
            }
            continue;
        };
        match open.take() {
            None => open = Some((LANGUAGES.contains(&language.trim()), String::new())),
            Some((true, block)) => blocks.push(block),
            Some((false, _)) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block without an end");
    blocks
}

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs/tutorial", "docs/how-to"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages
}

fn every_block_of_commands_is_executed_or_listed() {
    let executed = EXECUTED.into_iter().flatten().map(|block| (block.page, block.begins));
    let listed: Vec<(&str, &str)> =
        executed.chain(ELSEWHERE.iter().map(|(page, begins, _)| (*page, *begins))).collect();
    let mut used = BTreeSet::new();
    for page in pages() {
        for block in blocks(&page) {
            let matching: Vec<&(&str, &str)> = listed
                .iter()
                .filter(|(of_page, begins)| *of_page == page && block.starts_with(begins))
                .collect();
            let first = block.lines().next().unwrap_or_default();
            assert!(
                matching.len() == 1,
                "{page}: {} entries of this test for the block `{first}`: execute it, or list it with a reason",
                matching.len()
            );
            assert!(used.insert(matching[0]), "{page}: a second block begins as `{first}`");
        }
    }
    let unused: Vec<_> = listed.iter().filter(|entry| !used.contains(entry)).collect();
    assert!(unused.is_empty(), "there are no such blocks: {unused:?}");
}

/// Replacements of the names in a page.
type Names<'a> = &'a [(&'a str, &'a str)];

/// Executes blocks in one shell, which ends with the first failure of a command, and checks what they
/// promise.
fn execute(blocks_of_user: &[Block], mut shell: Command, names: Names<'_>) {
    let mut script = "exec 2>&1\nset -e\n".to_owned();
    for (place, Block { page, begins, .. }) in blocks_of_user.iter().enumerate() {
        let block = blocks(page).into_iter().find(|block| block.starts_with(begins));
        let mut block = block.unwrap_or_else(|| panic!("{page} has no block `{begins}`"));
        for (name, replacement) in names {
            block = block.replace(name, replacement);
        }
        script.push_str(&format!("printf '\\n=== block %d\\n' {place}\n{block}\n"));
    }
    script.push_str("printf '\\n=== block end\\n'\n");
    shell.args(["-c", &script]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = shell.spawn().unwrap();
    let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    // After a failure, daemons of the block may remain.
    kill_process_group(group, Signal::KILL).ok();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?} in\n{printed}", output.status);
    for (place, Block { page, begins, promises }) in blocks_of_user.iter().enumerate() {
        let of_block = printed.split_once(&format!("\n=== block {place}\n")).unwrap().1;
        let of_block = of_block.split_once("\n=== block ").unwrap().0;
        for promise in *promises {
            assert!(of_block.contains(promise), "{page}: `{begins}` does not print `{promise}`:\n{of_block}");
        }
    }
}

fn require_tools(names: &[&str]) {
    for name in names {
        if !Path::new("/usr/bin").join(name).exists() {
            skip(name, &format!("/usr/bin/{name} is not installed"));
        }
    }
}

fn of_root(command: impl AsRef<OsStr>, directory: &Path) -> Command {
    let programs = Path::new(program("polymeter").get_program()).parent().unwrap().to_owned();
    let mut command = Command::new(command);
    command
        .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display()))
        .current_dir(directory);
    command
}

/// Removes the cgroup of a test that failed.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        drop(cgroup::remove(&self.0));
    }
}

fn the_first_run_works_without_root() {
    require(&[Need::Root]);
    require_tools(&["python3", "sqlite3"]);
    let user = OrdinaryUser::new();
    let last = "$(polymeter jobs --ended --store sqlite:run.db | sed -n '2s/ .*//p')";
    execute(ALONE, user.command("bash"), &[("run-…", last)]);
}

fn programs_are_instrumented_by_their_user() {
    require(&[Need::Root]);
    require_tools(&["gcc", "python3"]);
    let user = OrdinaryUser::new();
    let installed = user.path("regions");
    let copied = Command::new("cp").arg("-r").arg(root().join("node-agent/regions")).arg(&installed).status();
    assert!(copied.unwrap().success());
    for name in ["libpolymeter_regions.so", "libpolymeter_regions.so.1"] {
        install(Path::new(program("libpolymeter_regions.so").get_program()), &installed.join(name));
    }
    let mut shell = user.command("bash");
    shell
        .env("CPATH", installed.join("include"))
        .env("LIBRARY_PATH", &installed)
        .env("LD_LIBRARY_PATH", &installed);
    let paths =
        [installed.join("share"), installed.join("include/polymeter")].map(|path| path.display().to_string());
    execute(
        INSTRUMENTED,
        shell,
        &[("/usr/share/polymeter/regions", &paths[0]), ("/usr/include/polymeter", &paths[1])],
    );
}

fn the_small_cluster_works() {
    require(&[Need::Root, Need::Cgroup2]);
    let (directory, name) = (tempfile::tempdir().unwrap(), unique());
    let hierarchy = cgroup::root(cgroup::V2).unwrap();
    // On a machine with both versions, version 2 may have few controllers.
    let controllers = fs::read_to_string(hierarchy.join("cgroup.subtree_control")).unwrap();
    let controller = controllers.split_whitespace().find(|name| *name == "memory");
    let controllers = controller.map_or_else(|| " ".to_owned(), |name| format!("+{name} "));
    let page = fs::read_to_string(root().join(FIRST_CLUSTER)).unwrap();
    let config = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let temporary = format!("{}/", directory.path().display());
    let (hierarchy, cgroup) = (hierarchy.display().to_string(), format!("/{name}/job_"));
    let names = [
        ("/sys/fs/cgroup", hierarchy.as_str()),
        ("/tutorial", &format!("/{name}")),
        ("+memory ", &controllers),
        ("/tmp/", &temporary),
        // Without a terminal it prints lines until it is stopped.
        ("polymeter watch ", "polymeter watch --count 3 "),
        // A person is slower than a script.
        ("polymeter status ", "until [ -S agent.sock ]; do sleep 0.1; done; polymeter status "),
        (
            "polymeter jobs --socket",
            "until polymeter jobs --socket agent.sock | grep '^1 '; do sleep 0.1; done; polymeter jobs --socket",
        ),
    ];
    let _removed = Removed(Path::new(&hierarchy).join(&name));
    let config = config.replace("/tmp/", &temporary).replace("tutorial/job_", cgroup.trim_start_matches('/'));
    fs::write(directory.path().join("agent.toml"), config).unwrap();
    execute(CLUSTER, of_root("bash", directory.path()), &names);
}

fn a_job_is_profiled_by_its_owner() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let mut shell = Command::new("setpriv");
    shell.args([&format!("--reuid={OWNER}"), &format!("--regid={OWNER}"), "--clear-groups", "bash"]);
    let path = format!("{}:/usr/bin:/bin", fixture.env.path("").display());
    shell.env("PATH", path).env("POLYMETER_SOCKET", &fixture.agent.socket).env("POLYMETER_JOB_ID", "x");
    let watch = ("polymeter watch   ", "polymeter watch --count 3 ");
    let names = [("4711", "x"), ("4242", "x"), watch, ("--count 100 ", "--count 2 ")];
    shell.current_dir("/");
    execute(OWNER_OF_JOB, shell, &names);
    fixture.end();
}

/// Runs a command whose samples go to `polymeter.db`, where the commands look without a collector.
fn run(mut polymeter: Command, script: &str) {
    polymeter.args(["run", "--every", "50ms", "-o", "polymeter.db", "--", "sh", "-c", script]);
    let output = polymeter.output().unwrap();
    assert!([0, 3].contains(&output.status.code().unwrap()), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Selects the id of the last but `N` job in the store, for a shell.
fn nth(number: usize) -> String {
    format!("$(polymeter jobs --ended --store sqlite:polymeter.db | sed -n '{}s/ .*//p')", number + 1)
}

fn commands_within_a_run_work() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let directory = tempfile::tempdir().unwrap();
    let polymeter = || of_root(program("polymeter").get_program(), directory.path());
    run(polymeter(), "sleep 0.3");
    run(polymeter(), "sleep 0.3");
    let mut within = polymeter();
    within.args(["run", "-o", "polymeter.db", "--", "bash"]);
    let names = [
        ("polymeter watch  ", "polymeter watch --count 2 "),
        ("polymeter report 4242 ", "polymeter report "),
        ("4242", &nth(1)),
        ("4250", &nth(2)),
        ("sleep 60", "sleep 0.2"),
    ];
    execute(WITHIN_A_RUN, within, &names);
}

fn stored_jobs_are_analysed_by_their_user() {
    require(&[Need::Root]);
    require_tools(&["python3", "jq"]);
    let user = OrdinaryUser::new();
    let script = "e2e-workload 'burn 100;rest 100'";
    for script in [script, script, script, &format!("{script}; exit 3")] {
        run(user.command("polymeter"), script);
    }
    fs::copy(root().join("docs/examples/read_store.py"), user.path("read_store.py")).unwrap();
    // A command for mail, and what the guides expect to exist.
    let prepare = "mkdir -p docs/examples advice.d results bin; cp ../read_store.py docs/examples
        cp polymeter.db run.db; echo 1 > results/a
        printf '#!/bin/sh\necho \"$@\"; cat\n' > bin/mail; chmod +x bin/mail
        polymeter report --json | jq '.findings += [{severity: \"warning\", sentence: \"x\"}]' > report.json";
    assert!(user.command("bash").args(["-ec", prepare]).status().unwrap().success());
    let (last, other) = (nth(1), nth(2));
    let names = [
        ("4009_1", last.as_str()),
        ("4242,4243,4244 4250,4251,4252", &format!("{last},{other} {},{}", nth(3), nth(4))),
        ("4242", &last),
        ("4250", &other),
        ("4711", &last),
        ("run.db JOB", &format!("run.db {last}")),
        ("cpu.usage --rate", "process.cpu.usage --rate"),
        ("/etc/polymeter/advice.d", "advice.d"),
        ("NEW_URL", "sqlite:new.db"),
        ("URL", "sqlite:polymeter.db"),
        ("#!/bin/sh\n", "PATH=$PWD/bin:$PATH; POLYMETER_JOB_ID=run-1; POLYMETER_JOB_OWNER=me\n"),
        ("findings=$(jq", "findings=$(<report.json jq"),
    ];
    execute(STORED, user.command("bash"), &names);
}

fn the_api_is_used_by_an_ordinary_user() {
    require(&[Need::Root]);
    require_tools(&["curl"]);
    let (env, user) = (TestEnvironment::new(), OrdinaryUser::new());
    let (control, socket) = (user.path("control.sock"), user.path("api.sock"));
    let more =
        format!("control_socket = \"{}\"\n[api]\nlisten = \"{}\"\n", control.display(), socket.display());
    let (_collector, _) = collector_with(&env, &env.endpoint(), &more);
    wait_until("the API is served", || socket.exists() && control.exists());
    let mut shell = user.command("bash");
    shell.env("POLYMETER_COLLECTOR", &control);
    let socket = socket.display().to_string();
    let token = "$(polymeter token list | sed -n '2s/ .*//p'); polymeter token create --name notebook > ~/.polymeter-token";
    execute(OF_API, shell, &[("/run/polymeter/api.sock", &socket), ("4f1c9a0be27d8835", token)]);
}

fn keys_are_made_by_an_administrator() {
    require(&[Need::Root]);
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("etc").display().to_string();
    // The user of an installed service is not there.
    let names = [("/etc/polymeter", place.as_str()), ("chown polymeter: ", "chown nobody: ")];
    execute(OF_KEYS, of_root("bash", directory.path()), &names);
    for name in ["collector.key", "node17.key", "collector.pub", "node17.pub"] {
        assert!(Path::new(&place).join(name).exists(), "{name}");
    }
}
