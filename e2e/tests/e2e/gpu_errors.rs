//! Errors of GPUs (XID) fire the triggers of the jobs that use them: with the stand-in of NVIDIA's library,
//! on a machine with laid-out jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::{TestEnvironment, program, stored, tests, wait_until};
use serde_json::{Value, json};

tests![an_error_of_a_gpu_fires_the_triggers_of_the_jobs_that_use_it];

const STAND_IN: &str = "../node-agent/tests/nvml/stand_in.c";

const BASELINE: [(&str, &str); 3] =
    [("gpu.memory.used", "100ms"), ("node.gpu.xid.*", "100ms"), ("pids.current", "100ms")];

const TABLES: &str = "[hindsight.metrics]\n\"pids.current\" = \"20ms\"\n[[trigger]]\nname = \"gpu\"\nwhen = \"xid\"\nkeep = \"2s\"\nafter = \"1s\"\nhold_off = \"1ms\"\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// A machine with two GPUs. A process of job 8 uses the first, one of job 9 the second.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn lay_out(root: PathBuf) -> Self {
        for (path, text) in [
            ("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n"),
        ] {
            write(&root.join(path), text);
        }
        let machine = Self { root };
        machine.set_errors("", "");
        let library = machine.root.join("usr/lib64/libnvidia-ml.so.1");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(STAND_IN);
        let mut cc = Command::new("cc");
        let status = cc.args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).status().unwrap();
        assert!(status.success());
        machine
    }

    /// Sets the errors so far of each GPU.
    fn set_errors(&self, first: &str, second: &str) {
        let mut text = "gpus 2\n".to_owned();
        for (gpu, pid, errors) in [(0, 8000, first), (1, 9000, second)] {
            text.push_str(&format!("{gpu}.uuid GPU-{gpu}\n{gpu}.processes {pid}:1048576\n"));
            text.push_str(&format!("{gpu}.memory_used 1\n{gpu}.memory_total 2\n{gpu}.events 1\n"));
            if !errors.is_empty() {
                text.push_str(&format!("{gpu}.xids {errors}\n"));
            }
        }
        write(&self.root.join("usr/lib64/nvml.txt"), &text);
    }

    fn job(&self, id: u32) -> PathBuf {
        self.root.join(format!("sys/fs/cgroup/jobs/job_{id}"))
    }

    fn start(&self, id: u32) {
        let staged = self.root.join("staged");
        write(&staged.join("pids.current"), "1\n");
        write(&staged.join("cgroup.procs"), &format!("{id}000\n"));
        write(&self.root.join(format!("proc/{id}000/environ")), "PATH=/bin\0");
        fs::create_dir_all(self.job(id).parent().unwrap()).unwrap();
        fs::rename(staged, self.job(id)).unwrap();
    }
}

fn an_error_of_a_gpu_fires_the_triggers_of_the_jobs_that_use_it() {
    let env = TestEnvironment::new();
    let machine = Machine::lay_out(env.path("root"));
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let jobs = ["jobs/job_{job}".to_owned()];
    let plan = Plan { collector: &endpoint, jobs: &jobs, baseline: &BASELINE };
    let keys = format!("root = \"{}\"\nrescan_interval = \"100ms\"\n", machine.root.display());
    let agent = Agent::start_with(&env, &plan, &keys, TABLES);
    machine.start(8);
    machine.start(9);
    agent.wait_until_tracked("8", &["nvidia/0", "v2/pids.current"]);
    agent.wait_until_tracked("9", &["nvidia/1", "v2/pids.current"]);
    wait_until("the GPUs of the node are read", || {
        let status = agent.status();
        let sources = status["subjects"][0]["sources"].as_array().unwrap().clone();
        sources.iter().filter(|of| of["name"].as_str().unwrap().starts_with("nvidia/")).count() == 2
    });
    polymeter_e2e::pause(1500);
    let fired = |job: &str| agent.ask(&json!({"verb": "triggers", "job": job}))["fired"].clone();
    let whys = |job: &str| -> Vec<Value> {
        fired(job).as_array().unwrap().iter().map(|fired| fired["why"].clone()).collect()
    };
    let reason = |gpu: u32, xid: u32| json!(format!("the driver reported an error of GPU {gpu} (XID {xid})"));
    assert_eq!((whys("8"), whys("9")), (vec![], vec![]));

    machine.set_errors("", "31");
    wait_until("the trigger of the second GPU's job", || whys("9") == [reason(1, 31)]);
    machine.set_errors("13,79", "31");
    wait_until("the trigger of the first GPU's job", || whys("8") == [reason(0, 79)]);
    assert_eq!(whys("9"), [reason(1, 31)], "not its error");
    assert!(fired("8")[0]["actions"].as_str().unwrap().contains("keeps 3 s"), "{}", fired("8"));

    // An owner's own rule, with words at the command line.
    let mut command = program("polymeter");
    command.args(["trigger", "add", "mine", "--job", "9", "--when", "xid and pids.current >= 1", "--mark"]);
    let output = command.arg("--socket").arg(&agent.socket).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // The only job of the node has all errors.
    fs::remove_dir_all(machine.job(8)).unwrap();
    stored::wait_for_end(&env, "8");
    polymeter_e2e::pause(500);
    machine.set_errors("13,79,62", "31");
    wait_until("the only job's triggers", || whys("9").contains(&reason(0, 62)) && whys("9").len() == 3);
    let mine = fired("9").as_array().unwrap().iter().find(|one| one["name"] == "mine").cloned().unwrap();
    assert_eq!(mine["why"], json!(format!("{}; pids.current was 1", reason(0, 62).as_str().unwrap())));

    fs::remove_dir_all(machine.job(9)).unwrap();
    stored::wait_for_end(&env, "9");
    let mut list = program("polymeter");
    let output = list.args(["report", "8", "--store", &env.store()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("before the GPU's error") && text.contains("XID 79"), "{text}");
    agent.daemon.terminate();
    collector.terminate();
}
