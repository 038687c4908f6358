//! The final samples of jobs: their cgroups exist for some milliseconds after the last process has ended.

use std::fs;

use polymeter_e2e::cgroup::{self, FrozenThread, Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::tests;
use polymeter_e2e::workload::{Sleeper, Workload};
use polymeter_e2e::{Need, TestEnvironment, pause, require, skip, stored, wait_until};
use polymeter_store::reader::SeriesScope;

tests![
    final_sample_is_taken_before_the_cgroups_are_removed,
    final_sample_is_taken_while_the_supervisor_is_blocked,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// Starts an agent that reads jobs only when they begin and end.
fn agent_with_daily_reads(env: &TestEnvironment, endpoint: &str, cgroups: &TestCgroups) -> Agent {
    let baseline = [("cpu.usage", "1d"), ("memory.current", "1d")];
    Agent::start(env, &Plan { collector: endpoint, jobs: &[cgroups.pattern()], baseline: &baseline })
}

fn cpu_ns(job: &Job) -> f64 {
    fs::read_to_string(job.directory("cpuacct").join("cpuacct.usage")).unwrap().trim().parse().unwrap()
}

fn final_sample_is_taken_before_the_cgroups_are_removed() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let agent = agent_with_daily_reads(&env, &endpoint, &cgroups);
    // A job without steps, and a job whose process is in a task of a step that was added later.
    for (id, in_step) in [("flat", false), ("deep", true)] {
        let job = cgroups.job(id);
        agent.wait_until_tracked(id, &["v2/cpu.stat"]);
        let step = in_step.then(|| job.step("step_0"));
        let task = step.as_ref().map(|step| step.step("task_0"));
        let mut process = Workload::start();
        task.as_ref().unwrap_or(&job).enter(process.pid());
        process.execute("burn 30");
        drop(process);
        let used_ns = cpu_ns(&job);
        // Only the job's end can trigger this read: the next deadline is tomorrow.
        wait_until("the store has all that the job used", || {
            let mut reader = env.reader();
            let Some(row) = stored::job(&mut reader, id) else { return false };
            let samples = stored::samples(&mut reader, SeriesScope::Job(row.job_key));
            let usage = samples.get(&("cpu.usage".to_owned(), String::new()));
            usage.and_then(|series| series.points.last()).is_some_and(|last| last.1 >= used_ns * 0.99)
        });
        drop((task, step));
        job.remove();
        let row = stored::wait_for_end(&env, id);
        let samples = stored::samples(&mut env.reader(), SeriesScope::Job(row.job_key));
        assert!(samples.values().all(|series| series.points.len() >= 2), "{samples:?}");
    }
    agent.daemon.terminate();
    collector.terminate();
}

fn final_sample_is_taken_while_the_supervisor_is_blocked() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let agent = agent_with_daily_reads(&env, &endpoint, &cgroups);
    // For version 1 the exit watcher watches a process; for version 2 the kernel reports that the cgroup is
    // empty.
    for (id, controller) in [("one", "cpuacct"), ("two", cgroup::V2)] {
        let job = cgroups.job_under(id, controller);
        wait_until("the job is read at its beginning", || reads(&env, id) > 0);
        let process = Sleeper::start();
        job.enter(process.pid());
        // The supervisor notices the process's entry within its own interval.
        let mut before = 0;
        wait_until("nothing more is read", || {
            pause(300);
            std::mem::replace(&mut before, reads(&env, id)) == reads(&env, id)
        });
        let Some(supervisor) = FrozenThread::new(&agent.daemon.thread("supervisor")) else {
            skip("freezer", "there is no freezer of version 1");
        };
        drop(process);
        wait_until("the last reading is stored", || reads(&env, id) > before);
        drop(supervisor);
        job.remove();
        stored::wait_for_end(&env, id);
    }
    agent.daemon.terminate();
    collector.terminate();
}

fn reads(env: &TestEnvironment, id: &str) -> usize {
    let mut reader = env.reader();
    let Some(row) = stored::job(&mut reader, id) else { return 0 };
    let samples = stored::samples(&mut reader, SeriesScope::Job(row.job_key));
    samples.get(&("cpu.usage".to_owned(), String::new())).map_or(0, |series| series.points.len())
}
